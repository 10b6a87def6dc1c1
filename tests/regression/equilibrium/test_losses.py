"""Posteriors of other losses than squares: exact finite widths, fixed kernels, support vectors."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from tests.regression.equilibrium.exact_widths import at_width

import largen as lg
from largen.errors import InvalidInput

PLANE = np.random.default_rng(3).standard_normal((6, 2))
X, X_TEST = PLANE[:4], PLANE[4:]
Y, CLASSES = np.array([1.0, -1.0, 1.0, -1.0]), np.array([0, 1, 2, 1])


def given(net, y, loss, noise=0.1, gamma=1.0, x=X, **options):
    param = lg.mean_field(gamma)
    return lg.regression.adaptive_posterior(
        net, x, y, noise=noise, param=param, loss=loss, **options
    )


def hinge(f, y):
    return jnp.maximum(0.0, 1 - y * f)


@pytest.mark.slow
def test_logistic_networks_of_a_width_are_exact_ones():
    gamma, noise, one = 1.5, 0.05, np.ones((1, 1))
    found = given(lg.mlp(1, "tanh"), np.ones(1), "logistic", noise, gamma, one, sites=2**15)
    limit = found.predict(one)
    left = []
    for width in (50, 200):
        mean, variance, log_p = at_width(
            np.tanh,
            gamma,
            noise,
            1.0,
            width,
            shift=gamma * found.dual[0],
            loss=lambda f: np.logaddexp(0, -f),
        )
        assert width * (mean - limit.mean[0]) == pytest.approx(limit.correction[0], abs=3e-3)
        left.append(gamma**2 * width * variance / limit.variance[0] - 1)
        assert found.log_likelihood(width) == pytest.approx(log_p, abs=0.01)
    # Half of the correction is that of the third derivative of the loss.
    assert limit.correction[0] == pytest.approx(0.0455, abs=5e-4)
    assert left[0] / left[1] == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(("loss", "y"), [("logistic", Y), ("cross_entropy", CLASSES)])
def test_small_gamma_is_kernel_regression(loss, y):
    net = lg.mlp(1, "erf")
    root = np.linalg.cholesky(lg.nngp_kernel(net, X))
    cross = np.linalg.solve(root, lg.nngp_kernel(net, X, X_TEST)).T
    classifier = LogisticRegression(C=1 / 0.1, fit_intercept=False, tol=1e-12, max_iter=10000)
    weights = classifier.fit(root, y).coef_.T
    mean = given(net, y, loss, gamma=1e-6).predict(X_TEST).mean
    np.testing.assert_allclose(mean.reshape(2, -1), cross @ weights, atol=1e-6)


@pytest.mark.slow
def test_hinges_of_small_gamma_are_support_vectors():
    net = lg.mlp(1, "erf")
    K = lg.nngp_kernel(net, X) * np.outer(Y, Y)
    found = minimize(
        lambda a: (a @ K @ a / 2 - a.sum(), K @ a - 1),
        np.zeros(4),
        jac=True,
        bounds=[(0, 1 / 0.1)] * 4,
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    np.testing.assert_allclose(given(net, Y, hinge, gamma=1e-6).dual * Y, found.x, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("activation", "loss"), [("tanh", "logistic"), ("tanh", hinge), ("relu", hinge)]
)
def test_squares_and_others_have_the_same_law_at_their_dual_variables(activation, loss):
    """Neurons depend on α alone: squares with y = f + κα have the same solution."""
    net = lg.mlp(1, activation)
    found = given(net, Y, loss)
    train = found.predict(X).mean
    same = given(net, train + 0.1 * found.dual, "mse")
    np.testing.assert_allclose(same.dual, found.dual, atol=0.01 * np.abs(found.dual).max())
    np.testing.assert_allclose(same.predict(X_TEST).mean, found.predict(X_TEST).mean, atol=0.01)


@pytest.mark.slow
def test_several_hidden_layers_of_small_gamma_are_laplace_approximations():
    net = lg.mlp(2, "tanh")
    K = lg.nngp_kernel(net, X)
    root = np.linalg.cholesky(K)
    classifier = LogisticRegression(C=1 / 0.1, fit_intercept=False, tol=1e-12, max_iter=10000)
    f = root @ classifier.fit(root, Y).coef_[0]
    found = given(net, Y, "logistic", gamma=1e-6, sites=1024).predict(X)
    np.testing.assert_allclose(found.mean, f, atol=1e-6)
    curvature = 1 / (2 + 2 * np.cosh(f))
    covariance = K - K @ np.linalg.solve(K + np.diag(0.1 / curvature), K)
    np.testing.assert_allclose(found.variance, np.diag(covariance), atol=1e-6)


@pytest.mark.slow
def test_two_classes_are_the_logistic_loss_of_a_difference():
    """−log softmax is softplus of the difference, whose prior has twice the variance."""
    net = lg.mlp(1, "tanh")
    two = given(net, (Y < 0).astype(int), "cross_entropy", sites=2**13).predict(X_TEST).mean
    wider = lg.serial(lg.Dense(), lg.Activation("tanh"), lg.Dense(weight_std=np.sqrt(2)))
    one = given(wider, Y, "logistic", sites=2**13).predict(X_TEST).mean
    np.testing.assert_allclose(two[:, 0] - two[:, 1], one, atol=0.01)


def test_langevin_dynamics_of_a_loss_ends_there():
    optimizer = lg.optimizers.langevin(0.1, 0.04, weight_decay=0.04)
    data = lg.Dataset(X, Y, X_TEST, np.ones(2))
    run = lg.Run(
        lg.mlp(1, "tanh"), lg.mean_field(), data, loss="logistic", optimizer=optimizer, steps=1
    )
    found = lg.training.equilibrium(run, sites=1024)
    same = given(lg.mlp(1, "tanh"), Y, "logistic", noise=0.16, sites=1024)
    np.testing.assert_allclose(found.f_test, same.predict(X_TEST).mean, rtol=1e-12)
    assert found.stationarity is None


def test_refusals():
    net = lg.mlp(1, "tanh")
    with pytest.raises(InvalidInput, match="noise"):
        given(net, Y, "logistic", noise=0.0)
    with pytest.raises(InvalidInput, match="−1 and"):
        given(net, CLASSES.astype(float), "logistic")
    with pytest.raises(InvalidInput, match="integer class"):
        given(net, Y, "cross_entropy")
    with pytest.raises(InvalidInput, match="not convex"):
        given(net, Y, lambda f, y: jnp.cos(3 * f - y))
