"""Runs against their forecast: calibrated distances, planted faults, callbacks, logs, commands."""

import csv
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from tests.sweeps.test_forecast import RATES, SIZES, TARGET
from typer.testing import CliRunner

import largen as lg
from largen.cli.app import app
from largen.errors import InvalidInput, WrongRun
from largen.sweeps import Pilots, forecast

RIGHT = RATES[1]


def pilots_of(steps, key=0, seeds=8):
    """Return pilots of the law 1/n on common batches, and the loss of one network of the target."""
    draw = np.random.default_rng(key)
    batches = 0.2 * draw.normal(size=steps)  # what all runs share

    def run(n, *shape):
        own = draw.normal(size=(*shape, steps)) * 0.3 / math.sqrt(n)
        return 2 + 3 / n + batches + own

    return [run(n, 3, seeds) for n in SIZES], run(TARGET)


@pytest.fixture(scope="module")
def told():
    losses, run = pilots_of(100)
    return forecast(SIZES, losses, RATES[:3], TARGET), run


def test_distances_are_those_of_a_normal_number():
    """Of the widest size itself the law has no error, and the scatter is known from few seeds."""
    found = []
    for key in range(60):
        draw = np.random.default_rng(key)
        losses = [2 + draw.normal(size=(2, 3, 9)) / math.sqrt(n) for n in SIZES]
        wide = Pilots(SIZES, losses, RATES[:2]).forecast(SIZES[-1], draws=2, throw=False)
        run = 2 + draw.normal(size=9) / math.sqrt(SIZES[-1])
        found.append(wide.monitor(run, RATES[1]).z)
    assert kstest(np.ravel(found), "norm").pvalue > 1e-3


def test_right_runs_raise_no_alarm_and_others_do():
    """In 1000 windows of 50 runs: the alarm's size is one in 16 000 for a normal number."""
    alarms = 0
    for key in range(50):
        losses, run = pilots_of(200, key, seeds=6)
        wide = Pilots(SIZES, losses, RATES[:3]).forecast(TARGET, draws=2, throw=False)
        found = wide.monitor(run, RIGHT)
        assert len(found.z) == 20
        alarms += found.alarm is not None
        assert "as foretold in 20 windows up to step 200 of 200" in str(found)
        wrong = wide.monitor(np.where(np.arange(200) < 100, run, run + 0.3), RIGHT)
        assert wrong.alarm == 110
        assert "at step 110 of 200 the loss is" in wrong.verdict
        assert "above its forecast" in wrong.verdict
    assert alarms == 0


def test_batches_that_are_shared_cancel(told):
    """The scatter of batches is ten times that of a network, and is not in the errors."""
    wide, _ = told
    assert wide.data["watch_error"].max() < 0.1 * 0.2


def test_histories_are_arrays_tables_or_files(told, tmp_path):
    wide, run = told
    wanted = wide.monitor(run, RIGHT)
    steps = np.arange(1, 101)
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([("step", "eval", "loss"), *[(t, "", x) for t, x in enumerate(run, 1)]])
    for history in ({"step": steps, "loss": run}, path, str(path), run.tolist()):
        np.testing.assert_allclose(wide.monitor(history, RIGHT).z, wanted.z)
    # Means of five steps each, as trainers log them; of 25, windows are taken together.
    for every, ends in ((5, list(range(10, 101, 10))), (25, [50, 100])):
        means = run.reshape(-1, every).mean(1)
        found = wide.monitor(means, RIGHT, steps[every - 1 :: every]).data
        assert found["window"].values.tolist() == ends
        np.testing.assert_allclose(found["loss"][-1], run[ends[-2] :].mean())
    assert wide.monitor(run[:37], RIGHT).data["window"].values.tolist() == [10, 20, 30]
    for wrong, words in (
        ((run[:9], RIGHT), "history: no window"),
        ((run, 1.0), "lr: wanted a rate among"),
        (({"step": steps[::-1], "loss": run}, RIGHT), "steps: wanted integers"),
        ((run, RIGHT, [1, 2]), "steps: wanted 100"),
    ):
        with pytest.raises(InvalidInput, match=words):
            wide.monitor(*wrong)


def test_runs_that_diverge_are_found(told):
    wide, run = told
    found = wide.monitor(np.where(np.arange(100) < 33, run, np.nan), RIGHT)
    assert found.alarm == 40
    assert "not finite" in found.verdict


def test_between_two_rates_the_forecast_is_interpolated():
    """Of losses that are parabolas in log₂ of the rate, exactly."""
    x = np.log2(RATES)
    losses = [
        (2 + 3 / n + 0.05 * (x + 6) ** 2)[:, None, None]
        + np.random.default_rng(int(n)).normal(size=(5, 8, 20)) * 1e-6
        for n in SIZES
    ]
    wide = forecast(SIZES, losses, RATES, TARGET)
    for at in (-7.5, -6.3, -4.1):
        run = np.full(20, 2 + 3 / TARGET + 0.05 * (at + 6) ** 2)
        found = wide.monitor(run, 2.0**at)
        np.testing.assert_allclose(found.data["forecast"], run[:2], atol=1e-4)
        assert found.alarm is None
    # Its error is that of a straight line at most.
    assert 1e-4 < wide.monitor(run, 2.0**-6.3).data["error"].max() < 0.02


