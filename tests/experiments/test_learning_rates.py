"""Losses against the learning rate, at infinite and at finite width."""

import math

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

import largen as lg
from largen.experiments import LearningRateCurve
from largen.experiments.learning_rates import learning_rate_curves

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5))
DATA = lg.Dataset(X[:4], np.array([1.0, -1.0, 1.0, -1.0]), X[4:], np.ones(2))
COMPILED = "/jax/core/compile/backend_compile_duration"


def run_of(net, param, **options):
    return lg.Run(net, param, DATA, optimizer=lg.gd(1.0, **options), steps=4)


def curve_of(losses, rates=None, initial=1.0):
    rates = 2.0 ** np.arange(len(losses)) if rates is None else rates
    return LearningRateCurve(rates, np.array(losses), np.full(len(losses), np.nan), initial, "", "")


def test_optimum_of_a_parabola_in_logarithms():
    rates = np.exp(np.linspace(-1, 1, 9))
    losses = 0.1 * np.exp(2 * (np.log(rates) - 0.13) ** 2)
    curve = curve_of(losses, rates, initial=2.0)
    assert curve.optimum == pytest.approx(np.exp(0.13), rel=1e-12)
    # 2x² = ln 1.1; between rates the logarithms are interpolated by a line.
    wide = (math.log(1.1) / 2) ** 0.5
    assert np.log(curve.good) == pytest.approx([0.13 - wide, 0.13 + wide], abs=0.05)
    assert curve.threshold == (rates[-1], math.inf)


def test_where_training_diverges():
    curve = curve_of([0.5, 0.2, 0.3, np.nan, 5.0])
    assert curve.diverged.tolist() == [False, False, False, True, True]
    assert curve.threshold == (4.0, 8.0)
    assert "between 4 and 8" in repr(curve)
    nowhere = curve_of([np.nan, 3.0])
    assert math.isnan(nowhere.optimum)
    assert "at all of them; rates below 1 may" in repr(nowhere)
    assert curve_of([0.3, 0.2]).optimum == 2.0
    assert "an end of the rates" in repr(curve_of([0.3, 0.2]))


def test_test_losses_that_rise_are_not_taken_for_divergence():
    opposite = lg.Dataset(DATA.x_train, DATA.y_train, DATA.x_train, -DATA.y_train)
    run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), opposite, optimizer=lg.gd(1.0), steps=20)
    curve = lg.learning_rate_curve(run, [0.1, 0.2, 100.0])
    assert curve.on == "test"
    assert (curve.losses[:2] > curve.initial).all()
    assert curve.diverged.tolist() == [False, False, True]
    assert curve.threshold == (0.2, 100.0)
    assert curve.optimum == 0.1


def test_threshold_of_the_kernel_limit_is_the_critical_rate():
    net = lg.mlp(1, "relu")
    run = lg.Run(net, lg.ntk(), DATA, optimizer=lg.gd(1.0), steps=400)
    kernel = lg.ntk_kernel(net, DATA.x_train)
    largest = 2 * len(DATA.x_train) / np.linalg.eigvalsh(kernel)[-1]
    curve = lg.learning_rate_curve(run, largest * np.array([0.5, 0.98, 1.02]), on="train")
    assert curve.diverged.tolist() == [False, False, True]


@pytest.mark.slow
def test_threshold_where_features_move_is_below_the_critical_rate():
    """The kernel sharpens: on 40 digits training diverges from 1.4 P/λ_max on, instead of 2."""
    x, labels = load_digits(return_X_y=True)
    x, y = (x[:40] - x.mean(0)) / 4.3, 1.0 - 2.0 * (labels[:40] % 2)
    net = lg.mlp(1, "tanh")
    unit = lg.regression.critical_learning_rate(lg.ntk_kernel(net, x)) / 2
    run = lg.Run(net, lg.mean_field(), lg.Dataset(x, y), optimizer=lg.gd(unit), steps=25)
    nets = lg.train(run, width=256, seeds=2, key=0, record=["ntk"])
    first, last = unit / 40 * np.linalg.eigvalsh(nets.ntk)[..., -1].T
    assert first == pytest.approx(1, abs=0.2)
    assert (last > 1.3 * first).all()
    curve = lg.learning_rate_curve(run, unit * np.array([1.2, 1.3, 1.4]), particles=2048)
    assert np.divide(curve.threshold, unit) == pytest.approx([1.3, 1.4])


