# %% [markdown]
# # A rate tuned on a small GPT, used on wider and deeper ones
#
# A causal transformer predicts the next character of a text, in a single epoch of random windows,
# by Adam with warm-up and a cosine. Rates are swept at a small base model, at wider ones and at
# deeper ones: as PyTorch's own initialisation and rates have it, and under CompleteP.
#
#     python -m examples.characters TEXT [--widths 32 64 128] [--depths 2 4 8] [--steps 300] …
#
# TEXT is any plain text of some 100 000 characters or more. Every finished sweep cell is kept in
# the folder given by --output, so that an interrupted run goes on where it was. The table of best
# rates is written there as well.

# %%
from __future__ import annotations

import argparse
import csv
from functools import partial
from pathlib import Path

import numpy as np

from examples.models import CharacterGPT
from examples.tasks import characters_task
from largen.sweeps import Grid, Sweep, sweep
from largen.transfer import warmup_cosine

# %% [markdown]
# ## The sweep
# One axis at a time: wide networks have the base's depth, and deep ones its width.


# %%
def transfer(
    text: Path,
    widths: list[int],
    depths: list[int],
    rates: list[int],
    steps: int,
    seeds: int,
    folder: Path,
    *,
    batch_size: int = 32,
    schemes: tuple[str, ...] | list[str] = ("standard", "complete_p"),
) -> Sweep:
    """Sweep rates, given by their log₂, along the width and along the depth."""
    task = characters_task(text, steps, batch_size)
    # Some characters may be in the text that is kept for the end only.
    parts = (task.x, task.y, task.x_final, task.y_final)
    characters = 1 + max(int(codes.max()) for codes in parts if codes is not None)
    base = min(widths), min(depths)

    def lrs(width: int, depth: int) -> list[float]:
        return [2.0**k for k in rates] if width == base[0] or depth == base[1] else []

    return sweep(
        partial(CharacterGPT, characters=characters),
        task,
        Grid(lrs=lrs, base=base, widths=widths, depths=depths, seeds=seeds, schemes=list(schemes)),
        optimizer="adam",
        schedule=warmup_cosine(steps, warmup=steps // 10),
        checkpoint=folder,
    )


# %% [markdown]
# ## What comes out
# For each scheme and shape: the best rate with its interval, its loss in nats for each character
# of text that was not trained on, and in parentheses the loss at the base's best rate.


# %%
def table(found: Sweep, file: Path) -> None:
    """Write a row for each shape: the best rate, and what the base's best rate costs there."""
    best, moved = found.best(), found.transferred()
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow(["scheme", "width", "depth", "log2 best rate", "from", "to", "loss", "ratio"])
        for scheme in best["scheme"].values:
            for depth in best["depth"].values:
                for width in best["width"].values:
                    at = {"scheme": scheme, "width": width, "depth": depth}
                    here = [best[name].sel(at) for name in ("log2_lr", "low", "high", "loss")]
                    numbers = [float(value) for value in (*here, moved["ratio"].sel(at))]
                    if np.isfinite(numbers[0]):
                        told = [f"{value:.2f}" for value in numbers[:3]]
                        told += [f"{value:.4g}" for value in numbers[3:]]
                        rows.writerow([scheme, width, depth, *told])


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rates", type=int, nargs="+", default=range(-10, -2), help="their log2")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--schemes", nargs="+", default=["standard", "complete_p"])
    parser.add_argument("--output", type=Path, default=Path("characters"))
    given = parser.parse_args()
    sizes = given.widths, given.depths
    cells = given.output / "cells"
    protocol = given.rates, given.steps, given.seeds, cells
    options = {"batch_size": given.batch_size, "schemes": given.schemes}
    found = transfer(given.text, *sizes, *protocol, **options)
    print(found)
    table(found, given.output / "rates.csv")
    print(f"the best constant answer: {found.data.attrs['chance']:.3g}")
    found.plot().savefig(given.output / "rates.png")
    print(f"picture: {given.output / 'rates.png'}")


if __name__ == "__main__":
    main()
