# %% [markdown]
# # A rate tuned on a small GPT, used on wider and deeper ones
#
# A causal transformer predicts the next character of a text, in a single epoch of random windows,
# by Adam with warm-up and a cosine. Rates are swept at a small base model, at wider ones and at
# deeper ones: as PyTorch's own initialisation and rates have it, and under CompleteP.
#
#     python examples/characters.py TEXT [--widths 32 64 128] [--depths 2 4 8] [--steps 300] …
#
# TEXT is any plain text of some 100 000 characters or more. Every finished sweep cell is kept in
# the folder given by --output, so that an interrupted run goes on where it was.

# %%
from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from largen.sweeps import sweep
from largen.sweeps.tasks import characters_task
from largen.transfer import warmup_cosine
from largen.transfer.torch.models import CharacterGPT

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
):
    """Sweep rates, given by their log₂, along the width and along the depth."""
    task = characters_task(text, steps)
    # Some characters may be in the text that is kept for the end only.
    parts = (task.x, task.y, task.x_final, task.y_final)
    characters = 1 + max(int(codes.max()) for codes in parts if codes is not None)
    base = min(widths), min(depths)

    def lrs(width: int, depth: int) -> list[float]:
        return [2.0**k for k in rates] if width == base[0] or depth == base[1] else []

    return sweep(
        partial(CharacterGPT, characters=characters),
        task,
        lrs=lrs,
        base=base,
        widths=widths,
        depths=depths,
        seeds=seeds,
        schemes=["standard", "complete_p"],
        optimizer="adam",
        schedule=warmup_cosine(steps, warmup=steps // 10),
        folder=folder,
    )


# %% [markdown]
# ## What comes out
# For each scheme and shape: the best rate with its interval, its loss in nats for each character
# of text that was not trained on, and in parentheses the loss at the base's best rate.


# %%
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rates", type=int, nargs="+", default=range(-10, -2), help="their log2")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("characters"))
    given = parser.parse_args()
    sizes = given.widths, given.depths
    cells = given.output / "cells"
    found = transfer(given.text, *sizes, given.rates, given.steps, given.seeds, cells)
    print(found)
    print(f"the best constant answer: {found.data.attrs['chance']:.3g}")
    found.plot().savefig(given.output / "rates.png")
    print(f"picture: {given.output / 'rates.png'}")


if __name__ == "__main__":
    main()
