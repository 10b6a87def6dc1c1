"""CIFAR-10 by a Myrtle-like convolutional kernel, stored block by block and resumed.

    python benchmarks/myrtle.py cifar10_8x8.npz --folder kernels --train 1000 --test 500

The file has arrays ``x_train``, ``y_train``, ``x_test``, ``y_test`` of colour images; the first
ones are taken. The network is that of Shankar et al. (arXiv:2003.02237) with fewer layers, for
small images: convolutions of window 3, relu, and averages of 2 × 2 positions in between, then a
global average. Kernels of training and of test images are Zarr groups in ``--folder``: a call that
was interrupted goes on where it stopped. Predictions are means of Gaussian processes with the NNGP
and the NTK as covariance, beside those of a fully connected network on the same images.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import largen as lg

CRITICAL, RELU = {"weight_std": 2**0.5, "bias_std": 0.1}, lg.Activation("relu")
BLOCK = [lg.Conv((3, 3), **CRITICAL), RELU]
POOL = lg.layers.AvgPool((2, 2))
NETWORKS = {
    "fully connected": lg.serial(lg.Flatten(), *[lg.Dense(**CRITICAL), RELU] * 3, lg.Dense()),
    "Myrtle-like": lg.serial(
        *BLOCK, *BLOCK, POOL, *BLOCK, POOL, *BLOCK, lg.GlobalAvgPool(), lg.Dense()
    ),
}
HEAD = ("network", "kernel", "train", "test", "right", "blocks", "µs of a pair", "wall-clock s")
BLOCK_OF = 125  # samples


def load(path, train, test):
    with np.load(path) as data:
        x, x_test = (data[k].astype(np.float32) for k in ("x_train", "x_test"))
        y, y_test = data["y_train"], data["y_test"]
    mean, std = x.mean((0, 1, 2)), x.std((0, 1, 2))
    x, x_test = (x - mean) / std, (x_test - mean) / std
    return x[:train], y[:train].ravel(), x_test[:test], y_test[:test].ravel()


def stored(folder, net, *x):
    """Return NNGP and NTK, the number of blocks computed and stored before, and processor time."""
    seen, begin = [], time.process_time()

    def note(done, total):
        seen.append((done, total, time.process_time()))
        print(f"    {done} of {total} blocks", flush=True)

    group = lg.regression.large.stored_kernel(folder, net, *x, block=BLOCK_OF, progress=note)
    total, every = seen[0][1], len(seen)
    return group, (every - (seen[0][0] > 1), total), time.process_time() - begin


def rows(name, x, y, x_test, y_test, folder):
    """Yield the rows of a network."""
    net, begin = NETWORKS[name], time.perf_counter()
    lg.kernel(net, x[:BLOCK_OF], x[-BLOCK_OF:])  # compiles
    lg.kernel(net, x[:BLOCK_OF])
    place = name.replace(" ", "-") + f"-{len(x)}"
    own, (fresh, total), cpu = stored(folder / place, net, x)
    cross, (fresh_test, total_test), cpu_test = stored(
        folder / f"{place}-test-{len(x_test)}", net, x_test, x
    )
    pairs = fresh / total * len(x) * (len(x) + 1) / 2 + fresh_test / total_test * len(x) * len(
        x_test
    )
    each = f"{(cpu + cpu_test) / pairs * 1e6:.1f}" if fresh + fresh_test else ""
    for kind in ("nngp", "ntk"):
        matrix = own[kind][:].astype(np.float64)
        noise = 1e-3 * np.mean(np.diagonal(matrix))
        found = lg.regression.posterior_from_kernel(matrix, np.eye(10)[y] - 0.1, noise=noise)
        mean = found.predict(cross[kind][:].astype(np.float64)).mean
        share = np.mean(np.argmax(mean, axis=1) == y_test)
        error = (share * (1 - share) / len(x_test)) ** 0.5
        wall = time.perf_counter() - begin
        right, blocks = (
            f"{share:.3f} ± {error:.3f}",
            f"{fresh + fresh_test} of {total + total_test}",
        )
        yield (name, kind, len(x), len(x_test), right, blocks, each, f"{wall:.0f}")


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="a .npz file with images")
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--folder", type=Path, required=True, help="where the kernels are stored")
    parser.add_argument("--output", type=Path, help="a CSV file for the table")
    given = parser.parse_args()
    sets = load(given.data, given.train, given.test)
    found: list[tuple[object, ...]] = [HEAD]
    for name in NETWORKS:
        for row in rows(name, *sets, given.folder):
            print(" | ".join(map(str, row)), flush=True)
            found.append(row)
    if given.output:
        with given.output.open("w", newline="") as file:
            csv.writer(file).writerows(found)


if __name__ == "__main__":
    main()
