"""Functions with a bend at 0, and smooth ones of large variance, by tables over the angle."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.expectations.references import split

import largen as lg
from largen.expectations import (
    as_activation,
    derivative_second_moment,
    gaussian_moments,
    leaky_relu,
    mean,
    pair_moments,
    second_moment,
)
from largen.expectations.accuracy import by_angle, relative_error, shortfall, with_suitable_method
from largen.expectations.angular import chebyshev
from largen.expectations.families import SELU
from largen.expectations.moments import _pair

# Places between which the nested integrals of the reference have a panel each.
EDGES = (-30.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 30.0)
CORRELATIONS = np.array([0.99999, 0.8, -0.3, -0.999])


def softsign(x):
    return x / (1 + jnp.abs(x))


def on_numpy(function):
    compiled = jax.jit(function)
    return lambda x: np.asarray(compiled(x))


def against_nested_integrals(phi, q1, q2, tolerance):
    """V and D to the tolerance, relative to E[φ²] and E[φ'²], by the public function."""
    phi = as_activation(phi)
    value, slope = gaussian_moments(phi, q1, CORRELATIONS * np.sqrt(q1 * q2), q2)
    with jax.enable_x64(True):
        for function, got in ((phi, value), (phi.derivative, slope)):
            want = [split(on_numpy(function), EDGES, q1, q2, c) for c in CORRELATIONS]
            size = split(on_numpy(function), EDGES, q1, q1, 1 - 1e-9)
            np.testing.assert_allclose(got, want, atol=tolerance * size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "phi",
    [
        pytest.param("elu", marks=pytest.mark.slow),
        "selu",
        pytest.param(softsign, marks=pytest.mark.slow),
    ],
)
def test_bends_at_zero(phi):
    assert by_angle(as_activation(phi))
    against_nested_integrals(phi, 1.0, 2.5, 2e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("std", "reach"), [(30.0, 32), (1000.0, 1024)])
def test_large_variance(std, reach):
    """A tanh of variance 900 or a million: the series is refused, and the angle takes over."""
    tanh = as_activation("tanh")
    assert not by_angle(tanh)
    q = np.full(8, std**2)
    assert "above rtol" in shortfall(tanh, q, 1e-8)
    assert with_suitable_method(tanh, q, 1e-8).reach == reach
    assert shortfall(with_suitable_method(tanh, q, 1e-8), q, 1e-8) is None
    # The same function of a standard normal, with inputs on the scale of the reference's panels.
    z = CORRELATIONS
    got = gaussian_moments("tanh", std**2, std**2 * z, std**2)
    with jax.enable_x64(True):
        edges = tuple(np.array(EDGES) / std)
        want = [split(lambda x: np.tanh(std * x), edges, 1.0, 1.0, c) for c in z]
        np.testing.assert_allclose(got[0], want, atol=1e-9)


@pytest.mark.slow
def test_small_variances_beside_a_large_one_are_left_to_the_series():
    tanh, rng = as_activation("tanh"), np.random.default_rng(0)
    few = np.append(rng.uniform(0.1, 2, 60), 49.0)
    chosen = with_suitable_method(tanh, few, 1e-8)
    assert (chosen.reach, chosen.series_below) == (8, 16)
    assert with_suitable_method(tanh, few + 20, 1e-8).series_below == 0
    mixed = replace(tanh, reach=8.0, series_below=1.0)
    with jax.enable_x64(True):
        q = np.where(np.arange(80) % 20, rng.uniform(0.1, 1, 80), 6.0)
        x = rng.standard_normal((80, 3))
        x *= np.sqrt(q / (x**2).mean(1))[:, None]
        gap = ((x[:, None] - x) ** 2).mean(-1) / 2
        got, want = (_pair(phi, q[:, None], q[None, :70], gap[:, :70]) for phi in (mixed, tanh))
        np.testing.assert_allclose(got, want, atol=3e-10)


@pytest.mark.long_loops
@pytest.mark.slow
def test_the_best_method_where_none_is_good_enough():
    tanh, q = as_activation("tanh"), np.geomspace(1e-2, 20000.0**2, 8)
    best = with_suitable_method(tanh, q, 1e-8)
    assert "above rtol" in shortfall(best, q, 1e-8)
    assert shortfall(best, q, 1e-3) is None
    assert "above rtol" in shortfall(tanh, q, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1e-20, 1e-6, 0.0])
def test_small_variance(spread):
    """Selu becomes a leaky relu, whose bend is at 0, up to terms of the order of √q."""
    selu, q = as_activation("selu"), 1e-6
    error = relative_error(selu, np.array([spread, q]))
    assert max(np.max(bound) for bound in error) < 1e-10
    leaky = leaky_relu(SELU.alpha)
    got, want = (gaussian_moments(phi, q, 0.3 * q, q) for phi in (selu, leaky))
    scale = SELU.scale**2
    np.testing.assert_allclose(got, scale * np.array(want), rtol=4e-3)
    np.testing.assert_allclose(
        gaussian_moments(selu, 1e-10, 3e-11, 1e-10)[1], scale * want[1], rtol=4e-5
    )


@pytest.fixture(scope="module")
def elu_pair():
    return jax.jit(lambda q1, q2, gap: pair_moments("elu", q1, q2, gap))


