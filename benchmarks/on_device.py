"""Numbers and speeds on the first accelerator that JAX sees, written to one JSON file.

    python -m benchmarks.on_device                       # docs/evidence/on_device.json
    python -m benchmarks.on_device FILE --small          # small problems, for a machine without one
    python -m benchmarks.on_device FILE --seconds 240    # no row starts after so many seconds

Numbers: each kind of computation in float32 and in float64 on the device, against the same in
float64 on the CPU, as the largest difference relative to the largest entry. Speeds: seconds of the
first call, which compiles, and of a second one with other numbers of the same sizes; beside them,
where it takes no more than some seconds, those of the second call on the CPU of the same machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg
from largen.errors import LargenError

KEPT = Path(__file__).parents[1] / "docs" / "evidence" / "on_device.json"
RELU = lg.Activation("relu")
MLP = lg.mlp(3, "relu", bias_std=0.1)
CNN = lg.serial(
    *[lg.Conv((3, 3), weight_std=2**0.5), RELU] * 3, lg.GlobalAvgPool(), lg.Dense()
)  # fmt: skip
LEAST = 0.1  # seconds on the device below which the CPU is waited for


def samples(shape: tuple[int, ...], seed: int, dtype: Any) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(count: int, seed: int, dtype: Any, param: Any, lr: float, steps: int) -> lg.Run:
    x = samples((count, 16), seed, dtype)
    data = lg.Dataset(x, np.sign(x[:, 0]))
    return lg.Run(lg.mlp(2, "tanh"), param, data, optimizer=lg.gd(lr), steps=steps)


def kernel(net: Any, shape: tuple[int, ...]) -> Callable[[int, Any], Any]:
    return lambda seed, dtype: lg.ntk_kernel(net, samples(shape, seed, dtype))


def mean_field(count: int, steps: int, particles: int) -> Callable[[int, Any], Any]:
    def call(seed: int, dtype: Any) -> Any:
        given = run(count, seed, dtype, lg.mean_field(1.0), 0.5, steps)
        options: dict[str, Any] = {"replicates": 4, "particles": particles, "progress": False}
        return lg.solve(given, theory="mean field, deep", **options).f_train

    return call


def ensemble(width: int, seeds: int, count: int, steps: int) -> Callable[[int, Any], Any]:
    def call(seed: int, dtype: Any) -> Any:
        given = run(count, seed, dtype, lg.ntk(), 0.5, steps)
        return lg.train(given, width, seeds, seed, progress=False).f_train

    return call


def posterior(count: int) -> Callable[[int, Any], Any]:
    def call(seed: int, dtype: Any) -> Any:
        x = samples((count + 100, 16), seed, dtype)
        given = lg.posterior(MLP, x[:count], np.sin(x[:count, 0]), noise=0.1)
        return given.predict(x[count:]).mean

    return call


def tangent(seed: int, dtype: Any) -> Any:
    rng = np.random.default_rng(seed)
    weights = [
        rng.standard_normal(shape).astype(dtype) / 8 for shape in ((16, 64), (64, 64), (64,))
    ]

    def network(weights: list[Any], x: Any) -> Any:
        first, second, last = weights
        return jnp.tanh(jnp.tanh(x @ first) @ second) @ last

    return lg.networks.ntk_of_function(
        network, weights, rng.standard_normal((20, 16)).astype(dtype)
    )


# The calls whose numbers are compared, and for each size of the table those that are timed.
NUMBERS = {
    "kernel of a fully connected network": kernel(MLP, (50, 16)),
    "kernel of a convolutional network": kernel(CNN, (4, 8, 8, 3)),
    "kernel by integrals (tanh)": kernel(lg.mlp(3, "tanh"), (50, 16)),
    "posterior": posterior(100),
    "NTK of a finite network": tangent,
}
SPEEDS = {
    False: {
        "kernel, 3 layers of relu, 5000 samples": kernel(MLP, (5000, 16)),
        "kernel, 3 layers of relu, 20 000 samples": kernel(MLP, (20_000, 16)),
        "kernel, 3 layers of tanh, 2000 samples": kernel(lg.mlp(3, "tanh"), (2000, 16)),
        "kernel, 3 convolutions, 100 images of 16 × 16": kernel(CNN, (100, 16, 16, 3)),
        "posterior, 5000 samples": posterior(5000),
        "mean field, 2 layers, 16 samples, 40 steps": mean_field(16, 40, 1024),
        "64 networks of width 512, 100 samples, 200 steps": ensemble(512, 64, 100, 200),
    },
    True: {
        "kernel, 3 layers of relu, 500 samples": kernel(MLP, (500, 16)),
        "kernel, 3 convolutions, 4 images of 8 × 8": kernel(CNN, (4, 8, 8, 3)),
        "4 networks of width 64, 16 samples, 20 steps": ensemble(64, 4, 16, 20),
    },
}


def seconds(call: Callable[[int, Any], Any], seed: int, dtype: Any) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call(seed, dtype))
    return time.perf_counter() - begin


def distance(found: Any, wanted: Any) -> float:
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def accuracy(until: float) -> list[dict[str, Any]]:
    """Return the rows of numbers: the device against the CPU in float64."""
    rows = []
    for name, call in NUMBERS.items():
        if time.perf_counter() > until:
            break
        with jax.default_device(jax.devices("cpu")[0]):
            wanted = call(0, np.float64)
        of = {t: distance(call(0, t), wanted) for t in (np.float32, np.float64)}
        rows.append({"call": name, **{t.__name__: size for t, size in of.items()}})
        print(f"{name}: {rows[-1]['float32']:.1e}, {rows[-1]['float64']:.1e}", flush=True)
    return rows


def speeds(small: bool, until: float) -> list[dict[str, Any]]:
    """Return the rows of seconds, as many as there is time for."""
    rows, cpu = [], jax.devices("cpu")[0]
    for name, call in SPEEDS[small].items():
        for dtype in (np.float32, np.float64):
            if time.perf_counter() > until:
                return rows
            row: dict[str, Any] = {"call": name, "dtype": dtype.__name__}
            try:
                row |= {"first": seconds(call, 0, dtype), "again": seconds(call, 1, dtype)}
                if jax.devices()[0] != cpu and row["again"] < LEAST:
                    with jax.default_device(cpu):
                        seconds(call, 0, dtype)
                        row["again on the CPU"] = seconds(call, 1, dtype)
            except (LargenError, RuntimeError) as failure:  # the other rows are worth having
                row["failed"] = str(failure).partition("\n")[0]
            rows.append(row)
            print(*(f"{key}: {value}" for key, value in row.items()), sep=", ", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=KEPT)
    parser.add_argument("--small", action="store_true", help="small problems")
    parser.add_argument("--seconds", type=float, default=220, help="no row starts after them")
    chosen = parser.parse_args()
    until = time.perf_counter() + chosen.seconds
    device = jax.devices()[0]
    versions = {"largen": lg.__version__, "jax": jax.__version__}
    print(f"{device.device_kind} ({device.platform})", flush=True)
    found = {
        "device": device.device_kind,
        "platform": device.platform,
        "versions": versions,
        "numbers": accuracy(until),
        "speeds": speeds(chosen.small, until),
    }
    chosen.file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
