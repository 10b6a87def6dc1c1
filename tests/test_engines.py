"""Sweeps and stored kernels on joblib's engines: processes of this machine, Dask, Ray.

Dask and Ray are started here, with two workers; what is not installed is left out.
"""

import os
import pickle
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from joblib import parallel_config

import largen as lg
from largen.errors import DamagedFile, NoRule
from largen.jobs import results_of
from largen.sweeps import sweep
from largen.sweeps.tasks import digits_task
from largen.transfer.torch.models import ResidualMLP

X = np.random.default_rng(4).normal(size=(60, 3))
GRID = {"lrs": [2**-6, 2**-3], "base": (8, 2), "widths": [8, 16], "schemes": ["mup"], "seeds": 2}


@contextmanager
def loky():
    """Processes of this machine, joblib's default."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    yield TerminatedWorkerError


@contextmanager
def dask():
    """A Dask cluster, which starts a killed worker again and repeats what it was at."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        yield None


@contextmanager
def ray():
    """A Ray cluster."""
    cluster = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    register_ray()
    cluster.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        yield cluster.exceptions.ActorDiedError
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module", params=[loky, dask, ray])
def engine(request):
    with request.param() as error, parallel_config(backend=request.param.__name__):
        yield SimpleNamespace(error_of_killed=error)


@pytest.mark.slow
def test_sweeps_are_those_of_one_process(engine):
    task = digits_task(steps=12, batch_size=16)
    here = sweep(ResidualMLP, task, **GRID)
    there = sweep(ResidualMLP, task, jobs=2, **GRID)
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
            lg.stored_kernel(tmp_path / "two", **call)
    log.write_text("")
    two = lg.stored_kernel(tmp_path / "two", **call, progress=lambda *counts: seen.append(counts))
    one = lg.stored_kernel(tmp_path / "one", net, X, block=15)
    assert seen[-1] == (10, 10)
    for name in ("nngp", "ntk"):
        np.testing.assert_array_equal(two[name][:], one[name][:])
    assert max(Counter(log.read_text().split()).values()) < 30  # 50 if it were for each block


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
