"""The noise and the time from one decomposition: formulas by hand, and what they find."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.stats import multivariate_normal

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.regression import noise as choice

RNG = np.random.default_rng(11)
X, Y = RNG.standard_normal((30, 4)), RNG.standard_normal((30, 2))
NET = lg.mlp(1, "erf", weight_std=1.4, bias_std=0.3)
K = lg.nngp_kernel(NET, X)
WHOLE = np.tile([1, 2, 3], 10)  # weights, as numbers of copies


def criterion(name, weights=None):
    w = np.ones(30) if weights is None else weights.astype(float)
    return one_by_one(choice.CRITERIA[name](K, Y, w)[0])


def one_by_one(cost):
    return lambda number: cost(np.array([number]))[0]


def repeated():
    index = np.repeat(np.arange(30), WHOLE)
    return K[np.ix_(index, index)], Y[index]


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_projections_are_those_on_eigenvectors(count):
    kernel, y = K[:count, :count], Y[:count]
    values, z = choice._spectrum(kernel, y, np.ones(count))
    wanted, vectors = np.linalg.eigh(kernel)
    np.testing.assert_allclose(values, wanted, rtol=1e-10)
    np.testing.assert_allclose(abs(z), abs(vectors.T @ y), atol=1e-10)


def test_likelihood_of_samples_and_of_copies():
    """Differences of log p, up to a constant; a weight counts as so many equal samples."""
    for weights, (kernel, y) in ((None, (K, Y)), (WHOLE, repeated())):
        cost = criterion("likelihood", weights)
        log_p = [
            multivariate_normal(cov=kernel + s * np.eye(len(y))).logpdf(y.T).sum() for s in (0.1, 2)
        ]
        assert cost(0.1) - cost(2) == pytest.approx(-2 * (log_p[0] - log_p[1]), rel=1e-9)


def test_errors_of_leaving_one_out():
    for weights, (kernel, y) in ((None, (K, Y)), (WHOLE, repeated())):
        missed = 0.0
        for i in range(len(y)):
            rest = np.delete(np.arange(len(y)), i)
            inverse = np.linalg.inv(kernel[np.ix_(rest, rest)] + 0.3 * np.eye(len(rest)))
            missed += np.sum((y[i] - kernel[i, rest] @ inverse @ y[rest]) ** 2)
        assert criterion("leave-one-out", weights)(0.3) == pytest.approx(missed, rel=1e-9)


@pytest.mark.parametrize("by", choice.CRITERIA)
def test_criteria_of_many_numbers_are_those_of_each(by):
    cost, _ = choice.CRITERIA[by](K, np.tile(Y, 10), np.ones(30))  # 20 outputs: several blocks
    many = np.geomspace(1e-2, 10, 7)
    np.testing.assert_allclose(cost(many), [one_by_one(cost)(s) for s in many], rtol=1e-12)


@pytest.mark.parametrize("by", choice.CRITERIA)
def test_nothing_near_is_better(by):
    y = np.sin(X[:, :1]) + 0.3 * RNG.standard_normal((30, 1))
    found = choice.best_noise(K, y, by=by)
    cost = one_by_one(choice.CRITERIA[by](K, y, np.ones(30))[0])
    assert all(cost(found) <= cost(found * f) for f in (0.5, 0.98, 1.02, 2.0, 1e-3, 1e2))


def test_noise_that_was_drawn_is_found():
    """400 targets of the prior tell the variance of their noise to about √(2/400) of itself."""
    x = RNG.standard_normal((400, 4))
    kernel = lg.nngp_kernel(NET, x)
    root = np.linalg.cholesky(kernel + 1e-10 * np.eye(400))
    y = root @ RNG.standard_normal((400, 1)) + 0.5 * RNG.standard_normal((400, 1))
    assert choice.best_noise(kernel, y, by="likelihood") == pytest.approx(0.25, rel=0.3)
    assert choice.best_noise(kernel, y, by="leave-one-out") == pytest.approx(0.25, rel=0.6)


def test_the_best_time_is_that_of_cross_validation():
    y = np.sin(X[:, :1]) + 0.3 * RNG.standard_normal((30, 1))
    theta = lg.ntk_kernel(NET, X)
    found = choice.best_time(theta, y)
    assert lg.regression.flow_posterior(NET, X, y, time="auto").time == pytest.approx(
        found, rel=1e-3
    )

    def error(time):
        values, vectors = np.linalg.eigh(theta)
        left = np.exp(-(values - values[0]) * time / 30)  # the common factor cancels
        return 30 * np.sum((left * (vectors.T @ y)[:, 0]) ** 2) / np.sum(left) ** 2

    assert all(error(found) <= error(found * f) for f in (0.5, 0.98, 1.02, 2.0))
    w = WHOLE.astype(float)
    values, z = choice._spectrum(theta, y, w)
    copies = np.repeat(np.arange(30), WHOLE)
    left = expm(-theta[np.ix_(copies, copies)] * 7.0 / 60)
    want = 60 * np.sum((left @ y[copies]) ** 2) / np.trace(left) ** 2
    assert one_by_one(choice._cross_validation(values, z, w))(7.0) == pytest.approx(want, rel=1e-9)


def test_the_best_time_is_not_one_at_which_a_single_mode_is_left_by_chance():
    """The last mode's target is small in one of many draws, which is no small error."""
    values, vectors = np.linalg.eigh(lg.ntk_kernel(NET, X))
    noise = np.random.default_rng(0).standard_normal((30, 200))
    signal = 2 * vectors[:, -1:] + vectors[:, -2:-1]
    times = [choice.best_time(lg.ntk_kernel(NET, X), signal + y[:, None]) for y in noise.T]
    late = np.array(times) * (values[1] - values[0]) / 30 > 3
    assert late.mean() < 0.05
    # Without noise, what is left of the targets is small.
    smooth = (vectors * values) @ vectors.T @ np.ones((30, 1))
    left = np.exp(-values * choice.best_time(lg.ntk_kernel(NET, X), smooth) / 30)
    assert np.linalg.norm(left * (vectors.T @ smooth)[:, 0]) < 0.01 * np.linalg.norm(smooth)


