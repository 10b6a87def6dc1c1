"""The Hermite series against quadrature over the plane, and the honesty of its error bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.expectations.references import plane

from largen.expectations import (
    ActivationFunction,
    as_activation,
    gaussian_mean,
    mean,
    pair_error,
    pair_moments,
    second_moment,
)

CORRELATIONS = (1.0, 1 - 1e-9, 0.999, 0.9, 0.3, -0.5, -0.99, -1.0)


def sharp(x):
    return jnp.tanh(5 * x)


def hard(x):
    return jnp.clip(x, -1, 1)


def handmade_relu(x):
    return jnp.where(x > 0, x, 0.0)


def handmade_gelu(x):
    return x * (1 + jax.scipy.special.erf(x / jnp.sqrt(2.0))) / 2


def numpy_pair(phi, slope, q1, q2, gap):
    return (
        plane(lambda u, v: (phi(u) - phi(v)) ** 2 / 2, q1, q2, gap),
        plane(lambda u, v: slope(u) * slope(v), q1, q2, gap),
    )


def sigmoid(x):
    return (1 + np.tanh(x / 2)) / 2


SMOOTH = {
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
}


def cases(variances):
    return [
        (q1, q2, (q1 + q2) / 2 - c * np.sqrt(q1 * q2)) for q1, q2 in variances for c in CORRELATIONS
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "silu" else []) for n in SMOOTH]
)
def test_smooth_activations(name):
    """Values and derivative kernels to 1e-11, and within the bound, at variances 0.1 to 25."""
    variances = [(1.0, 1.0), (4.0, 4.0), (0.1, 2.0)]
    if name == "tanh":
        variances += [(9.0, 9.0), (9.0, 4.0), (25.0, 25.0)]
    with jax.enable_x64(True):
        q1, q2, gap = (np.array(x) for x in zip(*cases(variances), strict=True))
        got, bound = pair_moments(name, q1, q2, gap), pair_error(name, q1, q2, gap)
    for i, case in enumerate(cases(variances)):
        for value, error, want in zip(got, bound, numpy_pair(*SMOOTH[name], *case), strict=True):
            difference = abs(float(value[i]) - want)
            assert difference < 1e-11, case
            assert difference < float(error[i]) + 4e-14, case  # and the reference's own error
            assert float(error[i]) < 1e-10, case


def test_matches_closed_form_when_fed_by_hand():
    """A hand-written gelu goes through the series and agrees with the closed form."""
    with jax.enable_x64(True):
        q1, q2, gap = (np.array(x) for x in zip(*cases([(1.0, 1.0), (3.0, 0.2)]), strict=True))
        for got, want in zip(
            pair_moments(handmade_gelu, q1, q2, gap), pair_moments("gelu", q1, q2, gap), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-12)


@pytest.mark.slow
@pytest.mark.parametrize("q", [1.0, 400.0])
def test_sharp_function_is_right_or_says_so(q):
    """tanh(5x), i.e. tanh at 25 times the variance."""
    functions = (lambda x: np.tanh(5 * x), lambda x: 5 / np.cosh(np.minimum(5 * abs(x), 300)) ** 2)
    with jax.enable_x64(True):
        for case in cases([(q, q)])[2:4]:
            step = {1.0: 0.04, 400.0: 0.005}[q]
            want = (
                plane(
                    lambda u, v: (functions[0](u) - functions[0](v)) ** 2 / 2,
                    *case,
                    step=step,
                    reach=8.0,
                ),
                plane(lambda u, v: functions[1](u) * functions[1](v), *case, step=step, reach=8.0),
            )
            got, bound = pair_moments(sharp, *case), pair_error(sharp, *case)
            for value, error, right in zip(got, bound, want, strict=True):
                assert abs(float(value) - right) < float(error) + 1e-12
            if q == 1.0:
                assert max(map(float, bound)) < 1e-9


@pytest.mark.slow
def test_kinked_functions_are_within_their_bound():
    """A hard tanh as a series: slow, and a bound that admits it."""
    slow = ActivationFunction("hard", hard)
    with jax.enable_x64(True):
        q1, q2, gap = (np.array(x) for x in zip(*cases([(1.0, 1.0), (2.0, 0.5)]), strict=True))
        got, bound = pair_moments(slow, q1, q2, gap), pair_error(slow, q1, q2, gap)
        assert float(bound.derivative[0]) > 1e-4  # coincidence: algebraic convergence
        for i in (2, 4, 11):
            case = q1[i], q2[i], gap[i]
            right = plane(
                lambda u, v: (np.clip(u, -1, 1) - np.clip(v, -1, 1)) ** 2 / 2,
                *case,
                step=0.01,
                reach=8.0,
            )
            assert abs(float(got.gap[i]) - right) < float(bound.gap[i]) + 1e-5, case


@pytest.mark.parametrize(
    ("function", "odd", "even"),
    [
        (handmade_relu, 0.5, 0.5),
        (lambda x: jnp.maximum(-2 * x, 0.1 * x), -0.95, 1.05),
        (lambda x: -x, -1.0, 0.0),
    ],
)
def test_functions_of_degree_one_are_recognised(function, odd, even):
    """They are a x + b |x|, at rounding error, from a² E[uv] + b² E|u||v|."""
    with jax.enable_x64(True):
        q1, q2, gap = (np.array(x) for x in zip(*cases([(1.0, 1.0), (2.0, 0.5)]), strict=True))
        got = pair_moments(function, q1, q2, gap)
        absolute, linear = (pair_moments(name, q1, q2, gap) for name in ("abs", "linear"))
        for value, a, b in zip(got, linear, absolute, strict=True):
            np.testing.assert_allclose(value, odd**2 * a + even**2 * b, rtol=0, atol=1e-15)


@pytest.mark.slow
def test_quadratic_and_cubic_are_exact():
    """Polynomials have finite series: E[u²v²] = q1 q2 + 2 q12², E[u³v³] = 6 q12³ + 9 q1 q2 q12."""
    with jax.enable_x64(True):
        for q1, q2, gap in cases([(2.0, 0.7)]):
            q12 = (q1 + q2) / 2 - gap
            got = pair_moments(jnp.square, q1, q2, gap)
            value = (3 * q1**2 + 3 * q2**2) / 2 - (q1 * q2 + 2 * q12**2)
            np.testing.assert_allclose(got.gap, value, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(got.derivative, 4 * q12, rtol=1e-11)
            got = pair_moments(cube, q1, q2, gap)
            value = (15 * q1**3 + 15 * q2**3) / 2 - (6 * q12**3 + 9 * q1 * q2 * q12)
            np.testing.assert_allclose(got.gap, value, rtol=1e-11, atol=1e-12)


def cube(x):
    return x**3


@pytest.mark.slow
def test_tiles_and_broadcasting():
    """A large outer array equals its entries one by one; jit and vmap change nothing."""
    r = np.random.default_rng(1)
    x = r.normal(size=(300, 5))
    q = np.sum(x**2, axis=1) / 5
    gap = np.sum((x[:, None] - x[None]) ** 2, axis=-1) / 10
    with jax.enable_x64(True):
        whole = pair_moments("tanh", q[:, None], q[None, :], gap)
        picked = r.integers(0, 300, size=(3, 2))
        for i, j in [*picked, (7, 7), (299, 299)]:
            one = pair_moments("tanh", q[i], q[j], gap[i, j])
            np.testing.assert_allclose(whole.gap[i, j], one.gap, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(whole.derivative[i, j], one.derivative, rtol=1e-10)
        few = slice(0, 6)
        mapped = jax.jit(
            jax.vmap(
                lambda a, row: jax.vmap(lambda b, g: pair_moments("tanh", a, b, g))(q[few], row)
            )
        )(q[few], gap[few, few])
        np.testing.assert_allclose(mapped.gap, whole.gap[few, few], rtol=1e-10, atol=1e-13)
        stacked = pair_moments("tanh", q[None, few, None], q[None, None, few], gap[None, few, few])
        np.testing.assert_allclose(stacked.gap[0], mapped.gap, rtol=1e-12, atol=1e-14)
        assert pair_moments("tanh", q[:0, None], q[None, :0], gap[:0, :0]).gap.shape == (0, 0)


def test_single_gaussian():
    """E[z⁴], E[cos √q z] = e^(−q/2), and q = 0."""
    with jax.enable_x64(True):
        q = jnp.array([0.0, 0.3, 2.0])
        np.testing.assert_allclose(gaussian_mean(jnp.cos, q), np.exp(-q / 2), rtol=1e-14)
        np.testing.assert_allclose(second_moment(jnp.square, q), 3 * q**2, rtol=1e-13)
        np.testing.assert_allclose(mean("sigmoid", q), 0.5, rtol=1e-14)
        slope = jax.vmap(jax.grad(lambda v: gaussian_mean(jnp.cos, v)))(q)
        np.testing.assert_allclose(slope, -np.exp(-q / 2) / 2, rtol=1e-9)


def test_float32_agrees_with_float64():
    """Single precision takes fewer nodes and terms, and is right to its own precision."""
    q1, q2, gap = (np.array(x) for x in zip(*cases([(1.0, 1.0), (4.0, 2.0)]), strict=True))
    single = pair_moments("tanh", *(x.astype(np.float32) for x in (q1, q2, gap)))
    with jax.enable_x64(True):
        double = pair_moments("tanh", q1, q2, gap)
    assert single.gap.dtype == np.float32
    for a, b in zip(single, double, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-6)


def test_activation_records():
    """Frozen, equal, hashable, short in print."""
    tanh = as_activation("tanh")
    assert tanh == as_activation("tanh")
    assert hash(tanh) == hash(as_activation("tanh"))
    assert repr(tanh) == "tanh"
    assert isinstance(as_activation(cube), ActivationFunction)
    assert as_activation(cube) == as_activation(cube) != tanh
    assert float(as_activation("relu").derivative(0.0)) == 0.0
