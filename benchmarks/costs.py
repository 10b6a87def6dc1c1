"""What typical calls cost: processor seconds of the first call and of a second one, as a table.

    python benchmarks/costs.py            # all rows
    python benchmarks/costs.py deep       # those whose name has the word
    python benchmarks/costs.py --output docs/evidence/costs.csv

Each row is a process of its own. The first call compiles; the second has other numbers of the same
sizes. Processor seconds are those of all threads of the process, so that other work on the machine
hardly changes them.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import largen as lg


def inputs(count: int, dimension: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension))


def data(count: int, seed: int, tests: int = 0) -> lg.Dataset:
    x = inputs(count + tests, seed=seed)
    y = np.sign(x[:, 0])
    return lg.Dataset(x[:count], y[:count], *((x[count:], y[count:]) if tests else ()))


def solve(layers: int, samples: int, steps: int, rtol: float, gamma: float = 2.0) -> Any:
    """Return a function of the seed that solves the mean-field limit."""

    def call(seed: int) -> lg.Trajectory:
        run = lg.Run(
            lg.mlp(layers, "tanh"),
            lg.mean_field(gamma),
            data(samples, seed),
            optimizer=lg.gd(0.5),
            steps=steps,
        )
        return lg.solve(run, rtol=rtol, key=seed, progress=False)

    return call


def solve_adaptive(seed: int) -> lg.Trajectory:
    run = lg.Run(lg.mlp(2, "tanh"), lg.mup(), data(16, seed), optimizer=lg.adam(0.05), steps=40)
    return lg.solve(run, rtol=1e-2, key=seed, progress=False)


def solve_lazy(seed: int) -> lg.Trajectory:
    run = lg.Run(lg.mlp(3, "tanh"), lg.ntk(), data(200, seed, 200), optimizer=lg.gd(0.5), steps=100)
    return lg.solve(run)


def solve_endless(
    param: lg.scaling.Parameterization, rtol: float
) -> Callable[[int], lg.Trajectory]:
    def call(seed: int) -> lg.Trajectory:
        net, steps = lg.residual_mlp(math.inf, "tanh"), 10
        run = lg.Run(net, param, data(4, seed), optimizer=lg.gd(0.3), steps=steps)
        return lg.solve(run, rtol=rtol, key=seed, progress=False)

    return call


def corrections(seed: int) -> Any:
    return lg.finite_width.width_corrections(lg.mlp(3, "tanh"), inputs(4, seed=seed), width=100)


def train(width: int, seeds: int) -> Callable[[int], lg.Trajectory]:
    def call(seed: int) -> lg.Trajectory:
        run = lg.Run(lg.mlp(3, "tanh"), lg.ntk(), data(100, seed), optimizer=lg.gd(0.5), steps=100)
        return lg.train(run, width, seeds, seed, progress=False)

    return call


def fit(seed: int) -> Any:
    x = inputs(300, seed=seed)
    y = np.sin(x[:, 0])
    return lg.NNGPRegressor(lg.mlp(3, "relu"), optimize=True).fit(x, y)


CALLS: dict[str, Callable[[int], Any]] = {
    "kernel, 3 layers of tanh, 100 samples": lambda s: lg.kernel(lg.mlp(3, "tanh"), inputs(100)),
    "kernel, 3 layers of tanh, 1000 samples": lambda s: lg.kernel(lg.mlp(3, "tanh"), inputs(1000)),
    "kernel, 3 layers of relu, 1000 samples": lambda s: lg.kernel(lg.mlp(3, "relu"), inputs(1000)),
    "kernel, 3 layers of elu, 20 samples": lambda s: lg.kernel(lg.mlp(3, "elu"), inputs(20)),
    "kernel, 3 layers of tanh, 20 samples of mean square 60": lambda s: lg.kernel(
        lg.mlp(3, "tanh"), 60**0.5 * inputs(20, seed=s)
    ),
    "NNGPRegressor(optimize=True).fit, 300 samples": fit,
    "kernel limit, 3 layers, 200 + 200 samples, 100 steps": solve_lazy,
    "train, 3 layers, width 256, 8 networks, 100 samples, 100 steps": train(256, 8),
    "mean field, 1 layer, 8 samples, 20 steps, rtol 1e-2": solve(1, 8, 20, 1e-2),
    "mean field, 1 layer, 8 samples, 20 steps, rtol 1e-3": solve(1, 8, 20, 1e-3),
    "mean field, deep: 2 layers, 8 samples, 20 steps, rtol 5e-2": solve(2, 8, 20, 5e-2),
    "mean field, deep: 2 layers, 8 samples, 20 steps, rtol 3e-3": solve(2, 8, 20, 3e-3),
    "mean field, deep: 3 layers, 16 samples, 40 steps, rtol 5e-2": solve(3, 16, 40, 5e-2),
    "mean field, deep: 3 layers, 16 samples, 40 steps, rtol 3e-3": solve(3, 16, 40, 3e-3),
    "mean field, adaptive: 2 layers, 16 samples, 40 steps, rtol 1e-2": solve_adaptive,
    "infinite depth, branches L^(−½), 4 samples, 10 steps, rtol 1e-2": solve_endless(
        lg.depth_mup(), 1e-2
    ),
    "infinite depth, branches 1/L, 4 samples, 10 steps, rtol 1e-3": solve_endless(
        lg.complete_p(), 1e-3
    ),
    "corrections of order 1/N at initialisation, 3 layers, 4 samples": corrections,
}


def seconds(call: Callable[[int], Any], seed: int) -> float:
    begin = time.process_time()
    call(seed)
    return time.process_time() - begin


def measure(name: str) -> tuple[float, float]:
    """Return the processor seconds of a row's first call and of its second."""
    return seconds(CALLS[name], 0), seconds(CALLS[name], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="rows whose names have all of them")
    parser.add_argument("--output", type=Path, help="a CSV file to write as well")
    chosen = parser.parse_args()
    rows = [["call", "first (s)", "again (s)"]]
    print("| call | first | again |\n|---|---|---|")
    apart = multiprocessing.get_context("spawn")
    for name in CALLS:
        if all(word in name for word in chosen.words):
            with apart.Pool(1) as process:
                first, again = process.apply(measure, (name,))
            rows.append([name, f"{first:.2g}", f"{again:.2g}"])
            print(f"| {name} | {first:.2g} s | {again:.2g} s |", flush=True)
    if chosen.output:
        with chosen.output.open("w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
