"""Products that the processes of jax.distributed share, here two on one machine."""

import socket
import subprocess
import sys

import numpy as np
import pytest

import largen as lg
from largen.regression.large.processes import check_agreement, own_parts, sum_over_processes

PROGRAM = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
me, count, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
jax.distributed.initialize(f"localhost:{port}", count, me)
import numpy as np
import largen as lg
from largen.regression.large import iterative

rows, net = [], lg.mlp(1, "erf", bias_std=0.5)
x = np.random.default_rng(4).normal(size=(60, 3))
y = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1)
stored = lg.stored_kernel(f"{folder}/kernel", net, x, block=15)["nngp"]

class Counted:
    shape, chunks = stored.shape, stored.chunks
    def __getitem__(self, at):
        if isinstance(at, slice):
            rows.append(at.start)
        return stored[at]

found = lg.solve_kernel(Counted(), y, noise=1e-2, rank=0, shared=True)
never = lg.solve_kernel(
    lg.kernel_operator(net, x, kind="nngp", block=20), y, noise=1e-2, rank=10, shared=True
)
np.savez(f"{folder}/{me}.npz", stored=found.weights, rows=rows, never=never.weights)
try:
    lg.solve_kernel(stored, y + me, noise=1e-2, shared=True)
except lg.errors.InvalidInput as error:
    print(error)
"""


def free_port():
    with socket.socket() as place:
        place.bind(("localhost", 0))
        return place.getsockname()[1]


def together(folder, count):
    """Run the program in so many processes; return what each has saved and printed."""
    port = str(free_port())
    call = [sys.executable, "-c", PROGRAM]
    processes = [
        subprocess.Popen(
            [*call, str(me), str(count), port, str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for me in range(count)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), said
    return [np.load(folder / f"{me}.npz") for me in range(count)], [out for out, _ in said]


@pytest.mark.slow
def test_two_processes_solve_as_one_does(tmp_path):
    """The same bits of a matrix on disk, of whose rows each process has read its own."""
    found, said = together(tmp_path, 2)
    net = lg.mlp(1, "erf", bias_std=0.5)
    x = np.random.default_rng(4).normal(size=(60, 3))
    y = np.stack([np.sin(x[:, 0]), x[:, 1] * x[:, 2]], axis=1)
    kernel = lg.stored_kernel(tmp_path / "kernel", net, x, block=15)["nngp"]
    alone = lg.solve_kernel(kernel, y, noise=1e-2, rank=0)
    for each in found:
        np.testing.assert_array_equal(each["stored"], alone.weights)
        np.testing.assert_allclose(
            each["never"], np.linalg.solve(kernel[:] + 1e-2 * np.eye(60), y), atol=1e-5
        )
    np.testing.assert_array_equal(found[0]["never"], found[1]["never"])
    assert [sorted({*each["rows"].tolist()}) for each in found] == [[0, 30], [15, 45]]
    assert all("different systems" in out for out in said)


def test_one_process_has_all_parts():
    part = np.array([1.0, 1e-300])
    np.testing.assert_array_equal(sum_over_processes(part), part)
    assert own_parts(range(5)) == range(5)
    check_agreement("shared", "system", part)
    x = np.linspace(-1, 1, 20)[:, None]
    kernel = lg.nngp(lg.mlp(1, "erf", bias_std=1.0), x)
    alone, shared = (
        lg.solve_kernel(kernel, x[:, 0], noise=1e-2, rank=3, shared=flag) for flag in (False, True)
    )
    np.testing.assert_array_equal(alone.weights, shared.weights)
