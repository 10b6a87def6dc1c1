"""Run by test_processes.py in several processes at once, with two devices that the host pretends.

python on_processes.py NUMBER_OF_THIS_PROCESS PROCESSES PORT FOLDER
"""

import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import zarr

import largen as lg
from largen.regression.large.iterative import _times
from largen.regression.large.processes import any_of_processes

NOISE, SAMPLES = 0.1, 22
DENSE = lg.mlp(1, "erf", bias_std=0.5)
CONVOLUTION = lg.serial(lg.Conv((2,)), lg.Activation("relu"), lg.Flatten(), lg.Dense())
# Rows of blocks: five of unequal lengths, two, of which four processes have no part each, and one.
ON_DISK = list(
    itertools.product(("vectors", "sequences", "masked"), ("float32", "float64"), (5, 11, 64))
)
NEVER_STORED = [  # the number of devices comes last
    ("vectors", "float64", 5, None),
    ("vectors", "float64", 11, None),
    ("vectors", "float32", 5, 2),
    ("vectors", "float32", 11, 2),
    ("masked", "float64", 5, 2),
]


def system(case, dtype):
    """Return network, samples, masks and targets."""
    rng = np.random.default_rng(4)
    y = rng.normal(size=(SAMPLES, 2))
    if case == "vectors":
        return DENSE, rng.normal(size=(SAMPLES, 3)).astype(dtype), {}, y
    present = np.arange(3) < rng.integers(1, 4, SAMPLES)[:, None]
    masks = {"mask1": present} if case == "masked" else {}
    return CONVOLUTION, rng.normal(size=(SAMPLES, 3, 2)).astype(dtype), masks, y


def name_of(cell):
    """Return the name under which the solution is saved, and a matrix on disk."""
    return "-".join(map(str, cell))


class Counted:
    """A matrix on disk that remembers which rows were read."""

    def __init__(self, stored):
        self.stored, self.shape, self.chunks, self.rows = stored, stored.shape, stored.chunks, []

    def __getitem__(self, at):
        if isinstance(at, slice):
            self.rows.append(at.start)
        return self.stored[at]


def products(folder):
    """Return the products with the targets, and the rows that this process has read."""
    found = {}
    for case, dtype, chunk in ON_DISK:
        name = name_of((case, dtype, chunk))
        matrix = Counted(zarr.open_array(folder / name, mode="r"))
        found[name] = _times(matrix, system(case, dtype)[-1], lambda *_: None, True)
        found[f"rows-{name}"] = np.unique(matrix.rows)
    for case, dtype, block, count in NEVER_STORED:
        net, x, masks, y = system(case, dtype)
        devices = None if count is None else jax.local_devices()[:count]
        operator = lg.regression.large.kernel_operator(
            net, x, **masks, block=block, devices=devices
        )
        found[name_of((case, dtype, block, count))] = operator.times(y, shared=True)
    return found


def solutions(folder):
    """Return solutions of a system on disk and of one that is not stored."""
    net, x, _, y = system("vectors", "float64")
    stored = zarr.open_array(folder / "vectors-float64-5", mode="r")
    given = {"noise": NOISE, "shared": True}
    return {
        "stored": lg.regression.large.solve_kernel(stored, y, rank=0, rtol=1e-12, **given).weights,
        "never": lg.regression.large.solve_kernel(
            lg.regression.large.kernel_operator(net, x, block=11), y, rank=5, **given
        ).weights,
    }


def results(folder):
    """Return all that is compared with one process."""
    return products(folder) | solutions(folder)


def said_of_wrong_calls(me):
    """Print what is answered to other targets in each process, and to devices of all processes."""
    net, x, _, y = system("vectors", "float64")
    calls = (
        lambda: lg.regression.large.solve_kernel(
            lg.regression.large.kernel_operator(net, x), y + me, noise=NOISE, shared=True
        ),
        lambda: lg.regression.large.kernel_operator(net, x, devices=jax.devices()),
    )
    for call in calls:
        try:
            call()
        except lg.errors.InvalidInput as error:
            print(error)


def main():
    me, processes, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", processes, me)
    assert jax.process_count() == processes
    assert len(jax.local_devices()) == 2
    wanted = np.array([any_of_processes(me == 0), any_of_processes(False)])
    np.savez(folder / f"{me}.npz", any=wanted, **results(folder))
    said_of_wrong_calls(me)


if __name__ == "__main__":
    main()
