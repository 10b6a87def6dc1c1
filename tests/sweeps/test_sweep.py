"""Sweeps: what they return, that they resume, and that they say what they cannot do."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import SequentialBackend

from examples.models import ResidualMLP
from examples.tasks import digits_task, teacher_task
from largen.errors import InvalidInput
from largen.sweeps import Grid, Sweep, Task, sweep
from largen.sweeps.cells import Protocol
from largen.sweeps.store import Store
from largen.transfer import Hints

TASK = digits_task(steps=12, batch_size=16)
GRID = Grid(lrs=[2**-6, 2**-3, 4.0], base=(8, 2), widths=[8, 16], depths=[2, 4], schemes=["mup"])
TWO_SCHEMES = replace(GRID, schemes=["mup", "depth_mup"], seeds=2)


@pytest.fixture(scope="module")
def found():
    return sweep(ResidualMLP, TASK, TWO_SCHEMES)


def test_axes_and_values(found):
    loss = found.data["loss"]
    assert dict(loss.sizes) == {
        "scheme": 2, "width": 2, "depth": 2, "seed": 2, "lr": 3,
    }  # fmt: skip
    assert found.data["loss_train"].sizes["step"] == 12
    assert (loss.sel(lr=4.0) > 2.0).all()  # diverged, or all units dead
    assert np.isfinite(loss.sel(lr=2**-6)).all()
    # At the base, schemes agree.
    at = loss.sel(width=8, depth=2)
    np.testing.assert_array_equal(at.isel(scheme=0), at.isel(scheme=1))
    assert "best log2 rate" in str(found)


def test_drift_and_transferred_loss_are_those_of_the_surface(found):
    best = found.best()
    drift = found.drift("depth").isel(depth=1, width=0).values
    trains = best["trains"].isel(width=0).all("depth").values
    np.testing.assert_array_equal(np.isfinite(drift), trains)
    moved = found.transferred()
    for scheme in ("mup", "depth_mup"):
        lr = float(moved["lr"].sel(scheme=scheme))
        here = found.data["loss"].sel(scheme=scheme, width=16, depth=4, lr=lr).mean("seed")
        assert float(moved["transferred"].sel(scheme=scheme, width=16, depth=4)) == float(here)
    assert (moved["ratio"] >= 1).all()


def test_made_up_surface():
    x = np.arange(-5.0, 1.0)
    centre = xarray.DataArray([[-3.0, -3.0], [-3.0, -1.5]], dims=("width", "depth"))
    loss = np.exp((xarray.DataArray(x, dims="lr") - centre) ** 2) * 0.01
    loss = loss.expand_dims(scheme=["made up"], seed=[0])
    loss = loss.assign_coords(width=[8, 16], depth=[1, 2], lr=2.0**x)
    made = Sweep(xarray.Dataset({"loss": loss, "margin_error": 0 * loss}, attrs={"chance": 1.0}))
    np.testing.assert_allclose(made.drift("depth").sel(depth=2).squeeze(), [0.0, 1.5])
    np.testing.assert_allclose(made.drift("width").sel(width=16).squeeze(), [0.0, 1.5])
    ratio = float(made.transferred()["ratio"].sel(width=16, depth=2).squeeze())
    assert ratio == pytest.approx(np.exp(1.5**2 - 0.5**2))
    with pytest.raises(InvalidInput, match="along"):
        made.drift("seed")
    # What was not run leaves a gap; it does not count as untrainable.
    made.data["loss"].loc[{"width": 16, "depth": 2}] = np.nan
    assert str(made).count("×") == 1  # below the table, where it is explained
    made.data["loss"].loc[{"width": 16, "depth": 2}] = np.inf
    assert str(made).count("×") == 2


def test_the_error_kept_is_that_of_the_distance_from_the_best_constant_answer():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, (40, 2))  # two positions a sample, three classes
    task = Task(np.zeros((40, 1)), y, batch_size=4)
    share = np.array([(y == c).mean() for c in range(3)])
    constant = np.array([[-np.log(share[c]) for c in row] for row in y]).mean(1)
    assert task.chance == pytest.approx(-(share * np.log(share)).sum())
    each = np.stack([constant + draw.normal(size=40), np.full(40, np.inf)])
    error = np.std(each[0] - constant, ddof=1) / 40**0.5
    np.testing.assert_allclose(task.margin_error(each), [error, np.inf])
    targets = draw.normal(size=(40, 2))
    task = Task(np.zeros((40, 1)), targets, "mse", batch_size=4)
    assert task.chance == pytest.approx(targets.var(0).mean())


def test_a_folder_tells_models_and_options_by_what_they_do(tmp_path):
    """Two lambdas, two ways to apply, and a global have one name and two results."""
    task = Task(np.ones((16, 4), "float32"), np.arange(16) % 2, batch_size=8, steps=3)

    def init(key, width, depth):
        return [jax.random.normal(key, (4, width)), jnp.ones((width, 2)) / width]

    def swept(make_model, apply, **options):
        return sweep(
            make_model, task, Grid(lrs=[0.1], base=(4, 1), schemes=["mup"]), checkpoint=tmp_path,
            apply=apply,
            **options,
        )  # fmt: skip

    def loss(gain=1.0, **options):
        apply = lambda p, x: gain * jnp.tanh(x @ p[0]) @ p[1]  # noqa: E731
        found = swept(init, apply, layout="in_out", **options)
        return float(found.data["loss"].squeeze())

    first = loss()
    assert len(list(tmp_path.iterdir())) == 1
    assert loss() == first
    assert len(list(tmp_path.iterdir())) == 1
    assert abs(loss(3.0) - first) > 1e-3
    assert len(list(tmp_path.iterdir())) == 2
    loss(hints=Hints(attention={}))
    assert len(list(tmp_path.iterdir())) == 3
    # Functions that cannot be told apart are refused, unless the user names them.
    lock = threading.Lock()

    def untold(key, width, depth):
        with lock:
            return init(key, width, depth)

    def apply(p, x):
        return jnp.tanh(x @ p[0]) @ p[1]

    with pytest.raises(InvalidInput, match=r"make_model: .*'lock'.*pass identity="):
        swept(untold, apply, layout="in_out")
    swept(untold, apply, layout="in_out", identity="one")
    assert len(list(tmp_path.iterdir())) == 4
    swept(untold, apply, layout="in_out", identity="one")
    assert len(list(tmp_path.iterdir())) == 4


def test_the_picture(found):
    assert len(found.plot().axes) == 2


def test_what_is_on_disk_is_not_trained_again(tmp_path, monkeypatch):
    first = sweep(ResidualMLP, TASK, GRID, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == 4
    next(tmp_path.glob("*.npz")).unlink()
    trained = []
    train = Protocol.train

    def counted(self, cell, report=None):
        trained.append(cell)
        return train(self, cell, report)

    monkeypatch.setattr(Protocol, "train", counted)
    again = sweep(ResidualMLP, TASK, GRID, checkpoint=tmp_path)
    assert len(trained) == 1
    xarray.testing.assert_equal(first.data, again.data)
    # Another setting is another cell.
    sweep(ResidualMLP, TASK, replace(GRID, lrs=[2**-5]), checkpoint=tmp_path)
    assert len(trained) == 5


def test_parts_of_a_sweep_that_run_elsewhere_are_found_by_the_whole(tmp_path, monkeypatch):
    """As tasks of a job array that share a folder: cells are known by their own settings."""
    for width in GRID.widths:
        sweep(ResidualMLP, TASK, replace(GRID, widths=[width]), checkpoint=tmp_path)
    monkeypatch.setattr(Protocol, "train", None)
    there = sweep(ResidualMLP, TASK, GRID, checkpoint=tmp_path)
    assert there.data["loss"].sizes["width"] == 2


def test_what_was_finished_before_an_interruption_is_kept(tmp_path, monkeypatch):
    train, done = Protocol.train, []

    def interrupted(self, cell, report=None):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell)
        return train(self, cell, report)

    monkeypatch.setattr(Protocol, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(ResidualMLP, TASK, GRID, checkpoint=tmp_path)
    assert len(_cells(tmp_path)) == 2


def test_a_half_written_or_damaged_cell_is_no_cell(tmp_path):
    store, settings = Store.at(tmp_path), {"a": 1}
    store.save(settings, {"final": np.arange(3.0)})
    (path,) = _cells(tmp_path)
    assert store.load(settings) is not None
    assert store.load({"a": 2}) is None
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert store.load(settings) is None
    draft = tmp_path / f".{path.name}.1234.part"
    draft.write_bytes(whole[:10])
    store.save(settings, {"final": np.arange(3.0)})
    assert not draft.exists()
    np.testing.assert_array_equal(store.load(settings)["final"], np.arange(3.0))


def _long_sweep(folder):
    sweep(
        ResidualMLP,
        digits_task(steps=60, batch_size=16),
        replace(GRID, lrs=[2**-6, 2**-3], widths=[8, 12, 16, 20], depths=[2, 3, 4]),
        checkpoint=folder,
    )


@pytest.mark.slow
def test_a_killed_sweep_loses_the_cell_in_progress_at_most(tmp_path):
    """Killed at random points; every cell on disk is whole, and the end is the same."""
    draw = np.random.default_rng(0)
    context = multiprocessing.get_context("spawn")
    counts = [0]
    for _ in range(2):
        process = context.Process(target=_long_sweep, args=(tmp_path,))
        process.start()
        wanted = counts[-1] + 1 + int(draw.integers(0, 2))
        while len(_cells(tmp_path)) < wanted and process.is_alive():
            time.sleep(0.002)
        time.sleep(float(draw.uniform(0, 0.1)))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        counts.append(len(_cells(tmp_path)))
        assert counts[-1] >= min(wanted, 12)
        for path in _cells(tmp_path):
            with np.load(path) as kept:
                assert kept["losses"].shape == (2, 60)
    _long_sweep(tmp_path)
    assert len(_cells(tmp_path)) == 12


def _cells(folder: Path):
    return list(folder.glob("*.npz"))


def test_the_same_on_threads(found):
    with parallel_config(backend="threading"):
        there = sweep(ResidualMLP, TASK, TWO_SCHEMES, jobs=4)
    np.testing.assert_allclose(there.data["loss"], found.data["loss"], rtol=1e-4)


class WholeRounds(SequentialBackend):
    """Returns when all is done, as the backends for Ray and for multiprocessing do."""

    supports_return_generator = False
    started = 0

    def configure(self, *args, **kwargs):
        type(self).started += 1
        return super().configure(*args, **kwargs)


def test_the_same_where_results_come_together(found, tmp_path):
    """Workers, which take long to start, serve all rounds, and none are started for nothing."""
    WholeRounds.started = 0
    register_parallel_backend("whole rounds", WholeRounds)
    options = {"grid": TWO_SCHEMES, "jobs": 2, "checkpoint": tmp_path}
    with parallel_config(backend="whole rounds"):
        there = sweep(ResidualMLP, TASK, **options)
        assert WholeRounds.started == 1
        again = sweep(ResidualMLP, TASK, **options)
        assert WholeRounds.started == 1
    np.testing.assert_allclose(there.data["loss"], found.data["loss"], rtol=1e-4)
    np.testing.assert_array_equal(again.data["loss"], there.data["loss"])


def test_a_coarser_grid_where_networks_are_large():
    def lrs(width, depth):
        return [2**-6] if (width, depth) == (8, 4) else [] if width == 16 else [2**-6, 2**-3]

    there = sweep(ResidualMLP, TASK, replace(GRID, lrs=lrs)).data["loss"]
    assert there.sizes["width"] == 1
    assert np.isnan(there.sel(depth=4, lr=2**-3)).all()
    assert np.isfinite(there.sel(depth=2)).all()


def test_decays_and_momenta_are_axes():
    grid = Grid(
        lrs=[2**-6], base=(8, 2), schemes=["mup"], momenta=[0.0, 0.9], weight_decays=[0.0, 0.1]
    )
    there = sweep(ResidualMLP, TASK, grid, optimizer="momentum")
    loss = there.data["loss"].squeeze()
    assert dict(loss.sizes) == {"weight_decay": 2, "momentum": 2}
    assert len(np.unique(loss)) == 4
    with pytest.raises(InvalidInput, match="momenta: sgd has none"):
        sweep(ResidualMLP, TASK, grid)
    with pytest.raises(InvalidInput, match="weight_decay"):
        there.best()


def test_progress_reaches_its_end():
    seen = []
    sweep(ResidualMLP, TASK, GRID, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (1000, 1000)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"lrs": []}, "lrs"), ({"schemes": []}, "schemes"), ({"seeds": 0}, "seeds"),
     ({"lrs": [-1.0]}, "lrs"), ({"schemes": ["mupp"]}, "mup")],
)  # fmt: skip
def test_wrong_input(change, message):
    with pytest.raises(InvalidInput, match=message):
        sweep(ResidualMLP, TASK, replace(GRID, **change))


def test_tasks():
    task = teacher_task(steps=4, batch_size=8)
    seen = np.concatenate([task.batch(t)[0] for t in range(4)])
    assert len(np.unique(seen, axis=0)) == 32  # a single epoch
    assert digits_task().chance == pytest.approx(np.log(10), abs=1e-3)
    assert digits_task().digest() != digits_task(steps=10).digest()
    with pytest.raises(InvalidInput, match="batch_size"):
        Task(np.zeros((3, 1)), np.zeros(3, int), batch_size=4)


def test_models_in_jax():
    import jax
    import jax.numpy as jnp

    def init(key, width, depth):
        keys = jax.random.split(key, depth + 2)
        sizes = [(64, width), (width, 10), *[(width, width)] * depth]
        first, last, *blocks = (
            jax.random.normal(k, s) / s[0] ** 0.5 for k, s in zip(keys, sizes, strict=True)
        )
        return {"read_in": first, "blocks": [{"w": w} for w in blocks], "read_out": last}

    def apply(p, x):
        h = x @ p["read_in"]
        for block in p["blocks"]:
            h = h + jnp.maximum(h, 0) @ block["w"]
        return jnp.maximum(h, 0) @ p["read_out"]

    found = sweep(
        init,
        TASK,
        replace(GRID, lrs=[2**-6, 2**-4], widths=[], schemes=["depth_mup"]),
        apply=apply,
        layout="in_out",
        hints=Hints(branches=["blocks.*"]),
    )
    loss = found.data["loss"].squeeze()
    assert (loss < found.data.attrs["chance"] * 1.2).all()
    assert (loss.sel(lr=2**-4) < loss.sel(lr=2**-6)).all()
