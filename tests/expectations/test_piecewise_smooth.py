"""Curved functions with kinks away from 0, which are found or given."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.expectations.references import split

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.expectations import (
    ActivationFunction,
    as_activation,
    derivative_second_moment,
    mean,
    pair_moments,
    second_moment,
    with_kinks,
)
from largen.expectations.accuracy import relative_error
from largen.expectations.singularities import singular_places
from largen.kernels.accuracy import inaccuracy
from largen.kernels.nngp_ntk import prepare


def squared(x):
    return jnp.maximum(x - 1, 0) ** 2 + 0.3 * x


def curved(x):
    """Bends at −½ and 2, flat beyond."""
    return jnp.tanh(jnp.clip(x, -0.5, 2.0))


def wave(x):
    """Bends at all odd numbers."""
    return jnp.sin(jnp.abs((x - 1) % 4 - 2))


def on_arrays(function):
    compiled = jax.jit(function)
    return lambda x: np.asarray(compiled(x))


@pytest.mark.slow
def test_against_nested_integrals():
    """By SciPy's adaptive rule, split at the kinks; they are found without a word."""
    phi, kinks = as_activation(curved), (-0.5, 2.0)
    pairs = np.array([(*q, c) for q in ((1.0, 1.0), (9.0, 0.3)) for c in (0.99999, 0.3, -0.999)])
    q1, q2, c = pairs.T
    with jax.enable_x64(True):
        gap, slope = pair_moments(phi, q1, q2, (q1 + q2) / 2 - c * np.sqrt(q1 * q2))
        value = (second_moment(phi, q1) + second_moment(phi, q2)) / 2 - gap
        for f, got in ((phi, value), (phi.derivative, slope)):
            want = np.array([split(on_arrays(f), kinks, *pair) for pair in pairs])
            np.testing.assert_allclose(got, want, atol=1e-10 * np.abs(want).max())


@pytest.mark.slow
def test_the_piecewise_linear_ones():
    """A hard tanh by its pieces is what the integrals over the angle make of it.

    Also where u and v nearly coincide, or do, and where one variance is 0.
    """
    hard = as_activation(jax.nn.hard_tanh)
    pieces = with_kinks(jax.nn.hard_tanh, (-1, 1))
    with jax.enable_x64(True):
        q1, q2 = np.array([[1.3, 1.3, 1.3, 1.3, 1.3, 0.0], [0.2, 1.3, 1.3, 1.3, 1.3, 1.3]])
        c = np.array([0.5, 0.999999, -1.0, 1 - 1e-12, 1.0, 0.0])
        gap = (q1 + q2) / 2 - np.sqrt(q1 * q2) * c
        found = pair_moments(pieces, q1, q2, gap)
        for got, want in zip(found, pair_moments(hard, q1, q2, gap), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
        assert found.gap[4] < 1e-30  # the square of a rounding, at most
        for moment in (second_moment, derivative_second_moment, mean):
            np.testing.assert_allclose(moment(pieces, q2), moment(hard, q2), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_gradients():
    """Backwards against differences; Price's theorem where u = v."""
    with jax.enable_x64(True):
        moments = jax.jit(lambda p: jnp.stack(pair_moments(squared, *p)))
        gradients = jax.jit(jax.jacrev(moments))
        at, step = jnp.array([1.2, 0.8, 0.3]), 1e-5
        differences = [(moments(at + e) - moments(at - e)) / 2 / step for e in step * jnp.eye(3)]
        np.testing.assert_allclose(gradients(at), np.transpose(differences), atol=1e-9)
        coincident = jnp.array([0.8, 0.8, 0.0])
        same = gradients(coincident)
        np.testing.assert_allclose(same[0, 2], moments(coincident)[1], rtol=1e-12)
        assert np.isfinite(same).all()


@pytest.mark.slow
def test_where_kinks_are_missing():
    """Only those count that the Gaussian reaches; more than that are seen, and refused."""
    assert as_activation(wave).closed_form is None
    known = with_kinks(wave, (-3, -1, 1, 3))
    assert max(map(np.max, relative_error(known, np.array([0.05, 0.1])))) < 1e-9
    lowered, _ = prepare(lg.mlp(1, known), lg.ntk(), 2)
    assert inaccuracy(lowered, (np.eye(2) / 4,), None) is None
    words = inaccuracy(lowered, (np.eye(2) * 4,), None)
    assert "(largen.expectations.with_kinks)" in str(words)


@pytest.mark.slow
def test_jumps():
    def shifted_step(x):
        return x + (x > 1)

    phi = as_activation(shifted_step)
    assert phi.jumps
    x = np.eye(2) + 0.4
    with pytest.raises(NoTheory, match="jumps"):
        lg.kernel(lg.mlp(1, phi), x)
    nngp = lg.nngp_kernel(lg.mlp(1, phi), x)
    q, cross = np.mean(x**2, axis=1), np.mean(x[0] * x[1])
    with jax.enable_x64(True):
        want = split(lambda u: np.asarray(phi(u)), (1.0,), q[0], q[1], cross / np.sqrt(q[0] * q[1]))
    assert abs(nngp[0, 1] - want) < 1e-10


def test_no_kink_is_missed_between_nodes():
    for place in np.random.default_rng(0).normal(size=100).round(2):
        jump = singular_places(lambda x, c=place: (1.0 * (x > c), 0 * x), 16)
        kink = singular_places(lambda x, c=place: (np.maximum(x, c), 1.0 * (x > c)), 16)
        assert jump == kink == pytest.approx((place,), abs=1e-9)


@pytest.mark.slow
def test_kernels_against_networks():
    """Means over networks of width 512, up to the term of order 1/width."""
    net, x = lg.mlp(2, jax.nn.hard_swish, weight_std=1.5, bias_std=0.3), np.eye(3) + 0.4
    exact = lg.kernel(net, x)
    found = lg.networks.monte_carlo_kernel(net, x, width=512, draws=100, key=0)
    for got, error, want in zip(found[:2], found[2:], exact, strict=True):
        assert np.all(np.abs(got - want) < 4 * error + 3 / 512 * want.max())


def test_wrong_input():
    for kinks in ([np.nan], [[1.0, 2.0]], "x", 3.0):
        with pytest.raises(InvalidInput, match="kinks"):
            with_kinks(squared, kinks)
    phi = with_kinks(squared, [1.0])
    assert phi == with_kinks(squared, (1,))
    assert isinstance(phi, ActivationFunction)
    assert pickle.loads(pickle.dumps(phi)) == phi
    assert pickle.loads(pickle.dumps(as_activation(squared))) == as_activation(squared)
