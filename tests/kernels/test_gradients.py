"""Gradients of kernels with respect to inputs, against finite differences in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg

RNG = np.random.default_rng(4)
X, X2 = RNG.standard_normal((3, 2)), RNG.standard_normal((3, 2))
WEIGHTS = RNG.standard_normal((2, 3, 3))


def both(kernels):
    """A number that depends on every entry of both kernels."""
    return (kernels.nngp * WEIGHTS[0]).sum() + (kernels.ntk * WEIGHTS[1]).sum()


def gradient(function, x):
    with jax.enable_x64(True):
        return np.asarray(jax.grad(function)(jnp.asarray(x)))


def differences(function, x, step=1e-5):
    out = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        out[index] = (float(function(up)) - float(function(down))) / (2 * step)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("act", ["relu", "erf", pytest.param("tanh", marks=pytest.mark.slow)])
def test_gradients_against_differences(act):
    net = lg.mlp(2, act, weight_std=1.2, bias_std=0.1)
    for second in (None,) if act == "tanh" else (None, X2):

        def function(x, second=second):
            return both(lg.kernel(net, x, second))

        np.testing.assert_allclose(gradient(function, X), differences(function, X), atol=2e-8)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["relu", "erf", "tanh"])
def test_gradients_where_inputs_coincide(act):
    # One set of inputs moves through the other. The NTK of relu has a kink there, |x − x'|, and
    # counts with the slope along the diagonal; the NNGP of relu and all else is smooth.
    net = lg.mlp(2, act, weight_std=1.2, bias_std=0.1)
    twins = np.repeat(X[:1], 3, axis=0)

    def function(moving):
        kernels = lg.kernel(net, twins, moving)
        return kernels.nngp[0, 0] if act == "relu" else both(kernels)

    np.testing.assert_allclose(gradient(function, twins), differences(function, twins), atol=3e-8)
    assert np.isfinite(gradient(lambda x: both(lg.kernel(net, x)), twins)).all()
    if act == "relu":
        along = gradient(lambda y: both(lg.kernel(net, twins, y)), twins)
        assert np.isfinite(along).all()


@pytest.mark.slow
def test_gradients_through_a_deep_loop():
    net = lg.mlp(30, "relu", weight_std=2**0.5)

    def function(x):
        return both(lg.kernel(net, x))

    np.testing.assert_allclose(
        gradient(function, X), differences(function, X), rtol=1e-6, atol=1e-7
    )


SPATIAL = lg.serial(
    lg.Conv((3,), weight_std=1.3, bias_std=0.2), lg.Activation("erf"), lg.layers.AvgPool((2,),
        strides=1),
    lg.Residual(lg.serial(lg.LayerNorm(), lg.layers.SelfAttention(), lg.Dense(weight_std=1.2))),
    lg.GlobalAvgPool(), lg.Dense(),
)  # fmt: skip


@pytest.mark.slow
def test_gradients_behind_pooling_and_attention():
    x = RNG.standard_normal((3, 4, 2))

    def function(x):
        return both(lg.kernel(SPATIAL, x))

    np.testing.assert_allclose(gradient(function, x), differences(function, x), atol=2e-8)
    # One set of samples moves through the other, which coincides with it.
    twins = np.repeat(x[:1], 3, axis=0)

    def moving(y):
        return both(lg.kernel(SPATIAL, twins, y))

    np.testing.assert_allclose(gradient(moving, twins), differences(moving, twins), atol=2e-8)
    assert np.isfinite(gradient(function, twins)).all()
