"""The best learning rate of the limit beside that of networks: 20 cells of real images.

    python benchmarks/optimal_rates.py --data FOLDER

Four sets of images times five networks. In each cell the mean-field limit and networks of three
widths are trained at the same rates, and the table says where the loss is smallest, between
which rates it is within a tenth of that, and where training diverges. Rates are in units of P/λ_max
of the kernel at initialisation: gradient descent on a constant kernel diverges at 2.

FOLDER holds ``mnist*.npz``, ``fashion_mnist*.npz`` and ``cifar10_8x8*.npz`` with ``x_train``,
``y_train``, ``x_test`` and ``y_test``; digits are scikit-learn's. All images have 8 × 8 grey
pixels, averages of larger ones, and labels ±1 for even and odd classes. Losses are written to
``docs/evidence/optimal_rates.csv`` as soon as a cell is done, and cells found there are not
computed again; the table is ``docs/evidence/optimal_rates.txt``.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import largen as lg
from largen.experiments import LearningRateCurve
from largen.experiments.digits import digits
from largen.experiments.learning_rates import learning_rate_curves

SETS = ("digits", "mnist", "fashion_mnist", "cifar10_8x8")
SAMPLES, TEST, STEPS, SEEDS, SIDE = 20, 100, 10, 8, 8
LOW, MIDDLE, HIGH = range(-14, 0), range(-6, 6), range(-6, 10)  # exponents of 2^(1/4), of rates
NAME_OF = {k: f"{2 ** (k / 4):.3f}" for k in range(min(LOW), max(HIGH) + 1)}
FACTOR, WIDE = 2**0.5, 256  # optima are to agree within this factor, from this width on
EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
NAMES = ["data", "network", "width", "samples", "initial", "seconds"]


WIDTHS = (64, 256, 512)
# Numbers of neurons are fixed: near divergence no number of them reaches a given error.
SHALLOW, DEEP = ({"particles": n, "replicates": 2} for n in (8192, 1024))
CASES = {
    "tanh, 1 layer, γ = 1/4": (lg.mlp(1, "tanh"), lg.mean_field(0.25), SHALLOW, HIGH),
    "tanh, 1 layer, γ = 1": (lg.mlp(1, "tanh"), lg.mean_field(1.0), SHALLOW, HIGH),
    "relu, 1 layer, γ = 2": (lg.mlp(1, "relu"), lg.mean_field(2.0), SHALLOW, LOW),
    "tanh, 2 layers, γ = 1": (lg.mlp(2, "tanh"), lg.mean_field(1.0), DEEP, MIDDLE),
    "tanh, 4 blocks, γ = 1": (lg.residual_mlp(4, "tanh"), lg.depth_mup(), DEEP, MIDDLE),
}


def images(name: str, folder: Path) -> lg.Dataset:
    """Return a set with labels ±1, centred, and scaled so that |x|²/D averages to one."""
    if name == "digits":
        return digits(SAMPLES, TEST, dtype="float64")
    with np.load(sorted(folder.glob(f"{name}_*.npz"))[0]) as file:
        x, z = (_small(file[f"x_{part}"]) for part in ("train", "test"))
        y, t = (1.0 - 2.0 * (file[f"y_{part}"].reshape(-1) % 2) for part in ("train", "test"))
    mean = x[:SAMPLES].mean(0)
    x, z = x[:SAMPLES] - mean, z[:TEST] - mean
    size = np.sqrt(np.mean(x**2))
    return lg.Dataset(x / size, y[:SAMPLES], z / size, t[:TEST])


def _small(pixels: np.ndarray) -> np.ndarray:
    """Return grey images of 8 × 8 pixels, the averages of equal squares about the middle."""
    pixels = pixels.astype(np.float64)
    grey = pixels.mean(3) if pixels.ndim == 4 else pixels
    by = grey.shape[1] // SIDE
    edge = (grey.shape[1] - by * SIDE) // 2
    middle = grey[:, edge : edge + by * SIDE, edge : edge + by * SIDE]
    return middle.reshape(len(grey), SIDE, by, SIDE, by).mean((2, 4)).reshape(len(grey), -1)


def computed(name: str, data: lg.Dataset, network: str) -> Iterator[dict[str, Any]]:
    """Yield one row for each width and kind of loss, the limit first."""
    net, param, of_limit, exponents = CASES[network]
    kernel = lg.ntk_kernel(net, data.x_train, param=param)
    unit = lg.regression.critical_learning_rate(kernel) / 2
    run = lg.Run(net, param, data, optimizer=lg.gd(unit), steps=STEPS)
    rates = unit * 2.0 ** (np.array(exponents) / 4)
    for width in (np.inf, *WIDTHS):
        start = time.process_time()
        options = of_limit if np.isinf(width) else {"width": width, "seeds": SEEDS}
        curves = learning_rate_curves(run, rates, progress=False, **options)
        seconds = time.process_time() - start
        for on, curve in curves.items():
            yield {
                "data": name,
                "network": network,
                "width": width,
                "samples": on,
                "initial": f"{curve.initial:.5g}",
                "seconds": f"{seconds:.1f}",
                **{NAME_OF[k]: f"{y:.5g}" for k, y in zip(exponents, curve.losses, strict=True)},
            }


def cells_of(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return data and network of the cells that are computed."""
    return {(row["data"], row["network"]) for row in rows}


