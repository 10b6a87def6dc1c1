# %% [markdown]
# # A base tuned in several constants, against a large model tuned by itself
#
# A small GPT with tied embeddings and GPT-2's initial values predicts the next character of a text.
# Its rate and its constants (factors of the output, of attention logits, of initial values and
# rates by role) are searched at a small width. The same numbers then train a wide model under muP,
# and are compared there with the best rate alone, and with the standard scheme, whose rate is tuned
# at the large width itself.
#
#     python -m examples.tuned_base TEXT [--width 128] [--draws 80] [--steps 80] [--output FOLDER]
#
# TEXT is any plain text of some 100 000 characters or more. Two to three minutes of one core.
# Finished trainings are kept in the folder, so that an interrupted run goes on where it was.

# %%
from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from examples.models import CharacterGPT
from examples.tasks import characters_task
from largen.sweeps import BaseTraining, Grid, Ranges, Sweep, Task, Tuned, sweep, tune
from largen.transfer.torch import scale

BASE, DEPTH, HEAD = 32, 2, 16
OPTIMIZER = "adamw"


def tied_gpt(width: int, depth: int, characters: int) -> nn.Module:
    """Return a GPT with GPT-2's initial values, whose read-out is its embedding."""
    model = CharacterGPT(width, depth, characters, heads=width // HEAD)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.02)
    model.read_out.weight = model.embed.weight
    return model


# %% [markdown]
# ## The search at the base
# The rate and a factor for every role, in a fixed number of short trainings at the small width.


# %%
def searched(task: Task, width: int, draws: int, seeds: int, folder: Path) -> Tuned:
    """Search rate and constants at the base; the large width only says which roles there are."""
    make = partial(tied_gpt, characters=characters_of(task))
    base = {"width": BASE, "depth": DEPTH}
    plan = scale(
        make, base, {**base, "width": width}, scheme="mup", optimizer=OPTIMIZER, verify=False
    )
    train = BaseTraining(make_model=make, task=task, base=base, optimizer=OPTIMIZER)
    ranges = Ranges.of(plan, rate=(2**-10, 2**-5))
    return tune(train, ranges, draws=draws, seeds=seeds, checkpoint=folder)


def characters_of(task: Task) -> int:
    """Return the number of different characters."""
    parts = (task.x, task.y, task.x_final, task.y_final)
    return 1 + max(int(codes.max()) for codes in parts if codes is not None)


# %% [markdown]
# ## At the large width
# With the searched numbers; with the best rate alone; and under the standard scheme at its own best
# rate.


# %%
def at(
    task: Task, widths: Sequence[int], scheme: str, rates: Sequence[float], seeds: int,
    folder: Path, **options,
) -> Sweep:  # fmt: skip
    """Train at some widths under one scheme."""
    grid = Grid(lrs=rates, base=(BASE, DEPTH), widths=widths, schemes=[scheme], seeds=seeds)
    make = partial(tied_gpt, characters=characters_of(task))
    return sweep(make, task, grid, optimizer=OPTIMIZER, checkpoint=folder, **options)


def compared(task: Task, width: int, draws: int, seeds: int, folder: Path) -> list[tuple]:
    """Return a row (recipe, width, log₂ rate, loss, standard error) for each recipe and width."""
    found = searched(task, width, draws, seeds, folder)
    print(found)
    rates = [2.0 ** (half / 2) for half in range(-22, -11)]
    widths = [BASE, width]
    alone = at(task, [BASE], "mup", rates, seeds, folder)
    best = 2.0 ** float(alone.best()["grid"].squeeze())
    tables = [
        ("mup: rate alone", at(task, widths, "mup", [best], seeds, folder)),
        (
            "mup: rate and constants",
            at(task, widths, "mup", [found.lr], seeds, folder, constants=found.constants),
        ),
        ("standard: rate tuned there", at(task, [width], "standard", rates, seeds, folder)),
    ]
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
    parser.add_argument("text", type=Path)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--draws", type=int, default=80)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("tuned_base"))
    given = parser.parse_args()
    task = characters_task(given.text, given.steps, given.batch_size)
    cells = given.output / "trainings"
    cells.mkdir(parents=True, exist_ok=True)
    rows = compared(task, given.width, given.draws, given.seeds, cells)
    with (given.output / "tuned_base.csv").open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["recipe", "width", "log2 rate", "loss", "standard error"])
        for recipe, width, rate, loss, error in rows:
            row = [recipe, width, f"{rate:.2f}", f"{loss:.3f}", f"{error:.3f}"]
            table.writerow(row)
            print("  ".join(map(str, row)))


if __name__ == "__main__":
    main()
