"""Sweeps and stored kernels on joblib's engines: processes of this machine, Dask, Ray.

Dask and Ray are started here, with two workers; what is not installed is left out.
"""

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from joblib import parallel_config

import largen as lg
from examples.models import ResidualMLP
from examples.tasks import digits_task
from largen.errors import CannotWrite, DamagedFile, NoRule
from largen.jobs import results_of
from largen.sweeps import Grid, sweep

X = np.random.default_rng(4).normal(size=(60, 3))
GRID = Grid(lrs=[2**-6, 2**-3], base=(8, 2), widths=[8, 16], schemes=["mup"], seeds=2)


@contextmanager
def loky():
    """Processes of this machine, joblib's default."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    yield TerminatedWorkerError, "import contextlib; engine = contextlib.nullcontext()"


@contextmanager
def dask():
    """A Dask cluster, which starts a killed worker again and repeats what it was at."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        address = cluster.scheduler_address
        yield None, f"import distributed; engine = distributed.Client({address!r})"


@contextmanager
def ray():
    """A Ray cluster."""
    cluster = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    register_ray()
    cluster.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        address = cluster.get_runtime_context().gcs_address
        yield (
            cluster.exceptions.ActorDiedError,
            "from ray.util.joblib import register_ray; register_ray(); "
            f"import ray; engine = ray.init(address={address!r}, log_to_driver=False)",
        )
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module", params=[loky, dask, ray])
def engine(request):
    name = request.param.__name__
    with request.param() as (error, connect), parallel_config(backend=name):
        yield SimpleNamespace(name=name, error_of_killed=error, connect=connect)


@pytest.mark.slow
def test_sweeps_are_those_of_one_process(engine):
    task = digits_task(steps=12, batch_size=16)
    here = sweep(ResidualMLP, task, GRID)
    there = sweep(ResidualMLP, task, GRID, jobs=2)
    np.testing.assert_allclose(there.data["loss"], here.data["loss"], rtol=1e-4)


@pytest.mark.slow
def test_a_killed_worker_loses_its_block_only(engine, tmp_path):
    """Of a network with a function that is known by its code, which each worker compiles once."""
    mark, log, main = tmp_path / "mark", tmp_path / "log", os.getpid()

    def activation(x):
        if os.getpid() != main:
            with log.open("a") as file:
                file.write(f"{os.getpid()}\n")
            if not mark.exists():  # the first worker that compiles ends at once
                mark.touch()
                os._exit(9)
        return jnp.tanh(x)

    net, seen = lg.mlp(1, activation), []
    call = {"net": net, "x1": X, "block": 15, "jobs": 2}
    if engine.error_of_killed is not None:
        with pytest.raises(engine.error_of_killed):
            lg.regression.large.stored_kernel(tmp_path / "two", **call)
    log.write_text("")
    two = lg.regression.large.stored_kernel(
        tmp_path / "two", **call, progress=lambda *counts: seen.append(counts)
    )
    one = lg.regression.large.stored_kernel(tmp_path / "one", net, X, block=15)
    assert seen[-1] == (10, 10)
    for name in ("nngp", "ntk"):
        np.testing.assert_array_equal(two[name][:], one[name][:])
    assert max(Counter(log.read_text().split()).values()) < 30  # 50 if it were for each block


KILLED = """
import os, signal
from joblib import parallel_config
{connect}

def kill_if_enough_is_done(done, total):
    if done >= {bound}:
        os.kill(os.getpid(), signal.SIGKILL)

from tests.test_engines import folder_filled
with engine, parallel_config(backend={name!r}):
    folder_filled({folder!r}, {kind!r}, kill_if_enough_is_done)
"""


def folder_filled(folder, kind, progress=None):
    """Return the arrays of a kernel of 28 blocks, or of a sweep of four cells."""
    given = {"jobs": 2, "progress": progress}
    if kind == "kernel":
        found = lg.regression.large.stored_kernel(folder, lg.mlp(1, "relu"), X, block=9, **given)
        return [found[name][:] for name in ("nngp", "ntk")]
    task, grid = digits_task(steps=12, batch_size=16), replace(GRID, widths=[8, 12, 16, 24])
    data = sweep(ResidualMLP, task, grid, checkpoint=folder, **given).data
    return [data[name].values for name in sorted(map(str, data))]


