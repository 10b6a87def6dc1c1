"""Functions of functions, which are one activation of a preactivation."""

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.sweep.initial_kernels import initial_tangent

RNG = np.random.default_rng(2)
DATA = lg.Dataset(RNG.standard_normal((5, 4)), RNG.standard_normal(5))
DENSE, TANH, RELU = lg.Dense(), lg.Activation("tanh"), lg.Activation("relu")


def run_of(*layers, param=None):
    net = lg.serial(DENSE, *layers, DENSE)
    return lg.Run(net, param or lg.mean_field(), DATA, optimizer=lg.gd(0.2), steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "param"),
    [
        pytest.param((TANH, RELU, DENSE, TANH), lg.mean_field(), id="function of a function"),
        pytest.param((lg.Residual(TANH), DENSE, RELU), lg.mean_field(), id="residual, 1"),
        pytest.param((lg.Residual(TANH), DENSE, RELU), lg.depth_mup(), id="residual, 1/2"),
        pytest.param(
            (lg.layers.Product(RELU, TANH), DENSE, lg.Residual(lg.serial(TANH, DENSE)), TANH),
            lg.depth_mup(),
            id="product of functions",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_tangent_kernel_is_that_of_the_kernel_recursion(layers, param):
    run = run_of(*layers, param=param)
    want = lg.ntk_kernel(run.net, DATA.x, param=param)
    np.testing.assert_allclose(initial_tangent(posed_by(run).problem), want, rtol=1e-6)


@pytest.mark.slow
def test_one_hidden_layer_with_two_functions_is_that_of_their_composition():
    both = lg.Activation(lambda x: jnp.tanh(jnp.tanh(x)))
    found, want = (lg.solve(run_of(*layers)) for layers in ((TANH, TANH), (both,)))
    assert found.theory == "mean field, one hidden layer"
    np.testing.assert_allclose(found.f_train, want.f_train, rtol=1e-4, atol=1e-6)
