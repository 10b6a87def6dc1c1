"""Piecewise linear functions: recognised, and integrated as exactly as those in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from tests.expectations.references import panels, split

import largen as lg
from largen.errors import NoTheory
from largen.expectations import (
    ActivationFunction,
    as_activation,
    derivative_second_moment,
    mean,
    pair_moments,
    second_moment,
    with_kinks,
)
from largen.expectations.jumps import SIGN
from largen.expectations.piecewise_linear import Kink, piecewise_linear

CORRELATIONS = (0.9999, 0.9, -0.5, -0.999999)


def hard(x):
    return jnp.clip(x, -1, 1)


def bent(x):
    return jnp.where(x > 0.7, 2 * x - 0.75, jnp.where(x < -0.2, -x, 0.5 * x + 0.3))


KINKS = {hard: (-1.0, 1.0), bent: (-0.2, 0.7)}


@pytest.mark.slow
@pytest.mark.parametrize("phi", [hard, bent])
def test_pairs_against_split_integrals(phi):
    cases = [
        (q1, q2, c) for q1, q2 in ((1.0, 1.0), (0.05, 3.0), (30.0, 31.0)) for c in CORRELATIONS
    ]
    q1, q2, c = np.array(cases).T
    with jax.enable_x64(True):
        got = pair_moments(phi, q1, q2, (q1 + q2) / 2 - c * np.sqrt(q1 * q2))
        value = (second_moment(phi, q1) + second_moment(phi, q2)) / 2 - got.gap
        for function, moment in ((phi, value), (as_activation(phi).derivative, got.derivative)):
            want = [
                split(lambda x, f=function: np.asarray(f(x)), KINKS[phi], *case) for case in cases
            ]
            np.testing.assert_allclose(moment, want, rtol=1e-12, atol=1e-13)


def test_one_kink_at_zero_is_relu():
    """The integral over the angle in the case that has a closed form, to relative precision."""
    ours = ActivationFunction(
        "relu", jax.nn.relu, None, piecewise_linear(0.0, 0.0, (Kink(0.0, 0.0, 1.0, 0.0),), 0.0)
    )
    with jax.enable_x64(True):
        one_minus_c = np.array([0, 1e-15, 1e-8, 0.01, 0.5, 1, 1.9, 2 - 1e-9, 2])
        for q1, q2 in ((1.0, 1.0), (2.0, 0.1), (1.0, 1.0 + 1e-7), (0.0, 1.0)):
            gap = (np.sqrt(q1) - np.sqrt(q2)) ** 2 / 2 + np.sqrt(q1 * q2) * one_minus_c
            got, want = (pair_moments(phi, q1, q2, gap) for phi in (ours, "relu"))
            # Digits are lost at angle π, and where √q1 − √q2 = 5e-8 is known to 1e-9 only.
            scale = np.where(one_minus_c == 2, 1e-11, 1e-13 if q1 == q2 else 1e-8)
            assert np.all(np.abs(got.gap - want.gap) <= scale * want.gap)
            assert np.all(np.abs(got.derivative - want.derivative) <= np.minimum(scale, 1e-11))
        q = np.array([0.0, 1e-8, 2.0, 100.0])
        for moment in (second_moment, derivative_second_moment, mean):
            np.testing.assert_allclose(moment(ours, q), moment("relu", q), rtol=1e-14, atol=1e-100)


def test_moments_of_slopes_beside_a_bend():
    bent = as_activation(lambda x: jnp.where(x > 0.3, 2 * x - 0.45, 0.5 * x))
    q = np.array([0.3, 2.0])
    above = norm.sf(0.3 / np.sqrt(q))
    with jax.enable_x64(True):
        got = derivative_second_moment(bent, q)
    np.testing.assert_allclose(got, 2**2 * above + 0.5**2 * (1 - above), rtol=1e-13)


def test_hard_tanh_of_small_inputs_is_linear():
    with jax.enable_x64(True):
        got = pair_moments(hard, 1e-4, np.array([1e-4, 3e-4]), np.array([1e-12, 1e-4]))
        np.testing.assert_allclose(got.gap, [1e-12, 1e-4], rtol=1e-14)
        np.testing.assert_array_equal(got.derivative, 1.0)
        np.testing.assert_allclose(second_moment(hard, 1e-4), 1e-4, rtol=1e-15)


def test_near_coincidence_keeps_relative_precision():
    """gap'/gap and E[φ'φ'] fall short of E[φ'²] by the order of √gap."""
    with jax.enable_x64(True):
        gap = np.array([1e-20, 1e-16, 1e-12])
        got = pair_moments(hard, 2.0, 2.0, gap)
        inside = float(derivative_second_moment(hard, 2.0))
        shortfall = (inside - np.asarray(got.gap) / gap) / np.sqrt(gap)
        # e^(−h²/2) θ/2π for each of two kinks, 2/3 of that in the gap; h² = ½, θ² = gap
        want = 2 / 3 * 2 * np.exp(-1 / 4) / (2 * np.pi)
        np.testing.assert_allclose(shortfall, want, rtol=1e-4)
        np.testing.assert_allclose((inside - got.derivative) / np.sqrt(gap), want * 1.5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("phi", [hard, bent])
def test_gradients(phi):
    def moments(point):
        return jnp.stack(pair_moments(phi, *point))

    with jax.enable_x64(True):
        point = jnp.array([1.3, 0.8, 0.4])
        jacobian = jax.jit(jax.jacfwd(moments))
        differences = [(moments(point + e) - moments(point - e)) / 2e-5 for e in 1e-5 * jnp.eye(3)]
        np.testing.assert_allclose(jacobian(point), jnp.stack(differences, -1), atol=1e-8)
        found = jacobian(jnp.array([1.3, 1.3, 0.0]))
        diagonal = derivative_second_moment(phi, 1.3)
        np.testing.assert_allclose(found[0], [0, 0, diagonal], atol=1e-13)
        along = jax.grad(lambda q: derivative_second_moment(phi, q))(1.3)
        np.testing.assert_allclose(found[1], [along / 2, along / 2, 0], atol=1e-13)


@pytest.mark.slow
def test_kernels_of_public_functions():
    """float32 in the user's jit agrees with float64; a hard tanh is no longer refused."""
    x = np.random.default_rng(2).normal(size=(4, 3))
    net = lg.mlp(2, hard, bias_std=0.3)
    double = lg.kernel(net, x)
    single = jax.jit(lambda x: lg.kernel(net, x))(x.astype(np.float32))
    for a, b in zip(single, double, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "function", [jax.nn.relu6, jax.nn.hard_sigmoid, lambda x: jnp.abs(x - 1) - jnp.abs(x + 2)]
)
def test_recognised(function):
    phi, q = as_activation(function), np.array([0.2, 3.0])
    assert phi.closed_form is not None
    z, weights = panels(np.sort([*np.arange(-10, 11), *(np.array([-3, -2, 0, 1, 3, 6]) / 3**0.5)]))
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            mean(phi, q)[1], weights @ np.asarray(phi(3**0.5 * z)), rtol=1e-13
        )
        np.testing.assert_allclose(
            second_moment(phi, q)[1], weights @ np.asarray(phi(3**0.5 * z)) ** 2, rtol=1e-13
        )