def test_both_losses_are_of_the_same_solutions():
    run = run_of(lg.mlp(1, "tanh"), lg.mean_field())
    curves = learning_rate_curves(run, [0.5, 1.0], width=16, seeds=2)
    for on, curve in curves.items():
        alone = lg.learning_rate_curve(run, [0.5, 1.0], width=16, seeds=2, on=on)
        np.testing.assert_array_equal(curve.losses, alone.losses)
        assert curve.on == on
    assert list(curves) == ["train", "test"]


CASES = {
    "kernel": (lg.mlp(1, "erf"), lg.ntk(), {}),
    "one hidden layer": (lg.mlp(1, "tanh"), lg.mean_field(), {"particles": 256}),
    "deep": (lg.mlp(2, "tanh"), lg.mean_field(), {"particles": 256, "replicates": 2}),
    "infinite depth": (
        lg.residual_mlp(math.inf, "tanh"),
        lg.depth_mup(),
        {"particles": 256, "replicates": 2, "depths": (1, 2)},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "param", "options"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.slow if name == "infinite depth" else ())
        for name, case in CASES.items()
    ],
)
def test_one_program_serves_all_rates(net, param, options):
    run, events = run_of(net, param), []

    def listen(event, _, **__):
        events.append(event == COMPILED)

    lg.learning_rate_curve(run, [0.1, 0.2], **options)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        curve = lg.learning_rate_curve(run, [0.15, 0.25, 0.35], **options)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not any(events)
    assert np.isfinite(curve.losses).all()
    assert curve.on == "test"


@pytest.mark.slow
def test_of_networks_beside_the_limit(tmp_path):
    run = run_of(lg.mlp(1, "tanh"), lg.mean_field())
    rates = [0.5, 1.0, 2.0]
    limit = lg.learning_rate_curve(run, rates, particles=512, on="train")
    nets = lg.learning_rate_curve(run, rates, width=256, seeds=16, key=0, on="train")
    assert np.abs(nets.losses - limit.losses).max() < 0.03
    assert "16 networks of width 256" in repr(nets)
    limit.plot(tmp_path / "rates.png", others=[nets])
    assert (tmp_path / "rates.png").stat().st_size > 1000
    assert limit.to_xarray()["loss"].dims == ("rate",)


def test_the_mean_loss_of_the_kernel_limit_has_the_variance_of_outputs():
    run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), DATA, optimizer=lg.gd(1.0), steps=4)
    limit = lg.learning_rate_curve(run, [0.5, 1.0], on="train")
    nets = lg.learning_rate_curve(run, [0.5, 1.0], width=512, seeds=256, key=1, on="train")
    z = (nets.losses - limit.losses) / nets.errors
    assert np.abs(z).max() < 4


def test_wrong_input():
    run = run_of(lg.mlp(1, "tanh"), lg.mean_field())
    for call, words in (
        (lambda: lg.learning_rate_curve(run, [0.1]), "two or more"),
        (lambda: lg.learning_rate_curve(run, [0.1, 0.1]), "two or more"),
        (lambda: lg.learning_rate_curve(run, [0.1, 0.2], width=8, rtol=0.1), "lg.solve"),
        (lambda: lg.learning_rate_curve(run, [0.1, 0.2], rtoll=0.1), "rtol"),
    ):
        with pytest.raises(lg.errors.InvalidInput, match=words):
            call()
