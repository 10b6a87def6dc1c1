# %% [markdown]
# # A base tuned in several constants, against a large model tuned by itself
#
# The rate and the constants of a small model (factors of the output, of attention logits, of
# initial values and rates by role) are searched at a small width. The same numbers then train a
# model of four times the width under muP, and are compared there with the best rate alone, and with
# the standard scheme, whose rate is tuned at the large width itself. Three models: a GPT with tied
# embeddings and GPT-2's initial values on the characters of a text; a vision transformer and a
# residual MLP without normalisation on handwritten digits. Losses are those of held-out samples.
#
#     python -m examples.tuned_base gpt vit mlp --text TEXT [--draws 80] [--steps 80] …
#
# TEXT is any plain text of some 100 000 characters or more. Some four minutes of one core, most of
# them for the GPT. Finished trainings are kept in the folder given by --output, so that an
# interrupted run goes on where it was.

# %%
from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from examples.models import CharacterGPT, ResidualMLP, ViT
from examples.tasks import characters_task, digits_task
from largen.sweeps import BaseTraining, Grid, Ranges, Sweep, Task, Tuned, sweep, tune
from largen.transfer.torch import scale

DEPTH, HEAD, MORE = 2, 16, 4
OPTIMIZER = "adamw"


@dataclass(frozen=True)
class Problem:
    """A model, its task, the width of the base, and the half-octaves of rates to be tried."""

    make: Callable[..., nn.Module]
    task: Task
    width: int
    halves: range
    example: Any = None  # inputs of the model, where they are not those of a usual kind

    @property
    def rates(self) -> list[float]:
        """The rates of the standard scheme."""
        return [2.0 ** (half / 2) for half in self.halves]

    @property
    def options(self) -> dict[str, Any]:
        """Options of ``scale``."""
        return {} if self.example is None else {"example": self.example}


def tied_gpt(width: int, depth: int, characters: int) -> nn.Module:
    """Return a GPT with GPT-2's initial values, whose read-out is its embedding."""
    model = CharacterGPT(width, depth, characters, heads=width // HEAD)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.02)
    model.read_out.weight = model.embed.weight
    return model


def gpt(text: Path, steps: int) -> Problem:
    """Return the GPT on characters."""
    task = characters_task(text, steps, batch_size=16)
    parts = (task.x, task.y, task.x_final, task.y_final)
    characters = 1 + max(int(codes.max()) for codes in parts if codes is not None)
    return Problem(partial(tied_gpt, characters=characters), task, 32, range(-22, -11))


def digits(steps: int, shape: tuple[int, ...]) -> Task:
    """Return the digits, of which 1300 are trained on."""
    whole = digits_task()
    x, order = whole.x.reshape(-1, *shape), np.random.default_rng(0).permutation(len(whole.x))
    ours, held_out = order[:1300], order[1300:]
    return Task(
        x[ours], whole.y[ours], batch_size=32, steps=steps,
        x_final=x[held_out], y_final=whole.y[held_out],
    )  # fmt: skip


def vit(text: Path, steps: int) -> Problem:
    """Return the vision transformer."""
    task = digits(steps, (1, 8, 8))
    return Problem(partial(ViT, channels=1), task, 16, range(-22, -5), torch.as_tensor(task.x[:2]))


def mlp(text: Path, steps: int) -> Problem:
    """Return the residual MLP."""
    return Problem(ResidualMLP, digits(steps, (64,)), 32, range(-22, -5))


PROBLEMS = {"gpt": gpt, "vit": vit, "mlp": mlp}

# %% [markdown]
# ## The search at the base
# The rate and a factor for every role, in a fixed number of short trainings at the small width.


# %%
def searched(problem: Problem, draws: int, seeds: int, folder: Path) -> Tuned:
    """Search rate and constants at the base; a larger width only says which roles there are."""
    base = {"width": problem.width, "depth": DEPTH}
    larger = {**base, "width": MORE * problem.width}
    plan = scale(
        problem.make, base, larger, scheme="mup", optimizer=OPTIMIZER, verify=False,
        **problem.options,
    )  # fmt: skip
    train = BaseTraining(
        make_model=problem.make, task=problem.task, base=base, optimizer=OPTIMIZER,
        options=problem.options,
    )  # fmt: skip
    rates = 2**-10, 2.0 ** ((problem.halves[-1] + 2) / 2)
    ranges = Ranges.of(plan, rate=rates)
    return tune(train, ranges, draws=draws, seeds=seeds, checkpoint=folder)


# %% [markdown]
# ## At the large width
# With the searched numbers; with the best rate alone; and under the standard scheme at its own best
# rate.


# %%
def at(
    problem: Problem, widths: Sequence[int], scheme: str, rates: Sequence[float], seeds: int,
    folder: Path, **options: Any,
) -> Sweep:  # fmt: skip
    """Train at some widths under one scheme."""
    grid = Grid(
        lrs=rates, base=(problem.width, DEPTH), widths=widths, schemes=[scheme], seeds=seeds
    )
    return sweep(
        problem.make, problem.task, grid, optimizer=OPTIMIZER, checkpoint=folder,
        **problem.options, **options,
    )  # fmt: skip


def compared(problem: Problem, draws: int, seeds: int, folder: Path) -> list[tuple]:
    """Return a row (recipe, width, log₂ rate, loss, standard error) for each recipe and width."""
    found = searched(problem, draws, seeds, folder)
    print(found)
    small, large = problem.width, MORE * problem.width
    alone = at(problem, [small], "mup", problem.rates, seeds, folder)
    best = 2.0 ** float(alone.best()["grid"].squeeze())
    tables = [
        ("mup: rate alone", at(problem, [small, large], "mup", [best], seeds, folder)),
        (
            "mup: rate and constants",
            at(
                problem, [small, large], "mup", [found.lr], seeds, folder,
                constants=found.constants,
            ),
        ),
        (
            "standard: rate tuned there",
            at(problem, [large], "standard", problem.rates, seeds, folder),
        ),
    ]  # fmt: skip
    rows = []
    for recipe, table in tables:
        for size in table.data["width"].values:
            loss = table.data["loss"].sel(width=size).squeeze(("scheme", "depth"))
            rate = loss["lr"].values[int(np.argmin(loss.mean("seed").values))]
            own = loss.sel(lr=rate).values
            error = own.std(ddof=1) / len(own) ** 0.5
            rows.append((recipe, int(size), np.log2(rate), own.mean(), error))
    return rows


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", choices=list(PROBLEMS))
    parser.add_argument("--text", type=Path, help="for the GPT")
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("tuned_base"))
    given = parser.parse_args()
    cells = given.output / "trainings"
    cells.mkdir(parents=True, exist_ok=True)
    with (given.output / "tuned_base.csv").open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["model", "recipe", "width", "log2 rate", "loss", "standard error"])
        for model in given.models:
            problem = PROBLEMS[model](given.text, given.steps)
            for recipe, width, rate, loss, error in compared(
                problem, given.draws, given.seeds, cells
            ):
                row = [model, recipe, width, f"{rate:.2f}", f"{loss:.3f}", f"{error:.3f}"]
                table.writerow(row)
                print("  ".join(map(str, row)))


if __name__ == "__main__":
    main()
