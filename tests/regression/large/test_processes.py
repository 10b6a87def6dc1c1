"""Products that the processes of jax.distributed share: two and four on one machine.

Blocks that divide the samples and that do not, more of them than processes and fewer, devices,
masks and precisions all give the product with the whole kernel of one process.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.regression.large import on_processes
from tests.regression.large.on_processes import NEVER_STORED, NOISE, ON_DISK, SAMPLES, name_of

import largen as lg
from largen.regression.large.processes import (
    any_of_processes,
    check_agreement,
    own_parts,
    sum_over_processes,
)


def free_port():
    with socket.socket() as place:
        place.bind(("localhost", 0))
        return place.getsockname()[1]


def together(folder, count):
    """Run the program in so many processes; return what each has saved and printed."""
    port, script = str(free_port()), on_processes.__file__
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    places = {"PYTHONPATH": str(Path(lg.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(me), str(count), port, str(folder)],
            env=os.environ | places | {"XLA_FLAGS": flags},
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


@pytest.fixture(scope="module")
def dense():
    """Return the kernels and targets, computed as a whole in this process."""
    found = {}
    for case, dtype, _ in ON_DISK:
        net, x, masks, y = on_processes.system(case, dtype)
        found[case, dtype] = lg.ntk_kernel(net, x, **masks), y
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
def test_processes_multiply_and_solve_as_one_does(tmp_path, dense, count):
    for cell in ON_DISK:
        zarr.create_array(
            tmp_path / name_of(cell), data=dense[cell[:2]][0], chunks=(min(cell[2], SAMPLES),) * 2
        )
    if count == 1:
        found = [on_processes.results(tmp_path)]
    else:
        found, said = together(tmp_path, count)
        for each, out in zip(found, said, strict=True):
            assert each["any"].tolist() == [True, False]
            assert "different systems" in out
            assert "some belong to other processes" in out
    for cell in ON_DISK + NEVER_STORED:
        kernel, y = dense[tuple(cell[:2])]
        want, (first, *others) = kernel @ y, (each[name_of(cell)] for each in found)
        rtol = 1e-6 if cell in NEVER_STORED and cell[1] == "float32" else 1e-13  # computed anew
        np.testing.assert_allclose(first, want, atol=rtol * np.abs(want).max())
        for other in others:
            np.testing.assert_array_equal(first, other)
    for cell in ON_DISK:  # each process has read its own part of the rows
        begins = range(0, SAMPLES, min(cell[2], SAMPLES))
        for me, each in enumerate(found):
            assert each[f"rows-{name_of(cell)}"].tolist() == list(begins[me::count])
    kernel, y = dense["vectors", "float64"]
    want = np.linalg.solve(kernel + NOISE * np.eye(SAMPLES), y)
    for each in found:
        np.testing.assert_allclose(each["stored"], want, rtol=1e-9)
        np.testing.assert_allclose(each["never"], want, atol=1e-6)
        np.testing.assert_array_equal(each["never"], found[0]["never"])


def test_one_process_has_all_parts():
    part = np.array([1.0, 1e-300])
    np.testing.assert_array_equal(sum_over_processes(part), part)
    assert own_parts(range(5)) == range(5)
    assert (any_of_processes(True), any_of_processes(False)) == (True, False)
    check_agreement("shared", "system", part)
    x = np.linspace(-1, 1, 20)[:, None]
    kernel = lg.nngp_kernel(lg.mlp(1, "erf", bias_std=1.0), x)
    alone, shared = (
        lg.regression.large.solve_kernel(kernel, x[:, 0], noise=1e-2, rank=3, shared=flag)
        for flag in (False, True)
    )
    np.testing.assert_array_equal(alone.weights, shared.weights)