@pytest.mark.parametrize(("kind", "by"), [("nngp", "likelihood"), ("ntk", "leave-one-out")])
def test_posteriors_choose_it(kind, by):
    kernel = lg.nngp_kernel(NET, X) if kind == "nngp" else lg.ntk_kernel(NET, X)
    given = lg.posterior(NET, X, Y, kind=kind, noise="auto")
    assert float(given.noise) == pytest.approx(choice.best_noise(kernel, Y, by=by), rel=1e-6)
    with pytest.raises(InvalidInput, match="noise: wanted a variance or 'auto'"):
        lg.posterior(NET, X, Y, noise="best")


@pytest.mark.parametrize("kind", ["nngp", "ntk", "ntk-gp"])
@pytest.mark.parametrize("noise", [0.1, "auto"])
def test_weights_count_as_copies(kind, noise):
    weight = np.tile([0, 1, 2], 10)
    one = lg.posterior(NET, X, Y, kind=kind, noise=noise, weights=weight)
    copies = np.repeat(np.arange(30), weight)
    two = lg.posterior(NET, X[copies], Y[copies], kind=kind, noise=noise)
    np.testing.assert_allclose(one.predict(X).mean, two.predict(X).mean, atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["nngp", "ntk", "ntk-gp"])
@pytest.mark.parametrize("y", [np.zeros(3), np.ones(3), 1e-5 * np.arange(3.0), 1e5 * np.ones(3)])
def test_a_network_that_sees_nothing_gives_the_prior(kind, y):
    """Inputs that are all zero, without biases: all is noise, and the kernel is zero."""
    net, x = lg.mlp(1, "relu"), np.zeros((3, 2))
    given = lg.posterior(net, x, y, kind=kind, noise="auto")
    assert given.status == "ok"
    mean, variance, _ = given.predict(np.eye(2))
    rounding = 1e-15 * np.abs(y).sum() / given.noise  # of the kernel, times the weights
    np.testing.assert_allclose(mean, 0, atol=rounding)
    np.testing.assert_allclose(
        variance, lg.posterior(net, x, y, kind=kind, noise=1.0).predict(np.eye(2)).variance
    )
    if kind != "ntk" and y.any():
        assert given.noise == pytest.approx(np.mean(y**2), rel=1e-3)  # the likeliest
    with pytest.raises(NumericalFailure, match="any will do"):
        lg.posterior(net, x, y, kind=kind)
