"""Adaptive optimizers in deep mean fields: the first step in closed form, descent, networks."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.runs import Status
from largen.theories import AdaptiveMeanField
from largen.theories.mean_field.adaptive_deep.weights import StoredMatrix

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 6))
DATA = lg.Dataset(X[:4], np.array([1.0, -1.0, 1.0, 0.5]), X[4:], np.array([1.0]))
# f(1) at x = (1, 2), y = 1, γ₀ = 1, η₀ = 0.1 by quadrature: from the closed equations of the first
# step, which is sign descent, of one sample in two hidden layers.
FIRST_STEP = {"tanh": 0.1595573248491, "relu": 0.1438390582523}


def first_step(phi):
    data = lg.Dataset(np.array([[1.0, 2.0]]), np.ones(1))
    run = lg.Run(lg.mlp(2, phi), lg.mup(), data, optimizer=lg.adam(0.1), steps=1)
    found = lg.solve(run, particles=1024, replicates=24, record=())
    return found.f_train[:, 0], found.f_train_error[1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("phi", FIRST_STEP)
def test_the_first_step_is_that_of_the_closed_equations(phi):
    f, error = first_step(phi)
    assert abs(f[0]) < 1e-12
    assert error < 6e-3 * f[1]
    assert abs(f[1] - FIRST_STEP[phi]) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("phi", FIRST_STEP)
def test_a_matrix_that_does_not_remember_its_products_is_noticed(phi, monkeypatch):
    # Without the response of the features to the matrix, χ = 0 in the closed equations.
    monkeypatch.setattr(
        StoredMatrix,
        "_drawn",
        lambda self: self._target.noise(self._source.size).T,
    )
    f, error = first_step(phi)
    assert abs(f[1] - FIRST_STEP[phi]) > 6 * error


@pytest.mark.slow
def test_a_large_eps_is_gradient_descent():
    eps = 1e5
    net, steps = lg.mlp(2, "tanh"), 6
    slow = lg.adam(0.5 * eps, beta1=0, beta2=0, eps=eps)
    limits = [
        lg.solve(lg.Run(net, lg.mean_field(), DATA, optimizer=each, steps=steps), rtol=5e-3)
        for each in (slow, lg.gd(0.5))
    ]
    assert limits[0].theory == "mean field, adaptive"
    one, two = (each.f_train for each in limits)
    errors = np.hypot(*(each.f_train_error for each in limits))
    assert np.sqrt(np.mean(((one - two)[1:] / errors[1:]) ** 2)) < 3
    assert np.abs(one - two).max() < 0.02


TRAINED = {
    "adam": (lg.mlp(2, "tanh"), lg.mup(), lg.adam(0.1)),
    "rmsprop": (
        lg.mlp(2, "relu", bias_std=0.5),
        lg.mean_field(2.0),
        lg.optimizers.rmsprop(0.02, beta=0.9),
    ),
    "residual": (
        lg.residual_mlp(2, "tanh"),
        lg.complete_p(),
        lg.adam(0.1, weight_decay=0.1),
    ),
}


def distances(net, param, optimizer, width, seeds, rtol=1e-2, data=DATA):
    """Return the z-scores of outputs, and the rms distance of single networks from the limit."""
    run = lg.Run(net, param, data, optimizer=optimizer, steps=6)
    limit = lg.solve(run, rtol=rtol)
    networks = lg.train(run, width=width, seeds=seeds, key=1)
    z, off = [], []
    for name in ("f_train", "f_test"):
        f, found = getattr(networks, name), getattr(limit, name)
        error = f.std(0, ddof=1) / seeds**0.5
        z.append(((f.mean(0) - found) / np.hypot(error, getattr(limit, f"{name}_error")))[1:])
        off.append((f - found).ravel())
    return np.sqrt(np.mean(np.concatenate(z, 1) ** 2)), np.sqrt(np.mean(np.concatenate(off) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("which", TRAINED)
def test_networks_have_the_outputs_of_the_limit(which):
    z, _ = distances(*TRAINED[which], width=96, seeds=64)
    assert z < 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "net",
    [
        lg.mlp(3, "tanh"),
        lg.serial(
            lg.Dense(width_ratio=2),
            lg.Activation("relu"),
            lg.Dense(weight_std=1.4, width_ratio=0.5),
            lg.Activation("tanh"),
            lg.Dense(),
        ),
        lg.mlp(2, "relu"),
    ],
    ids=["three layers", "unequal widths", "relu"],
)
def test_single_networks_converge_with_the_root_of_the_width(net):
    widths = [32, 128]
    found = [distances(net, lg.mup(), lg.adam(0.05), width=n, seeds=256, rtol=3e-3) for n in widths]
    assert found[-1][0] < 2.5
    exponent = np.log(found[1][1] / found[0][1]) / np.log(widths[1] / widths[0])
    assert -0.65 < exponent < -0.38


@pytest.mark.slow
def test_attention_has_the_outputs_of_the_limit():
    tokens = np.random.default_rng(3).standard_normal((5, 3, 2))
    data = lg.Dataset(tokens[:4], DATA.y_train, tokens[4:], np.ones(1))
    block = lg.Residual(lg.serial(lg.QKVAttention(causal=True), lg.Dense()))
    net = lg.serial(lg.Dense(), block, lg.GlobalAvgPool(), lg.Dense())
    z, _ = distances(net, lg.mean_field(), lg.adam(0.05), 128, 128, rtol=5e-3, data=data)
    assert z < 2.5


@pytest.mark.slow
def test_what_is_asked_for_is_recorded_and_resumed(tmp_path):
    run = lg.Run(lg.mlp(2, "tanh"), lg.mup(), DATA, optimizer=lg.adam(0.1), steps=3)
    options = {"record_at": [0, 3], "record_pairs": [(0, 3)], "particles": 256}
    path = tmp_path / "replicates"
    whole = lg.solve(run, replicates=4, **options)
    lg.solve(run, replicates=2, checkpoint=path, **options)
    resumed = lg.solve(run, replicates=4, checkpoint=path, **options)
    np.testing.assert_array_equal(resumed.f_train, whole.f_train)
    assert whole.feature_kernel.shape == (2, 2, 4, 4)
    assert whole.feature_kernel_pair.shape == (1, 2, 4, 4)
    networks = lg.train(run, width=128, seeds=64, key=0, record=["feature_kernel", "ntk"])
    for name in ("feature_kernel", "ntk"):
        want = getattr(networks, name).mean(0)
        np.testing.assert_allclose(getattr(whole, name)[-1], want[-1], rtol=0.1, atol=0.1)


def test_rates_are_compared_by_the_limit():
    run = lg.Run(lg.mlp(2, "tanh"), lg.mup(), DATA, optimizer=lg.adam(0.1), steps=3)
    curve = lg.learning_rate_curve(run, [0.03, 0.1], on="train", particles=256, replicates=2)
    alone = lg.solve(run, particles=256, replicates=2)
    assert "mean field, adaptive" in str(curve)
    np.testing.assert_allclose(curve.losses[1], alone.loss_train[-1], rtol=1e-6)


def test_what_is_not_covered_or_does_not_fit_is_refused():
    run = lg.Run(lg.mlp(2, "tanh"), lg.mup(), DATA, optimizer=lg.adam(0.1), steps=3)
    with pytest.raises(NoTheory, match=r"limit of lg.adam"):
        AdaptiveMeanField.pose(lg.Run(run.net, run.param, DATA, optimizer=lg.gd(0.1), steps=3))
    with pytest.raises(InvalidInput, match="particles: wanted a multiple of 2"):
        lg.solve(run, particles=257)
    with pytest.raises(InvalidInput, match="particles: the first passes of 5 samples"):
        lg.solve(run, particles=16)
    with pytest.raises(NumericalFailure, match="memory_budget"):
        lg.solve(run, memory_budget=1e5)
    assert lg.solve(run, memory_budget=1e5, throw=False).status is Status.OUT_OF_MEMORY
