"""Posteriors of samples of variable length: what is hidden does not matter."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(5)
X, NEW = RNG.standard_normal((7, 5, 2)), RNG.standard_normal((3, 5, 2))
Y = RNG.standard_normal(7)
THERE, THERE_NEW = (np.arange(5) < RNG.integers(2, 6, (n, 1)) for n in (7, 3))
NET = lg.serial(
    lg.Conv((3,), bias_std=0.3), lg.Activation("erf"), lg.GlobalAvgPool(), lg.Dense(bias_std=0.1)
)


def doors():
    for kind in ("nngp", "ntk", "ntk-gp"):
        yield lambda x, mask, kind=kind: lg.posterior(NET, x, Y, kind=kind, noise=0.1, mask=mask)
    yield lambda x, mask: lg.flow_posterior(NET, x, Y, time=3.0, mask=mask)


@pytest.mark.parametrize("door", list(doors()))
def test_what_is_hidden_does_not_matter(door):
    other, other_new = (
        np.where(mask[..., None], x, 7.0) for x, mask in ((X, THERE), (NEW, THERE_NEW))
    )
    one, two = door(X, THERE), door(other, THERE)
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
    assert abs(door(X, None).predict(NEW, mask=THERE_NEW).mean - got.mean).max() > 1e-3


def test_equals_direct_solve():
    kernel = lg.nngp(NET, X, mask1=THERE) + 0.1 * np.eye(7)
    cross = lg.nngp(NET, NEW, X, mask1=THERE_NEW, mask2=THERE)
    mean, _, covariance = lg.posterior(NET, X, Y, noise=0.1, mask=THERE).predict(
        NEW, mask=THERE_NEW, covariance=True
    )
    np.testing.assert_allclose(mean, cross @ np.linalg.solve(kernel, Y), rtol=1e-10)
    want = lg.nngp(NET, NEW, mask1=THERE_NEW) - cross @ np.linalg.solve(kernel, cross.T)
    np.testing.assert_allclose(covariance, want, atol=1e-12)


def test_gradients_vanish_where_nothing_is_there():
    given = lg.posterior(NET, X, Y, noise=0.1, mask=THERE)
    with jax.enable_x64(True):
        slope = jax.grad(lambda x: sum(given.predict(x, mask=THERE_NEW).variance))(NEW)
        slope = np.asarray(slope)
    assert (abs(slope).max(-1) > 0).tolist() == THERE_NEW.tolist()


def test_bad_masks():
    given = lg.posterior(NET, X, Y, noise=0.1)
    for call, words in (
        (lambda: lg.posterior(NET, X, Y, mask=THERE[:2]), "mask: wanted a row for each of 7"),
        (lambda: given.predict(NEW, mask=THERE_NEW * 1.0), "mask: wanted Booleans"),
        (lambda: given.predict(NEW, mask=THERE_NEW[:, :2]), "one entry for each position"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()
