"""Curved functions with kinks away from 0, which are found or given."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.expectations.references import split

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.expectations import (
    ActivationFunction,
    activation,
    derivative_second_moment,
    gaussian_moments,
    mean,
    moment_error,
    pair_error,
    pair_moments,
    second_moment,
    with_kinks,
)
from largen.expectations.accuracy import relative_error

CORRELATIONS = np.array([0.9999999, 0.99999, 0.8, 0.3, -0.3, -0.999])


def squared(x):
    return jnp.maximum(x - 1, 0) ** 2 + 0.3 * x


def curved(x):
    """Bends at −½ and 2, flat beyond."""
    return jnp.tanh(jnp.clip(x, -0.5, 2.0))


def wave(x):
    """Bends at all odd numbers, and away from 0 at more than are looked for."""
    return jnp.sin(jnp.abs((x - 1) % 4 - 2))


def on_arrays(function):
    compiled = jax.jit(function)
    return lambda x: np.asarray(compiled(x))


KINKS = {jax.nn.hard_swish: (-3.0, 3.0), squared: (1.0,), curved: (-0.5, 2.0)}


@pytest.mark.parametrize("function", list(KINKS))
def test_against_nested_integrals(function):
    phi = activation(function)
    for q1, q2 in ((1.0, 2.5), (1.0, 1.0), (9.0, 0.3)):
        value, slope = gaussian_moments(phi, q1, CORRELATIONS * np.sqrt(q1 * q2), q2)
        with jax.enable_x64(True):
            for f, got in ((phi, value), (phi.derivative, slope)):
                on_numpy = on_arrays(f)
                want = np.array([split(on_numpy, KINKS[function], q1, q2, c) for c in CORRELATIONS])
                np.testing.assert_allclose(got, want, atol=1e-10 * np.abs(want).max())


def test_the_piecewise_linear_ones():
    """A hard tanh by its pieces is what the integrals over the angle make of it."""
    hard = activation(jax.nn.hard_tanh)
    pieces = with_kinks(jax.nn.hard_tanh, (-1, 1))
    with jax.enable_x64(True):
        q1, q2 = 1.3, np.array([0.2, 1.3, 1.3, 1.3])
        gap = (q1 + q2) / 2 - np.sqrt(q1 * q2) * np.array([0.5, 0.999999, -1.0, 1 - 1e-12])
        for got, want in zip(
            pair_moments(pieces, q1, q2, gap), pair_moments(hard, q1, q2, gap), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
        for moment in (second_moment, derivative_second_moment, mean):
            np.testing.assert_allclose(moment(pieces, q2), moment(hard, q2), rtol=1e-12, atol=1e-14)


def test_coincident_and_zero():
    q = np.array([0.3, 4.0])
    with jax.enable_x64(True):
        gap, derivative = pair_moments(squared, q, q, 0 * q)
        assert np.all(np.asarray(gap) == 0)
        np.testing.assert_allclose(derivative, derivative_second_moment(squared, q), rtol=1e-12)
        gap, derivative = pair_moments(squared, 0 * q, q, q / 2)
        np.testing.assert_allclose(gap, second_moment(squared, q) / 2, rtol=1e-12)
        np.testing.assert_allclose(derivative, 0.3 * gaussian_slope(q), rtol=1e-10)


def gaussian_slope(q):
    """E[φ'] = 0.3 + 2E[(u − 1)₊] by its closed form."""
    from scipy.stats import norm

    s = np.sqrt(q)
    return 0.3 + 2 * (s * norm.pdf(1 / s) - norm.sf(1 / s))


def test_gradients():
    """Forward against differences, backwards against forward; Price's theorem where u = v."""
    with jax.enable_x64(True):
        moments = jax.jit(lambda p: jnp.stack(pair_moments(squared, *p)))
        at, step = jnp.array([1.2, 0.8, 0.3]), 1e-5
        differences = [(moments(at + e) - moments(at - e)) / 2 / step for e in step * jnp.eye(3)]
        forward = jax.jacfwd(moments)(at)
        np.testing.assert_allclose(forward, np.transpose(differences), atol=1e-9)
        np.testing.assert_allclose(jax.jacrev(moments)(at), forward, atol=1e-14)
        same = jax.jacfwd(moments)(jnp.array([0.8, 0.8, 0.0]))
        np.testing.assert_allclose(same[0, 2], moments(jnp.array([0.8, 0.8, 0.0]))[1], rtol=1e-12)
        assert np.isfinite(same).all()


def test_where_kinks_are_missing():
    """What is not found or not said is seen in the bound, and refused."""
    with pytest.raises(NumericalFailure, match="with_kinks"):
        gaussian_moments(wave, 1.0, 0.5, 1.0)
    with pytest.raises(NumericalFailure, match="squared"):
        lg.kernel(lg.mlp(1, with_kinks(squared, [0.5])), np.eye(2))
    found, _ = gaussian_moments(with_kinks(wave, (-3, -1, 1, 3)), 0.1, 0.05, 0.1)
    with jax.enable_x64(True):
        want = split(on_arrays(wave), (-3, -1, 1, 3), 0.1, 0.1, 0.5)
        assert abs(found - want) < 1e-11
        bounds = pair_error(squared, 1.0, 2.0, 0.7), moment_error(squared, 2.0)
        assert all(float(x) < 1e-11 for bound in bounds for x in bound)
    assert max(map(np.max, relative_error(activation(curved), np.ones(8)))) < 1e-9


def test_jumps():
    def shifted_step(x):
        return x + (x > 1)

    phi = activation(shifted_step)
    assert phi.jumps
    x = np.eye(2) + 0.4
    with pytest.raises(NoTheory, match="jumps"):
        lg.kernel(lg.mlp(1, phi), x)
    nngp = lg.nngp(lg.mlp(1, phi), x)
    q, cross = np.mean(x**2, axis=1), np.mean(x[0] * x[1])
    with jax.enable_x64(True):
        want = split(lambda u: np.asarray(phi(u)), (1.0,), q[0], q[1], cross / np.sqrt(q[0] * q[1]))
    assert abs(nngp[0, 1] - want) < 1e-10


@pytest.mark.slow
def test_kernels_against_networks():
    """Means over networks of width 512, up to the term of order 1/width."""
    net, x = lg.mlp(2, jax.nn.hard_swish, weight_std=1.5, bias_std=0.3), np.eye(3) + 0.4
    exact = lg.kernel(net, x)
    found = lg.monte_carlo_kernel(net, x, width=512, draws=100, key=0)
    for got, error, want in zip(found[:2], found[2:], exact, strict=True):
        assert np.all(np.abs(got - want) < 4 * error + 3 / 512 * want.max())


def test_doors():
    for kinks in ([np.nan], [[1.0, 2.0]], "x", 3.0):
        with pytest.raises(InvalidInput, match="kinks"):
            with_kinks(squared, kinks)
    phi = with_kinks(squared, [1.0])
    assert phi == with_kinks(squared, (1,))
    assert isinstance(phi, ActivationFunction)
    assert pickle.loads(pickle.dumps(phi)) == phi
    assert pickle.loads(pickle.dumps(activation(squared))) == activation(squared)
