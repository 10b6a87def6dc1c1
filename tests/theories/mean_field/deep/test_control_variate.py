"""Replicates corrected by the linear models that ran beside them."""

from functools import partial

import numpy as np
import pytest

import largen as lg
from largen.theories.mean_field.deep.estimation.control_variate import correct

solve = partial(lg.solve, theory="mean field, deep")

DEEP = "largen.theories.mean_field.deep"

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((6, 12)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])


def test_what_a_linear_model_explains_is_gone():
    """Of values = truth − c(t)·noise + rest the noise goes, at every time by its own share."""
    exact = RNG.standard_normal((1, 4, 50))
    noise, rest = RNG.standard_normal((2, 30, 4, 50))
    share = np.array([1.0, 0.5, 0.1, 0.0])[:, None]
    own = exact - noise
    found = correct(2 + share * (own - exact) + 0.01 * rest, exact + 0 * own, own)
    np.testing.assert_allclose(found.std(0, ddof=1).mean(1), 0.01, rtol=0.1)
    np.testing.assert_allclose(found, 2, atol=0.06)


def test_single_replicates():
    """One that is its own linear model becomes the exact one; one that is far from it stays."""
    exact, own = RNG.standard_normal((2, 1, 3, 20))
    np.testing.assert_allclose(correct(own, exact, own), exact, rtol=1e-12)
    far = own + 1e6
    np.testing.assert_allclose(correct(far, exact, own), far, rtol=1e-9)


def test_linear_models_that_diverge_are_left_out():
    values, exact = RNG.standard_normal((2, 4, 3, 5))
    exact[:, 1:] = np.inf
    found = correct(values, exact, np.zeros_like(exact))
    np.testing.assert_array_equal(found[:, 1:], values[:, 1:])


def with_and_without(monkeypatch, gamma, rate):
    data = lg.Dataset(X, Y, X[:2] + 0.3, Y[:2])
    run = lg.Run(lg.mlp(3, "tanh"), lg.mean_field(gamma), data, optimizer=lg.gd(rate), steps=30)
    options = {"particles": 1024, "replicates": 8, "key": 1}
    with_it = solve(run, **options)
    monkeypatch.setattr(f"{DEEP}.estimation.averages.correct", lambda values, *_: values)
    return with_it, solve(run, **options)


@pytest.mark.slow
def test_lazy_networks_gain(monkeypatch):
    with_it, without = with_and_without(monkeypatch, 0.03, 0.5)
    for name in ("f_train_error", "ntk_error"):
        ours, bare = (np.linalg.norm(getattr(found, name)) for found in (with_it, without))
        assert 5 * ours < bare


@pytest.mark.slow
def test_rich_networks_forget(monkeypatch):
    """At the end of rich training the linear models are no longer correlated with the network."""
    with_it, without = with_and_without(monkeypatch, 4.0, 0.1)
    for name in ("f_train", "ntk"):
        ours, bare = (np.asarray(getattr(found, name))[-1] for found in (with_it, without))
        z = (ours - bare) / np.asarray(getattr(without, f"{name}_error"))[-1]
        assert np.abs(z).max() < 0.5


@pytest.mark.slow
def test_chaotic_networks_vary_less_than_networks_of_that_width():
    """Trained against, the difference of the kernels would make them vary more."""
    net, data = lg.mlp(6, "erf", weight_std=1.3), lg.Dataset(X, Y, X[:2] + 0.3, Y[:2])
    run = lg.Run(net, lg.mean_field(1.5), data, optimizer=lg.gd(0.4), steps=12)
    reduced, networks = (
        np.linalg.norm(solve(run, particles=512, replicates=8, sampling=sampling).f_train_error)
        for sampling in ("variance_reduced", "finite_width")
    )
    assert reduced < 0.7 * networks