def step_by_hand(x):
    return (x > 0) * 1.0


@pytest.mark.parametrize(("name", "function"), [("sign", jnp.sign), ("step", step_by_hand)])
def test_jumps_at_zero_are_those_of_the_named_activations(name, function):
    x = np.random.default_rng(0).standard_normal((4, 3))
    kernel = lg.nngp_kernel(lg.mlp(2, function), x)
    np.testing.assert_allclose(kernel, lg.nngp_kernel(lg.mlp(2, name), x), rtol=1e-14)
    with pytest.raises(NoTheory, match="jumps"):
        lg.ntk_kernel(lg.mlp(2, function), x)
    # Another value at 0, or a further jump, is another function.
    assert as_activation(lambda x: jnp.where(x >= 0, 1.0, -1.0)).closed_form is not SIGN
    assert as_activation(lambda x: jnp.sign(x) + (x > 3)).closed_form is not SIGN


def test_a_list_of_kinks_finds_jumps():
    assert with_kinks(jnp.sign, [0.0]).jumps
    assert with_kinks(lambda x: x + (x > 1), [1.0]).jumps
    assert not with_kinks(lambda x: jnp.maximum(x, 1.0), [1.0]).jumps


@pytest.mark.parametrize(
    "function",
    [
        jnp.tanh,
        jax.nn.elu,
        jnp.square,
        lambda x: jnp.sqrt(1 + jnp.abs(x)),
        lambda x: jnp.abs(x) + 1e-9 * x**2,
        lambda x: jnp.maximum(x, 1e-5 * jnp.tanh(x)),
        lambda x: jnp.abs((x - 1) % 4 - 2) - 1,  # a triangle wave, with too many kinks
    ],
)
def test_others_are_not_taken_for_one(function):
    assert as_activation(function).closed_form is None
