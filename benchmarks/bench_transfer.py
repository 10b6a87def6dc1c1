"""Does the best rate stay where it is? A residual MLP on digits, over width and depth.

Gradient descent, 200 steps, no normalisation; base width 64 and depth 4; widths 64 … 1024, depths
4 … 64; standard parameterization, μP and depth-μP. Run as

    python -m benchmarks.bench_transfer [FOLDER] [--widths …] [--seeds 3] [--wide-seeds 1]
        [--wide-depths …]

Half an hour of one core. Every finished cell is kept in FOLDER, and the same call resumes where it
was. The table is printed and written to FOLDER/table.txt; ``bench_transfer.txt`` is one.

Rates are factors of two apart. Where networks of depth 64 do not train, the grid has steps of
2⁴ down to 2⁻²⁴. The largest networks are trained at three rates: beside the base's best one for
depth-μP, and from 2⁻²⁰ to 2⁻⁴ for the others.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from examples.models import ResidualMLP
from examples.tasks import digits_task
from largen.sweeps import Grid, Sweep, sweep

BASE, WIDTHS, DEPTHS = (64, 4), (64, 256, 1024), (4, 16, 64)
SHAPES = [(width, depth) for width in WIDTHS for depth in DEPTHS]
WIDE = WIDTHS[-1]
# log₂ of the rates, by depth.
GRIDS = {
    "standard": {4: range(-6, 1), 16: range(-12, -3), 64: range(-24, -3, 4)},
    "mup": {4: range(-4, 1), 16: range(-9, -1), 64: range(-24, -3, 4)},
    "depth_mup": {depth: range(-4, 1) for depth in DEPTHS},
}
GRIDS_OF_LARGEST = {"standard": (-20, -12, -4), "mup": (-20, -12, -4), "depth_mup": (-3, -2, -1)}


def grid(scheme: str, width: int, depth: int) -> list[float]:
    """Return the rates at which networks of a shape are trained."""
    largest = (width, depth) == (WIDTHS[-1], DEPTHS[-1])
    return [2.0**k for k in (GRIDS_OF_LARGEST[scheme] if largest else GRIDS[scheme][depth])]


def trained(
    scheme: str, widths: list[int], depths: list[int], seeds: int, folder: Path, batch: int
) -> Sweep:
    """Train the networks of a scheme at some widths and depths."""
    return sweep(
        ResidualMLP,
        digits_task(200, batch),
        Grid(
            lrs=partial(grid, scheme),
            base=BASE,
            widths=widths,
            depths=depths,
            schemes=[scheme],
            seeds=seeds,
        ),
        checkpoint=folder / "cells",
    )


def optima(found: list[Sweep]) -> dict[tuple[int, int], dict[str, float]]:
    """Return the best rate of every shape that was trained, and the loss at the base's."""
    base = found[0].best().isel(scheme=0).sel(width=BASE[0], depth=BASE[1])
    all_of = {}
    for part in found:
        loss = part.data["loss"].isel(scheme=0).mean("seed", skipna=False)
        for width, depth in SHAPES:
            if width not in loss["width"] or depth not in loss["depth"]:
                continue
            own = loss.sel(width=width, depth=depth).dropna("lr")
            if own.size:
                best = part.best().isel(scheme=0).sel(width=width, depth=depth)
                rate = 2.0 ** float(base["grid"])
                there = np.isclose(own["lr"], rate)
                moved = float(own.values[there][0]) if there.any() else np.nan
                all_of[width, depth] = {k: float(best[k]) for k in best.data_vars} | {
                    "moved": moved,
                    "drift": float(best["log2_lr"] - base["log2_lr"]),
                    "steps": float(best["grid"] - base["grid"]),
                }
    return all_of


def lines(scheme: str, found: list[Sweep]) -> list[str]:
    """Return a scheme's rows of the table."""
    rows = []
    for (width, depth), at in optima(found).items():
        moved = f"{at['moved']:.3g}" if np.isfinite(at["moved"]) else "diverges"
        moved = "not run" if np.isnan(at["moved"]) else moved
        start = f"{scheme:<10}{width:>6}{depth:>7}"
        if not at["trains"]:
            rows.append(f"{start}   no rate of its grid beats a constant answer{moved:>19}")
            continue
        interval = f"[{at['low']:.1f}, {at['high']:.1f}]"
        rows.append(
            f"{start}{at['grid']:>6.0f}{at['log2_lr']:>8.2f}{interval:>16}"
            f"{at['steps']:>+8.0f}{at['drift']:>+8.2f}{at['loss']:>10.3g}{moved:>12}"
        )
    return rows


HEAD = (
    "scheme     width  depth  best  interp.        interval   drift   interp.     loss   at base's"
)


def main() -> None:
    """Train, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("transfer"))
    parser.add_argument("--widths", type=int, nargs="+", choices=WIDTHS, default=list(WIDTHS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--wide-seeds", type=int, default=1, help=f"of width {WIDE}")
    parser.add_argument("--wide-depths", type=int, nargs="+", choices=DEPTHS, default=list(DEPTHS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--schemes", nargs="+", choices=GRIDS, default=list(GRIDS))
    given = parser.parse_args()
    narrow = sorted({BASE[0], *given.widths} - {WIDE})
    table = [
        f"{given.seeds} seeds ({given.wide_seeds} of width {WIDE}), batch {given.batch}; log2 of "
        f"rates; drift from {BASE}",
        HEAD,
    ]
    print("\n".join(table))
    for scheme in given.schemes:
        kept = given.folder, given.batch
        found = [trained(scheme, narrow, list(DEPTHS), given.seeds, *kept)]
        if WIDE in given.widths:
            found.append(trained(scheme, [WIDE], given.wide_depths, given.wide_seeds, *kept))
        rows = lines(scheme, found)
        print("\n".join(rows), flush=True)
        table += rows
    (given.folder / "table.txt").write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
