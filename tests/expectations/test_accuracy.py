"""What is reported where expectations are inaccurate, and that it is true."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.expectations import (
    ActivationFunction,
    as_activation,
    derivative_second_moment,
    gaussian_moments,
    moment_error,
    pair_error,
    second_moment,
)
from largen.expectations.accuracy import moments_at, relative_error
from largen.kernels.accuracy import activations_of, with_suitable_methods
from largen.kernels.nngp_ntk import prepare

X = np.random.default_rng(8).normal(size=(5, 4))
VARIANCES = np.array([0.1, 1.0, 10.0, 100.0])


def bent(x):
    """Curved between more kinks than are looked for, so that no method resolves it."""
    return x + 0.1 * jnp.sin(jnp.abs((x - 1) % 4 - 2))


def root(x):
    return jnp.sqrt(x)


def test_bound_at_a_few_variances_is_that_of_the_series():
    """The cheap bound is at least the one that is found entry by entry, and not far above."""
    phi = "tanh"
    cheap = relative_error(as_activation(phi), VARIANCES)
    with jax.enable_x64(True):
        full = [pair_error(phi, q, q, 0.0) for q in VARIANCES]
        scales = second_moment(phi, VARIANCES), derivative_second_moment(phi, VARIANCES)
        for i, errors in enumerate(full):
            for bound, error, scale in zip(cheap, errors, scales, strict=True):
                assert 0.5 * error / scale[i] < bound[i] < 3 * error / scale[i] + 3e-12


def test_single_moments_within_their_error():
    """Hard tanh: E[φ²] = erf(1/√2q) (q − 1) + 1 − √(2q/π) e^(−1/2q); tanh is exact."""

    hard = ActivationFunction("hard", lambda x: jnp.clip(x, -1, 1))  # by quadrature
    with jax.enable_x64(True):
        q = jnp.linspace(0.1, 30.0, 57)
        inside = jax.scipy.special.erf(1 / jnp.sqrt(2 * q))
        want = inside * (q - 1) + 1 - jnp.sqrt(2 * q / np.pi) * jnp.exp(-1 / (2 * q))
        error = moment_error(hard, q)
        assert np.all(np.abs(second_moment(hard, q) - want) <= error.second_moment)
        assert np.all(np.abs(derivative_second_moment(hard, q) - inside) <= error[1])
        assert float(error.second_moment.max()) < 4e-3  # rather than 4 %
        assert all(float(e.max()) < 1e-13 for e in moment_error("tanh", q[:20]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lg.kernel,
        *(pytest.param(f, marks=pytest.mark.slow) for f in (lg.nngp_kernel, lg.ntk_kernel)),
    ],
)
def test_kernels_do_not_return_inaccurate_numbers_silently(function):
    net = lg.mlp(1, bent)
    with pytest.raises(NumericalFailure, match=r"bent have an estimated relative error of") as e:
        function(net, X)
    np.testing.assert_array_equal(e.value.result, function(net, X, throw=False))
    function(net, X, rtol=0.5)
    with pytest.raises(InvalidInput, match="rtol"):
        function(net, X, rtol=-1.0)


@pytest.mark.slow
def test_checks_follow_the_variances_through_the_layers():
    """The series of tanh fails at variance 280, which only a later layer sees: the angle helps."""
    tanh, wide = lg.Activation("tanh"), lg.Dense(weight_std=6.0)
    network = lg.serial(
        lg.Dense(), lg.repeat(lg.Residual(lg.serial(tanh, wide)), 3), tanh, lg.Dense()
    )
    lowered, _ = prepare(network, lg.ntk(), 4)
    chosen = with_suitable_methods(lowered, (10 * X,))
    assert {phi.reach for phi in activations_of(chosen.program)} == {32.0}
    lowered, _ = prepare(lg.mlp(2, "tanh"), lg.ntk(), 4)
    assert with_suitable_methods(lowered, (X,)) is lowered
    lg.kernel(lg.mlp(3, "tanh", weight_std=3.0), X)
    with pytest.raises(InvalidInput, match="is not a number"):
        lg.mlp(1, root)


@pytest.mark.slow
def test_gaussian_moments_say_so():
    with pytest.raises(NumericalFailure, match="bent") as caught:
        gaussian_moments(bent, 1.0, 0.5, np.ones(2))
    value, _ = gaussian_moments(bent, 1.0, 0.5, np.ones(2), throw=False)
    np.testing.assert_array_equal(caught.value.result[0], value)
    one = np.ones(1, np.float32)
    with pytest.raises(NumericalFailure):
        gaussian_moments(bent, one, one / 2, one)


@pytest.mark.slow
def test_solutions_carry_it_in_their_status():
    data = lg.Dataset(X, np.ones(5))
    run = lg.Run(lg.mlp(1, bent), lg.ntk(), data, optimizer=lg.gd(0.1), steps=2)
    with pytest.raises(NumericalFailure, match="bent"):
        lg.solve(run)
    assert lg.solve(run, throw=False).status == "inaccurate"
    assert lg.solve(run, kernel_rtol=1.0).status == "ok"


def test_moments_at_variances_are_those_of_a_cosine():
    q = np.array([0.25, 1.0, 4.0])
    found = moments_at(as_activation(lambda x: jnp.cos(x)), q)
    twice = np.exp(-2 * q)
    np.testing.assert_allclose(found.second_moment, (1 + twice) / 2, rtol=1e-8)
    np.testing.assert_allclose(found.derivative_second_moment, (1 - twice) / 2, rtol=1e-8)
    np.testing.assert_allclose(found.mean, np.exp(-q / 2), rtol=1e-8)
