"""Posteriors and fits of samples of variable length: what is hidden does not matter."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(5)
X, NEW = RNG.standard_normal((7, 5, 2)), RNG.standard_normal((3, 5, 2))
Y = RNG.standard_normal(7)
THERE, THERE_NEW = (np.arange(5) < RNG.integers(2, 6, (n, 1)) for n in (7, 3))
NET = lg.serial(
    lg.Conv((3,), bias_std=0.3), lg.Activation("erf"), lg.GlobalAvgPool(), lg.Dense(bias_std=0.1)
)


def by_hand(x, there, *, sizes=(1.0, 0.3, 1.0, 0.1), kernel=lg.nngp_kernel):
    """The kernel of samples that are cut to what is there, without masks and without pooling.

    At each position the convolution is a fully connected network that reads the position and its
    neighbours, zeros beyond the ends; the pooled kernel is the mean over all pairs of positions.
    """
    cut = [np.pad(sample[mask], ((1, 1), (0, 0))) for sample, mask in zip(x, there, strict=True)]
    read = np.concatenate([np.concatenate([s[:-2], s[1:-1], s[2:]], axis=1) for s in cut])
    lengths = there.sum(axis=1)
    mean = np.repeat(np.diag(1 / lengths), lengths, axis=1)
    ends = [lg.Dense(weight_std=w, bias_std=b) for w, b in (sizes[:2], sizes[2:])]
    net = lg.serial(ends[0], lg.Activation("erf"), ends[1])
    return mean @ kernel(net, read) @ mean.T


def log_p(matrix, noise):
    return multivariate_normal(cov=matrix + noise * np.eye(len(matrix))).logpdf(Y)


def functions():
    for kind in ("nngp", "ntk", "ntk-gp"):
        yield lambda x, mask, kind=kind: lg.posterior(NET, x, Y, kind=kind, noise=0.1, mask=mask)
    yield lambda x, mask: lg.regression.flow_posterior(NET, x, Y, time=3.0, mask=mask)


@pytest.mark.slow
@pytest.mark.parametrize("function", list(functions()))
def test_what_is_hidden_does_not_matter(function):
    other, other_new = (
        np.where(mask[..., None], x, 7.0) for x, mask in ((X, THERE), (NEW, THERE_NEW))
    )
    one, two = function(X, THERE), function(other, THERE)
    got = one.predict(NEW, mask=THERE_NEW, covariance=True)
    want = two.predict(other_new, mask=THERE_NEW, covariance=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
    np.testing.assert_allclose(one.predict(NEW, mask=THERE_NEW).variance, got.variance, rtol=1e-11)
    draws = [
        given.sample(x, key=0, draws=2, mask=THERE_NEW)
        for given, x in ((one, NEW), (two, other_new))
    ]
    np.testing.assert_allclose(*draws, rtol=1e-7)
    assert abs(one.predict(NEW).mean - got.mean).max() > 1e-3
    assert abs(function(X, None).predict(NEW, mask=THERE_NEW).mean - got.mean).max() > 1e-3


@pytest.mark.slow
def test_equals_direct_solve():
    kernel = lg.nngp_kernel(NET, X, mask1=THERE) + 0.1 * np.eye(7)
    cross = lg.nngp_kernel(NET, NEW, X, mask1=THERE_NEW, mask2=THERE)
    mean, _, covariance = lg.posterior(NET, X, Y, noise=0.1, mask=THERE).predict(
        NEW, mask=THERE_NEW, covariance=True
    )
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(kernel, Y), rtol=1e-10)
    want = lg.nngp_kernel(NET, NEW, mask1=THERE_NEW) - cross @ np.linalg.solve(kernel, cross.T)
    np.testing.assert_allclose(covariance, want, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kernel"), [("nngp", lg.nngp_kernel), ("ntk-gp", lg.ntk_kernel)])
def test_low_rank_is_that_of_samples_that_are_cut(kind, kernel):
    chosen = [5, 0, 3]
    given = lg.regression.large.low_rank_posterior(
        NET, X, Y, kind=kind, noise=0.1, landmarks=chosen, mask=THERE
    )
    every = by_hand(np.concatenate([X, NEW]), np.concatenate([THERE, THERE_NEW]), kernel=kernel)
    seen = every[:, chosen] @ np.linalg.solve(every[np.ix_(chosen, chosen)], every[chosen])
    gain = seen[7:, :7] @ np.linalg.inv(seen[:7, :7] + 0.1 * np.eye(7))
    mean, variance, _ = given.predict(NEW, mask=THERE_NEW)
    np.testing.assert_allclose(mean, gain @ Y, rtol=1e-9)
    np.testing.assert_allclose(
        variance, np.diagonal(every[7:, 7:] - gain @ seen[:7, 7:]), rtol=1e-9
    )
    np.testing.assert_allclose(given.residual, np.diagonal(every - seen)[:7].mean(), rtol=1e-9)
    np.testing.assert_array_equal(given.mask, THERE[chosen])


@pytest.mark.slow
def test_likelihood_is_that_of_samples_that_are_cut():
    value, gradient = lg.regression.log_likelihood(NET, X, Y, noise=0.1, mask=THERE)
    assert value == pytest.approx(log_p(by_hand(X, THERE), 0.1), rel=1e-11)
    names = ["0.weight_std", "0.bias_std", "3.weight_std", "3.bias_std"]
    sizes = np.array([1.0, 0.3, 1.0, 0.1])
    for name, step in zip(names, 1e-5 * np.eye(4), strict=True):
        above, below = (log_p(by_hand(X, THERE, sizes=sizes + s), 0.1) for s in (step, -step))
        assert gradient[name] == pytest.approx((above - below) / 2e-5, rel=1e-6), name


def sizes_of(net):
    first, *_, last = net.layers
    return first.weight_std, first.bias_std, last.weight_std, last.bias_std


@pytest.mark.slow
def test_fits_are_those_of_samples_that_are_cut():
    fit = lg.regression.fit_likelihood(NET, X, Y, noise=0.1, mask=THERE)
    assert fit.start == pytest.approx(log_p(by_hand(X, THERE), 0.1), rel=1e-11)
    fitted = by_hand(X, THERE, sizes=sizes_of(fit.net))
    assert fit.log_likelihood == pytest.approx(log_p(fitted, fit.noise), rel=1e-9)
    assert fit.log_likelihood > fit.start + 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kernel"), [("nngp", lg.nngp_kernel), ("ntk", lg.ntk_kernel)])
def test_cross_validation_is_that_of_samples_that_are_cut(kind, kernel):
    def error(matrix, noise):
        left = noise * np.linalg.inv(matrix + noise * np.eye(7))
        return 7 * np.sum((left @ Y) ** 2) / np.trace(left) ** 2

    fit = lg.regression.fit_cross_validation(NET, X, Y, noise=0.1, kind=kind, mask=THERE)
    assert fit.start == pytest.approx(error(by_hand(X, THERE, kernel=kernel), 0.1), rel=1e-10)
    fitted = by_hand(X, THERE, sizes=sizes_of(fit.net), kernel=kernel)
    assert fit.error == pytest.approx(error(fitted, fit.noise), rel=1e-7)
    assert fit.error < fit.start


@pytest.mark.slow
def test_gradients_vanish_where_nothing_is_there():
    given = lg.posterior(NET, X, Y, noise=0.1, mask=THERE)
    with jax.enable_x64(True):
        slope = jax.grad(lambda x: sum(given.predict(x, mask=THERE_NEW).variance))(NEW)
        slope = np.asarray(slope)
    assert (abs(slope).max(-1) > 0).tolist() == THERE_NEW.tolist()


@pytest.mark.slow
def test_bad_masks():
    given = lg.posterior(NET, X, Y, noise=0.1)
    low_rank = lg.regression.large.low_rank_posterior(NET, X, Y, noise=0.1)
    hidden = THERE & (np.arange(7) != 4)[:, None]
    for call, words in (
        (
            lambda: lg.regression.large.low_rank_posterior(NET, X, Y, noise=0.1, mask=THERE[:2]),
            "a row for each of 7",
        ),
        (lambda: low_rank.predict(NEW, mask=THERE_NEW * 1), "mask: wanted Booleans"),
        (
            lambda: lg.regression.log_likelihood(NET, X, Y, noise=0.1, mask=THERE[:, :2]),
            "mask: wanted one e",
        ),
        (
            lambda: lg.regression.fit_likelihood(NET, X, Y, mask=hidden),
            "mask: sample 4 has no position",
        ),
        (
            lambda: lg.regression.fit_cross_validation(NET, X, Y, time=1, mask=THERE * 1),
            "mask: wanted Bool",
        ),
        (lambda: lg.posterior(NET, X, Y, mask=THERE[:2]), "mask: wanted a row for each of 7"),
        (lambda: given.predict(NEW, mask=THERE_NEW * 1.0), "mask: wanted Booleans"),
        (lambda: given.predict(NEW, mask=THERE_NEW[:, :2]), "one entry for each position"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()