@pytest.mark.slow
def test_rows_against_columns(elu_pair):
    """A matrix of pairs is what its entries are, and gradients are those of differences."""
    with jax.enable_x64(True):
        q = np.array([0.2, 1.0, 3.0, 0.0])
        gap = np.add.outer(q, q) / 2 - 0.3 * np.sqrt(np.outer(q, q))
        both = elu_pair(q[:, None], q[None, :], gap)
        apart = elu_pair(*(x.ravel() for x in np.broadcast_arrays(q[:, None], q[None, :], gap)))
        for one, other in zip(both, apart, strict=True):
            np.testing.assert_allclose(one.ravel(), other, rtol=1e-13, atol=1e-15)
        # A variance of 0: gap' = E[φ²]/2 and D = φ'(0) E[φ'], here of the side that is taken.
        np.testing.assert_allclose(both[0][:3, 3], second_moment("elu", q[:3]) / 2, rtol=1e-12)
        slope = np.asarray(both[1])
        np.testing.assert_allclose(slope, slope.T, rtol=1e-12)


@pytest.mark.slow
def test_gradients(elu_pair):
    def moments(point):
        return jnp.stack(elu_pair(*point[:, None, None]))[:, 0, 0]

    with jax.enable_x64(True):
        jacobian = jax.jit(jax.jacfwd(moments))
        point, steps = jnp.array([1.3, 0.8, 0.4]), 1e-5 * jnp.eye(3)
        want = jnp.stack([(moments(point + e) - moments(point - e)) / 2e-5 for e in steps], -1)
        np.testing.assert_allclose(jacobian(point), want, atol=1e-8)
        same = jacobian(jnp.array([1.3, 1.3, 0.0]))
        np.testing.assert_allclose(same[0, 2], derivative_second_moment("elu", 1.3), rtol=1e-12)
        np.testing.assert_allclose(same[0, :2], 0, atol=1e-11)


@pytest.mark.slow
def test_near_coincidence(elu_pair):
    """gap'/gap tends to E[φ'²] and keeps its digits, where a subtraction has none."""
    with jax.enable_x64(True):
        gap = np.array([[0.0, 1e-18, 1e-12]])
        grown, _ = elu_pair(np.full((1, 1), 2.0), np.full((1, 3), 2.0), gap)
        assert grown[0, 0] == 0
        np.testing.assert_allclose(
            grown[0, 1:] / gap[0, 1:], derivative_second_moment("elu", 2.0), rtol=1e-9
        )


def test_coefficients_of_chebyshev_polynomials_are_unit_vectors():
    nodes, to_coefficients = chebyshev(7)
    values = np.polynomial.chebyshev.chebvander(nodes, 6)
    np.testing.assert_allclose(to_coefficients @ values, np.eye(7), atol=1e-14)


def test_single_moments():
    """elu: E[φ] = √(q/2π) + e^(q/2) Φ(−√q) − ½, and E[φ²] likewise."""
    from scipy.stats import norm

    q = np.array([0.1, 1.0, 9.0])
    s = np.sqrt(q)
    below, twice = np.exp(q / 2) * norm.cdf(-s), np.exp(2 * q) * norm.cdf(-2 * s)
    with jax.enable_x64(True):
        np.testing.assert_allclose(mean("elu", q), s / np.sqrt(2 * np.pi) + below - 0.5, rtol=1e-13)
        want = q / 2 + twice - 2 * below + 0.5
        np.testing.assert_allclose(second_moment("elu", q), want, rtol=1e-13)
        np.testing.assert_allclose(derivative_second_moment("elu", q), 0.5 + twice, rtol=1e-13)


@pytest.mark.slow
def test_many_kinks_elsewhere_are_seen():
    phi = as_activation(lambda x: jnp.sin(jnp.abs((x - 1) % 4 - 2)))
    assert max(np.max(bound) for bound in relative_error(phi, np.ones(8))) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("place", [0.0, 0.5])
def test_kernels_with_jumps_by_the_parallelogram_law(place):
    """(s + t)² + (s − t)² = 2s² + 2t², of kernels."""
    angles = np.array([0, 1e-5, 1e-2, 0.4, 1.7, np.pi])
    x = 1.4 * np.stack([np.cos(angles), np.sin(angles)], 1)

    def of(phi):
        return lg.nngp_kernel(lg.mlp(1, phi), x)

    def jump(u):
        return jnp.sign(u - place)

    sums = of(lambda u: jump(u) + jnp.tanh(u)) + of(lambda u: jump(u) - jnp.tanh(u))
    np.testing.assert_allclose(sums, 2 * of(jump) + 2 * of("tanh"), rtol=1e-8)


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize("phi", ["elu", softsign])
def test_kernels_against_networks(phi):
    """Means over networks of width 512, up to the term of order 1/width."""
    net, x = lg.mlp(2, phi, weight_std=1.3, bias_std=0.3), np.eye(3) + 0.4
    exact = lg.kernel(net, x)
    found = lg.networks.monte_carlo_kernel(net, x, width=512, draws=100, key=0)
    for got, error, want in zip(found[:2], found[2:], exact, strict=True):
        assert np.all(np.abs(got - want) < 4 * error + 3 / 512 * want.max())