def curve_of(row: dict[str, str]) -> LearningRateCurve:
    """Return the curve of a row, over reduced rates."""
    pairs = [(2.0 ** (k / 4), float(row[x])) for k, x in NAME_OF.items() if row.get(x)]
    rates, losses = np.array(pairs).T
    errors = np.full(len(losses), np.nan)
    return LearningRateCurve(rates, losses, errors, float(row["initial"]), "", row["samples"])


def lines(rows: list[dict[str, str]], on: str) -> Iterator[str]:
    """Yield the table of one kind of loss."""
    head = f"{'data':14}{'network':23}{'limit':>6} {'within 10 %':>13} {'diverges':>12}"
    yield f"{on} loss"
    yield head + f"{'N':>6}{'nets':>6} {'within 10 %':>13} {'diverges':>12}{'factor':>8}{'cost':>7}"
    agree, none = 0, 0
    cells: dict[tuple[str, str], dict[float, LearningRateCurve]] = {}
    for row in rows:
        if row["samples"] == on:
            cell = cells.setdefault((row["data"], row["network"]), {})
            cell[float(row["width"])] = curve_of(row)
    for (data, network), curves in cells.items():
        limit = curves[np.inf]
        left = f"{data:14}{network:23}{_best(limit):>6} {_interval(limit)} {_edge(limit):>12}"
        largest = 1.0
        for width in sorted(curves)[:-1]:
            nets = curves[width]
            factor = nets.optimum / limit.optimum
            best = int(np.argmin(np.where(limit.diverged, np.inf, limit.losses)))
            cost = nets.losses[best] / np.nanmin(nets.losses)
            if width >= WIDE:
                largest = max(largest, factor, 1 / factor)
            cost = f"{cost:7.2f}" if not nets.diverged[best] else "   div."
            right = f"{width:6.0f}{_best(nets):>6} {_interval(nets)} {_edge(nets):>12}"
            yield left + right + f"{factor:8.2f}{cost}"
            left = " " * len(left)
        found = np.isfinite([curve.optimum for curve in curves.values()]).all()
        agree, none = agree + (found and largest <= FACTOR), none + (not found)
    yield f"within a factor √2 at N ≥ {WIDE}: {agree} of {len(cells) - none} cells"
    yield f"no rate has a smaller loss than the start has: {none} further cells\n"


def _best(curve: LearningRateCurve) -> str:
    """Return the optimum, marked if it is the smallest of the rates."""
    return f"{'≤' if curve.optimum == curve.rates[0] else ''}{curve.optimum:.2f}"


def _interval(curve: LearningRateCurve) -> str:
    return "{:6.2f}–{:6.2f}".format(*curve.good)


def _edge(curve: LearningRateCurve) -> str:
    stable, unstable = curve.threshold
    return f"{stable:.2f}–{unstable:.2f}" if np.isfinite(unstable) else f"> {stable:.2f}"


def main() -> None:
    """Compute the cells that are missing, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the images")
    parser.add_argument("--table", action="store_true", help="write the table, and compute nothing")
    parser.add_argument("--output", type=Path, default=EVIDENCE, help="folder of the table")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "optimal_rates.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = cells_of(rows)
    for network in CASES:
        for name in SETS:
            if given.table or (name, network) in done:
                continue
            rows += computed(name, images(name, given.data), network)
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*NAMES, *NAME_OF.values()])
                writer.writeheader()
                writer.writerows(rows)
            print(f"{name}, {network}: {rows[-1]['seconds']} s for the widest", flush=True)
    seconds = sum(float(row["seconds"]) for row in rows if row["samples"] == "train")
    words = [
        "Best rate in units of P/λ_max of the kernel at initialisation.",
        f"{SAMPLES} training and {TEST} test images, {STEPS} steps, {SEEDS} networks a width.",
        "factor: optimum of the networks over that of the limit.",
        "cost: loss of the networks at the limit's best rate of the grid, over their smallest one.",
        f"{seconds:.0f} processor seconds in all.\n",
    ]
    missing = [f"{n}, {k}" for k in CASES for n in SETS if (n, k) not in cells_of(rows)]
    last = [f"Not computed yet: {'; '.join(missing)}."] if missing else []
    table = "\n".join([*words, *lines(rows, "train"), *lines(rows, "test"), *last]).rstrip() + "\n"
    (given.output / "optimal_rates.txt").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