def finished(folder):
    """Return the files of finished cells or blocks, and when each was written."""
    paths = {path for path in folder.glob("**/*") if path.is_file()}

    def whole(path):
        i, j = path.parts[-2:]
        parts = ((name, "c", *at) for name in ("nngp", "ntk") for at in ((i, j), (j, i)))
        return path.suffix == ".npz" or all(folder.joinpath(*part) in paths for part in parts)

    return {path: path.stat().st_mtime_ns for path in paths if whole(path)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "bound", "files"), [("kernel", 3, 98), ("sweep", 200, 4)])
def test_a_killed_driver_loses_what_was_not_finished(engine, tmp_path, kind, bound, files):
    """The same call computes the rest, and finds the same numbers to the bit."""
    folder = tmp_path / "killed"
    program = KILLED.format(
        connect=engine.connect, name=engine.name, folder=str(folder), kind=kind, bound=bound
    )
    places = Path(lg.__file__).parents[1], Path(__file__).parents[1]
    driver = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
    )
    assert driver.returncode == -signal.SIGKILL
    there = finished(folder)
    assert 0 < len(there) < files
    found = folder_filled(folder, kind)
    now = finished(folder)
    assert len(now) == files
    assert {path: now[path] for path in there} == there  # none was written again
    for mine, theirs in zip(found, folder_filled(tmp_path / "other", kind), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_a_disk_that_fills_up_is_told_by_its_worker_and_gone_on_with(engine, tmp_path):
    full, folder, main = tmp_path / "full", tmp_path / "kernel", os.getpid()
    full.touch()
    flush = os.fsync

    def flush_if_there_is_room(descriptor):
        if full.exists() and len(finished(folder)) >= 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(descriptor)

    def activation(x):  # called once in each worker, which compiles
        if os.getpid() != main:
            os.fsync = flush_if_there_is_room
        return jnp.tanh(x)

    net = lg.mlp(1, activation)
    with pytest.raises(CannotWrite, match=f"cannot write '{folder}.*No space left"):
        lg.regression.large.stored_kernel(folder, net, X, block=15, jobs=2)
    there = finished(folder)
    full.unlink()
    found = lg.regression.large.stored_kernel(folder, net, X, block=15, jobs=2)
    now = finished(folder)
    assert len(there) < len(now) == 32
    assert {path: now[path] for path in there} == there
    assert not list(folder.glob("**/*.part"))
    for name, want in lg.kernel(net, X)._asdict().items():
        np.testing.assert_allclose(found[name][:], want, atol=1e-14)


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_a_sweep_that_goes_on_later(engine, tmp_path, monkeypatch):
    flush = os.fsync

    def flush_if_there_is_room(descriptor):
        if len(finished(tmp_path)) >= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flush_if_there_is_room)
        with pytest.raises(CannotWrite, match=f"cannot write '{tmp_path}.*No space left"):
            folder_filled(tmp_path, "sweep")
    there = finished(tmp_path)
    assert len(there) == 2
    folder_filled(tmp_path, "sweep")
    now = finished(tmp_path)
    assert len(now) == 4
    assert {path: now[path] for path in there} == there


def _refuse(kind):
    raise {"rule": NoRule("the kernel", lg.Dense(), {lg.Conv: 1}),
           "damage": DamagedFile("cell.npz", "its end is missing")}[kind]  # fmt: skip


def test_errors_come_from_other_processes_as_they_were_raised():
    for kind, error in (("rule", NoRule), ("damage", DamagedFile)):
        with pytest.raises(error) as here:
            list(results_of([(_refuse, (kind,))], jobs=1))
        there = pickle.loads(pickle.dumps(here.value))
        assert str(there) == str(here.value)
        assert type(there) is error
