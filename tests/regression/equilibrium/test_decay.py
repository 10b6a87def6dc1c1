"""One hidden layer at rest under weight decay: optimality, closed forms, and training."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.regression.equilibrium.decay import homogeneous_at_rest, linear_at_rest
from largen.regression.equilibrium.network import equilibrium_of

RNG = np.random.default_rng(5)
X, X_TEST = RNG.standard_normal((5, 3)), RNG.standard_normal((4, 3))
Y = np.array([1.0, -1.0, 0.5, -0.3, 0.8])
TWO = np.stack([Y, Y[::-1] ** 2], 1)


def run(net, decay, *, gamma=1.0, param=None, y=Y, optimizer=None, x=X, steps=1):
    data = lg.Dataset(x, y, X_TEST[:, : x.shape[1]], np.zeros((4, *y.shape[1:])))
    optimizer = optimizer or lg.gd(0.1, weight_decay=decay)
    return lg.Run(net, param or lg.mean_field(gamma), data, optimizer=optimizer, steps=steps)


@pytest.mark.parametrize("phi", ["relu", "leaky_relu", "abs", "linear"])
@pytest.mark.parametrize("y", [Y, TWO], ids=["one", "two"])
def test_the_minimum_is_one(phi, y):
    """Primal and dual agree, and no direction of 2·10⁵ exceeds the bound."""
    net, gamma, decay = lg.mlp(1, phi), 1.5, 0.03
    found = lg.training.equilibrium(run(net, decay, gamma=gamma, y=y), rtol=1e-8)
    bound = 5 * decay / gamma
    neurons = found.neurons
    residual = (y - found.f_train).reshape(5, -1)
    np.testing.assert_allclose(residual, neurons.residual, atol=1e-13)
    size = np.linalg.norm(neurons.weights, axis=1).sum()
    assert bound * size == pytest.approx(np.sum(residual * found.f_train.reshape(5, -1)), rel=1e-6)
    u = np.random.default_rng(0).standard_normal((200_000, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    phi_u = equilibrium_of(net, lg.mean_field(gamma), X).features(u @ X.T / np.sqrt(3))
    assert np.linalg.norm(phi_u @ residual, axis=1).max() <= bound * (1 + 1e-8)
    assert found.stationarity < 1e-4


def test_classes_are_at_rest_under_decay():
    """f = Φ(e_y − softmax f)/κ with the kernel at rest."""
    data = lg.Dataset(X, np.array([2, 0, 1, 2, 2]), X_TEST, np.array([0, 1, 1, 2]))
    given = lg.Run(
        lg.mlp(1, "tanh"), lg.mean_field(), data, loss="cross_entropy",
        optimizer=lg.gd(0.5, weight_decay=0.05), steps=1,
    )  # fmt: skip
    found = lg.training.equilibrium(given, particles=256, doublings=0, throw=False)
    assert found.data["f_test"].dims == ("test_sample", "output")
    weights = np.exp(found.f_train)
    residual = np.eye(3)[data.y_train] - weights / weights.sum(1, keepdims=True)
    expected = found.data["feature_kernel"].values @ residual / (5 * 0.05)
    assert np.abs(found.f_train).max() > 0.2
    np.testing.assert_allclose(found.f_train, expected, atol=0.1 * np.abs(found.f_train).max())


def test_linear_networks_by_exchange_are_the_closed_form():
    of = equilibrium_of(lg.mlp(1, "linear", weight_std=1.3), lg.mean_field(0.8), X)
    for kappa in (0.5, 0.02):
        closed = linear_at_rest(of, X, Y[:, None], kappa)
        rng = np.random.default_rng(0)
        found = homogeneous_at_rest(of, X, Y[:, None], kappa, rng, 1e-11)
        np.testing.assert_allclose(found.residual, closed.residual, atol=3e-6)
        np.testing.assert_allclose(closed.outputs(of, X), Y[:, None] - closed.residual, atol=1e-13)
        np.testing.assert_allclose(found.outputs(of, X_TEST), closed.outputs(of, X_TEST), atol=1e-4)


@pytest.mark.parametrize("phi", ["linear", "relu"])
def test_all_weights_vanish_above_a_decay(phi):
    """γ₀ max_u |y·φ(Au)| = κ is where they begin to live."""
    of = equilibrium_of(lg.mlp(1, phi), lg.mean_field(), X)
    u = np.random.default_rng(0).standard_normal((400_000, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    threshold = np.abs(of.features(u @ X.T / np.sqrt(3)) @ Y).max() / 5
    assert lg.training.equilibrium(run(lg.mlp(1, phi), 1.002 * threshold)).collapsed
    assert not lg.training.equilibrium(run(lg.mlp(1, phi), 0.995 * threshold)).collapsed


@pytest.mark.parametrize(
    ("net", "param"),
    [
        (lg.mlp(1, "linear", weight_std=1.4), None),
        (lg.mlp(1, "linear"), lg.mup()),  # whose rates differ between layers
    ],
)
def test_training_comes_to_rest_there(net, param):
    given = run(net, 0.02, param=param)
    found = lg.training.equilibrium(given)
    limit = lg.solve(given.with_changes(steps=6000))
    np.testing.assert_allclose(found.f_train, limit.f_train[-1], atol=1e-8)
    np.testing.assert_allclose(found.f_test, limit.f_test[-1], atol=1e-8)


@pytest.mark.slow
def test_relu_comes_to_rest_there():
    """Gradient descent on kinks moves on by an amplitude in proportion to its rate."""
    given = run(lg.mlp(1, "relu"), 0.04, x=X[:, :2], optimizer=lg.gd(0.1, weight_decay=0.04))
    found = lg.training.equilibrium(given)
    limit = lg.solve(given.with_changes(steps=1500), rtol=3e-3)
    assert np.abs(found.f_train - limit.f_train[-1]).max() < 1e-2
    assert np.abs(found.f_train).min() > 5e-2


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_a_temperature_is_the_posterior_of_a_prior_of_variance_tau(tau):
    """At γ → 0 it is Gaussian: each of two layers has the variance τ, and the noise is P T₀."""
    temperature = 0.1
    optimizer = lg.optimizers.langevin(0.1, temperature, weight_decay=temperature / tau)
    found = lg.training.equilibrium(run(lg.mlp(1, "relu"), 0, gamma=1e-4, optimizer=optimizer))
    K = tau**2 * lg.nngp_kernel(lg.mlp(1, "relu"), X)
    want = K @ np.linalg.solve(K + 5 * temperature * np.eye(5), Y)
    np.testing.assert_allclose(found.f_train, want, atol=1e-7)
    assert found.method == "posterior"
    assert found.posterior is not None


def test_the_posterior_is_that_of_the_parameterization():
    optimizer = lg.optimizers.langevin(0.1, 0.04, weight_decay=0.04)
    found = lg.training.equilibrium(run(lg.mlp(1, "erf"), 0, optimizer=optimizer), sites=1024)
    same = lg.regression.adaptive_posterior(
        lg.mlp(1, "erf"), X, Y, noise=0.2, param=lg.mean_field(), sites=1024
    )
    np.testing.assert_allclose(found.f_test, same.predict(X_TEST).mean, rtol=1e-12)
    assert found.stationarity < 1e-4  # α = (y − f)/κ, up to the spread of the sites


@pytest.mark.slow
def test_others_are_trained_until_they_are_still():
    """With the final kernel Φ of the read-out f = Φ(Φ + κ)⁻¹y, whatever the activation."""
    net = lg.mlp(1, "tanh", weight_std=1.2, bias_std=0.3)
    given = run(net, 0.2, y=2 * Y, optimizer=lg.gd(0.3, weight_decay=0.2))
    found = lg.training.equilibrium(given, rtol=1e-2, particles=256)
    assert found.method == "trained"
    assert found.stationarity < 2e-3
    with pytest.raises(NumericalFailure, match="still move"):
        lg.training.equilibrium(given, still=1e-9, doublings=0, particles=256)


def test_what_has_no_rest_is_refused():
    net = lg.mlp(1, "relu")
    with pytest.raises(InvalidInput, match="weight_decay"):
        lg.training.equilibrium(run(net, 0.0))
    with pytest.raises(InvalidInput, match="batches"):
        lg.training.equilibrium(run(net, 0, optimizer=lg.sgd(0.1, 2, weight_decay=0.1)))
    with pytest.raises(NoTheory, match="energy"):
        lg.training.equilibrium(run(net, 0, optimizer=lg.adam(0.1, weight_decay=0.1)))
    with pytest.raises(InvalidInput, match="sites"):
        lg.training.equilibrium(run(net, 0.1), sites=100)
    with pytest.raises(NumericalFailure, match="exceeds") as caught:
        lg.training.equilibrium(run(net, 0.01), rtol=1e-15)
    assert caught.value.result.status == "not converged"
