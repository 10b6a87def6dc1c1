"""Activations with parameters: closed forms against mpmath, and that they behave as values."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import mp, mpf

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.expectations import (
    as_activation,
    derivative_second_moment,
    elu,
    gaussian,
    hermite,
    leaky_relu,
    mean,
    monomial,
    pair_moments,
    polynomial,
    rbf,
    second_moment,
)

CUBIC = (0.3, -1.0, 0.5, 0.25)


def _gaussian(a, b, ab, w=2):
    return 1 / mp.sqrt((1 + a / w**2) * (1 + b / w**2) - ab**2 / mpf(w) ** 4)


def _wick(coefficients):
    """E of products of monomials by the sum over pairings between u and v."""

    def covariance(a, b, ab):
        total = mpf(0)
        for i, c in enumerate(coefficients):
            for j, d in enumerate(coefficients):
                for k in range(min(i, j) % 2, min(i, j) + 1):
                    if (i - k) % 2 or (j - k) % 2:
                        continue
                    pairs = mp.binomial(i, k) * mp.binomial(j, k) * mp.factorial(k)
                    own = mp.fac2(i - k - 1) * mp.fac2(j - k - 1)
                    size = mpf(a) ** ((i - k) // 2) * mpf(b) ** ((j - k) // 2) * mpf(ab) ** k
                    total += mpf(c) * mpf(d) * pairs * own * size
        return total

    return covariance


CASES = {
    "gaussian": (gaussian(2.0), _gaussian),
    "rbf": (rbf(0.7), lambda a, b, ab: mp.exp(-mpf(0.7) * (a + b - 2 * ab))),
    "cubic": (polynomial(CUBIC), _wick(CUBIC)),
    "monomial": (monomial(5), _wick((0, 0, 0, 0, 0, 1))),
    "hermite": (hermite(4), _wick([mpf(c) / mp.sqrt(24) for c in (3, 0, -6, 0, 1)])),
}
VARIANCES = [(1.0, 1.0), (2.0, 0.5), (1e-3, 2e-3), (1.0, 1.001), (25.0, 30.0)]
ONE_MINUS_C = [0.0, 1e-13, 1e-6, 0.1, 1.0, 1.6, 2.0]


@pytest.mark.parametrize("name", CASES)
def test_pairs_against_mpmath(name):
    """Gaps to 1e-12 of their size, and E[φ'φ'] = ∂E[φφ]/∂q12 to 1e-12 of E[φ'²]."""
    phi, covariance = CASES[name]
    cases = [
        (a, b, (a**0.5 - b**0.5) ** 2 / 2 + (a * b) ** 0.5 * x)
        for a, b in VARIANCES
        for x in ONE_MINUS_C
    ]
    q1, q2, gap = np.array(cases).T
    with jax.enable_x64(True):
        got = pair_moments(phi, q1, q2, gap)
        scale = np.sqrt(derivative_second_moment(phi, q1) * derivative_second_moment(phi, q2))
        size = np.asarray(second_moment(phi, q1) + second_moment(phi, q2))
    with mp.workdps(60):
        for i, (a, b, g) in enumerate(cases):
            a, b, g = mpf(a), mpf(b), mpf(g)
            full = covariance(a, a, a), covariance(b, b, b)
            want = (full[0] + full[1]) / 2 - covariance(a, b, (a + b) / 2 - g)
            # What is of second order in q1 − q2 is known as well as that is, and opposite vectors
            # are as good as equal to an even φ.
            slack = 0 if a == b and g < a else 1e-13 * float(size[i])
            assert abs(float(got.gap[i]) - want) <= 1e-12 * abs(want) + slack, cases[i]
            step = mpf(10) ** -20 * mp.sqrt(a * b)
            q12 = (a + b) / 2 - g
            slope = covariance(a, b, q12 + step) - covariance(a, b, q12 - step)
            off = abs(float(got.derivative[i]) - slope / (2 * step))
            assert off <= 1e-12 * float(scale[i]), cases[i]
            assert abs(float(size[i]) - full[0] - full[1]) <= 1e-13 * float(size[i])


def test_near_coincidence_keeps_relative_precision():
    with jax.enable_x64(True):
        gap = np.array([1e-20, 1e-14])
        for phi, _ in CASES.values():
            got = pair_moments(phi, 2.0, 2.0, gap).gap
            np.testing.assert_allclose(got / gap, derivative_second_moment(phi, 2.0), rtol=1e-12)


def test_means_by_quadrature():
    z, w = np.polynomial.hermite_e.hermegauss(60)
    with jax.enable_x64(True):
        for phi, _ in CASES.values():
            want = w @ np.asarray(phi(np.sqrt(1.3) * z)) / np.sqrt(2 * np.pi)
            np.testing.assert_allclose(mean(phi, 1.3), want, rtol=1e-12, atol=1e-12)


def test_gradients():
    """Against finite differences, and finite where the inputs coincide or vanish."""

    def moments(point, phi):
        return jnp.stack(pair_moments(phi, *point))

    jacobian = jax.jit(jax.jacrev(moments), static_argnums=1)
    with jax.enable_x64(True):
        point = jnp.array([1.3, 0.8, 0.4])
        for phi in (CASES["gaussian"][0], CASES["cubic"][0]):
            want = [
                (moments(point + e, phi) - moments(point - e, phi)) / 2e-5 for e in 1e-5 * np.eye(3)
            ]
            np.testing.assert_allclose(jacobian(point, phi), jnp.stack(want, -1), rtol=1e-7)
            same = jacobian(jnp.array([1.3, 1.3, 0.0]), phi)
            np.testing.assert_allclose(
                same[0], [0, 0, derivative_second_moment(phi, 1.3)], atol=1e-12
            )
            assert np.isfinite(jacobian(jnp.array([0.0, 1.3, 0.65]), phi)).all()


@pytest.mark.parametrize("phi", ["sign", "step"])
def test_jumps(phi):
    """E[sign u sign v] = 1 − 2θ/π, the step a quarter of that and its mean ½."""
    c = np.array([1.0, 0.3, -0.9, -1.0])
    x = np.stack([np.ones(4), 0 * c], 1), np.stack([c, np.sqrt(1 - c**2)], 1)
    want = 1 - 2 * np.arccos(c) / np.pi
    got = lg.nngp_kernel(lg.mlp(1, phi), x[0][:1], x[1])[0]
    np.testing.assert_allclose(got, want if phi == "sign" else (want + 1) / 4, atol=1e-15)
    zero = lg.nngp_kernel(lg.mlp(1, phi), np.zeros((1, 2)), x[1])
    np.testing.assert_allclose(zero, 0, atol=1e-15)


@pytest.mark.parametrize("function", [lg.kernel, lg.ntk_kernel])
def test_tangent_kernel_of_a_jump_is_refused(function):
    with pytest.raises(NoTheory, match=r"sign jumps, so that E\[φ'φ'\] diverges"):
        function(lg.mlp(2, "sign"), np.eye(3))
    data = lg.Dataset(np.eye(3), np.ones(3))
    with pytest.raises(NoTheory, match="step jumps"):
        lg.solve(lg.Run(lg.mlp(1, "step"), lg.ntk(), data, optimizer=lg.gd(0.1), steps=1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: elu(0.5),
        lambda: leaky_relu(0.2),
        lambda: gaussian(2.0),
        lambda: rbf(3.0),
        lambda: polynomial([1, 2]),
        lambda: hermite(3),
        lambda: as_activation("selu"),
        lambda: as_activation("sign"),
        lambda: as_activation("gaussian"),
    ],
)
def test_values(make):
    """Equal parameters make equal activations, hashable, copied and pickled."""
    one, two = make(), make()
    assert one == two
    assert hash(one) == hash(two)
    for copied in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copied == one
    net = lg.mlp(2, make())
    assert pickle.loads(pickle.dumps(net)) == net
    x = jnp.array([-1.3, 0.4], np.float32)
    slope = jax.vmap(jax.grad(one.function))(x)
    np.testing.assert_allclose(one.derivative(x), slope, rtol=1e-5)
    assert one(x).dtype == one.derivative(x).dtype == np.float32


def test_families_agree_with_names():
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    for ours, theirs in (
        (as_activation("elu"), jax.nn.elu),
        (as_activation("selu"), jax.nn.selu),
        (as_activation("leaky_relu"), jax.nn.leaky_relu),
        (as_activation("sign"), jnp.sign),
        (hermite(2), lambda x: (x**2 - 1) / np.sqrt(2, dtype=np.float32)),
    ):
        np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-6, atol=1e-7)
    assert str(hermite(2)) == "hermite(2)"
    assert repr(lg.Activation(elu(0.5))) == "Activation('elu(0.5)')"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hermite(-1), "degree: wanted an integer ≥ 0"),
        (lambda: monomial(17), "degree: wanted at most 16"),
        (lambda: gaussian(0.0), "width: wanted a finite number > 0"),
        (lambda: polynomial([np.nan]), "coefficients: wanted finite"),
        (lambda: polynomial(np.ones((2, 2))), "coefficients: wanted a sequence"),
    ],
)
def test_wrong_parameters(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