def test_a_callback_sees_what_the_monitor_sees(told):
    wide, run = told
    watch = wide.watch(RIGHT)
    seen = [watch(torch.tensor(loss)) for loss in run]
    wanted = wide.monitor(run, RIGHT)
    np.testing.assert_allclose([z for z in seen if z is not None], wanted.z, atol=1e-4)
    np.testing.assert_allclose(watch.monitored().z, wanted.z, atol=1e-4)
    assert watch.alarmed is None
    other = wide.watch(RIGHT)
    assert [other(loss) for loss in run[:9]] == [None] * 9
    with pytest.warns(WrongRun, match="at step 10 of 100 the loss is"):
        other(run[9] + 5)
    assert other.alarmed == 10
    with warnings.catch_warnings():  # it warns once
        warnings.simplefilter("error")
        for loss in run[10:20]:
            other(loss + 5)


def test_the_trainer_of_hugging_face_is_answered(told):
    """As its callback handler does: every event by its name, with what it passes."""
    wide, run = told
    watch, control = wide.watch(RIGHT, stop=True), SimpleNamespace(should_training_stop=False)

    def event(name, step, **more):
        return getattr(watch, name)(
            SimpleNamespace(), SimpleNamespace(global_step=step), control, model=None, **more
        )

    assert event("on_init_end", 0) is None
    event("on_train_begin", 0)
    for step in range(5, 55, 5):
        event("on_step_end", step)
        event("on_log", step, logs={"loss": float(run[step - 5 : step].mean()), "epoch": 1})
        event("on_log", step, logs={"eval_loss": 9.0})
    np.testing.assert_allclose(watch.monitored().z, wide.monitor(run[:50], RIGHT).z)
    assert not control.should_training_stop
    with pytest.warns(WrongRun):
        event("on_log", 60, logs={"loss": 5.0})
    assert control.should_training_stop
    # From a checkpoint, windows that were not seen as a whole are not judged.
    later = wide.watch(RIGHT)
    later.on_train_begin(None, SimpleNamespace(global_step=25), control)
    for step in range(30, 55, 5):
        later.on_log(
            None, SimpleNamespace(global_step=step), control, {"loss": run[step - 5 : step].mean()}
        )
    assert [row[0] for row in later._tell.rows] == [40, 50]


def test_the_trainer_of_lightning_is_answered(told):
    wide, run = told
    watch = wide.watch(RIGHT, stop=True)
    trainer = SimpleNamespace(global_step=0, accumulate_grad_batches=2, should_stop=False)
    assert watch.setup(trainer, None, stage="fit") is None
    watch.on_train_start(trainer, None)
    for step in range(50):
        for half in (0.5, -0.5):
            trainer.global_step = step + (half < 0)
            part = torch.tensor(
                (run[step] + half) / 2
            )  # Lightning divides by the batches of a step
            watch.on_train_batch_end(trainer, None, {"loss": part}, None, 0)
    np.testing.assert_allclose(watch.monitored().z, wide.monitor(run[:50], RIGHT).z, atol=1e-3)
    assert watch.state_dict() == {}
    assert not trainer.should_stop
    with pytest.raises(AttributeError):
        getattr(watch, "something")  # noqa: B009


def test_commands_forecast_and_monitor(told, tmp_path):
    losses, run = pilots_of(100)
    pilots, log, wide = (tmp_path / name for name in ("pilots.csv", "log.csv", "wide.nc"))
    with pilots.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("d_model", "lr", "seed", "step", "loss"))
        for n, a in zip(SIZES, losses, strict=True):
            for i, j, t in np.ndindex(a.shape):
                writer.writerow((n, RATES[i], j, t + 1, a[i, j, t]))
    lines = [f"{t + 1},{loss}" for t, loss in enumerate(run)]
    log.write_text("\n".join(["step,loss", *lines]))

    def invoke(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    ran = invoke("forecast", pilots, "--size", TARGET, "-c", "size=d_model", "--save", wide)
    assert ran.exit_code == 0, ran.output
    assert "forecast of loss for size 512 from 32, 64, 128" in ran.output
    assert str(lg.load(wide)) == str(told[0])
    ran = invoke("monitor", wide, log, "--lr", RIGHT, "--plot", tmp_path / "run.png")
    assert ran.exit_code == 0, ran.output
    assert "as foretold in 10 windows" in ran.output
    assert (tmp_path / "run.png").stat().st_size > 2000
    log.write_text("\n".join(["step,loss", *lines[:20], "21,9", *lines[21:]]))
    ran = invoke("monitor", wide, log, "--lr", RIGHT)
    assert ran.exit_code == 1
    assert "at step 30 of 100" in ran.output
    assert invoke("forecast", pilots, "--size", TARGET).exit_code == 2
    assert invoke("monitor", log, log, "--lr", RIGHT).exit_code == 2
