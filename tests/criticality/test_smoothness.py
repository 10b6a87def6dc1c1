"""Gradients of random networks in their inputs, in closed form and of drawn networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4))
NODES = 0.005 * (np.arange(-2400, 2400) + 0.5)  # the trapezoidal rule, exact to rounding
MASSES = np.exp(-(NODES**2) / 2)
SLOPE = {"tanh": lambda u: 1 - np.tanh(u) ** 2, "relu": lambda u: 1.0 * (u > 0)}
VALUE = {"tanh": np.tanh, "relu": lambda u: np.maximum(u, 0)}


def square_of_gradient(name, x, layers, weight, bias):
    """E|∇f|² by the variances of h and of its derivatives along x and across it, layer by layer.

    A derivative along x is jointly Gaussian with h: (r/q)h and an independent rest.
    """
    q, r = bias**2 + weight**2 * x @ x / len(x), weight**2 * np.linalg.norm(x) / len(x)
    along = across = weight**2 / len(x)
    for _ in range(layers):
        h = np.sqrt(q) * NODES

        def mean(values):
            return weight**2 * float(MASSES @ values / MASSES.sum())

        value, slope = VALUE[name](h), SLOPE[name](h)
        chi = mean(slope**2)
        along = (r / q) ** 2 * mean(slope**2 * h**2) + (along - r**2 / q) * chi
        q, r, across = bias**2 + mean(value**2), r / q * mean(value * slope * h), across * chi
    return along + (len(x) - 1) * across


@pytest.mark.parametrize("name", ["relu", pytest.param("tanh", marks=pytest.mark.slow)])
def test_gradients_of_one_sample_follow_two_variances(name):
    net = lg.mlp(2, name, weight_std=1.5, bias_std=0.3)
    found = lg.criticality.input_gradients(net, X)
    known = [square_of_gradient(name, x, 2, 1.5, 0.3) for x in X]
    np.testing.assert_allclose(found.norm**2, known, rtol=1e-9)
    np.testing.assert_allclose(found.output_std**2, np.diag(lg.nngp_kernel(net, X)), rtol=1e-12)


def test_relu_without_biases_changes_its_sign_within_a_root_of_the_inputs():
    """Σ = K/|x|² in all directions, as φ'² is ½ on average whatever h."""
    net = lg.mlp(2, "relu", weight_std=2**0.5)
    found = lg.criticality.input_gradients(net, X)
    np.testing.assert_allclose(found.perturbation, np.linalg.norm(X, axis=1) / 2, rtol=1e-12)
    net = lg.mlp(3, "linear", weight_std=1.3)
    np.testing.assert_allclose(
        lg.criticality.input_gradients(net, X, param=lg.mean_field(2.0)).kernel, 1.3**8, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "power"), [("relu", 1), pytest.param("erf", 2, marks=pytest.mark.slow)]
)
def test_gradients_differ_nearby_by_the_distance_or_its_square(name, power):
    x = np.array([[1.0, 0.0]])
    near = np.concatenate([x, [[np.cos(t), np.sin(t)] for t in (1e-3, 2e-3)]])
    found = lg.criticality.input_gradients(lg.mlp(1, name), near)
    gap = 1 - found.correlation[0, 1:]
    assert np.log2(gap[1] / gap[0]) == pytest.approx(power, abs=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.ntk(), lg.standard()])
@pytest.mark.parametrize(
    "net",
    [
        lg.serial(lg.Dense(), lg.LayerNorm(), lg.Activation("relu"), lg.Dense()),
        lg.residual_mlp(2, "gelu", weight_std=1.2, bias_std=0.2),
    ],
)
def test_drawn_networks_have_these_gradients(net, param):
    found = lg.criticality.input_gradients(net, X, param=param)
    network = lg.networks.finite_network(net, param, width=256, inputs=4)
    keys = jax.random.split(jax.random.key(0), 2000)

    @jax.jit
    @jax.vmap
    def kernel(key):
        params = network.init(key)
        G = jax.vmap(jax.grad(lambda x: network.outputs_of(params, x[None])[0]))(jnp.asarray(X))
        return G @ G.T

    kernels = np.asarray(kernel(keys), np.float64)
    error = kernels.std(0) / np.sqrt(len(keys)) + 0.01 * np.abs(found.kernel)
    assert np.abs((kernels.mean(0) - found.kernel) / error).max() < 4


@pytest.mark.slow
def test_a_step_along_the_gradient_changes_the_sign():
    """Of most networks; its length has the median of a Gaussian's absolute value."""
    x = RNG.standard_normal(60)
    net = lg.mlp(2, "relu", weight_std=2**0.5)
    scale = lg.criticality.input_gradients(net, x[None]).perturbation[0]
    network = lg.networks.finite_network(net, lg.ntk(), width=400, inputs=60)

    @jax.jit
    @jax.vmap
    def attack(key):
        params = network.init(key)

        def f(x):
            return network.outputs_of(params, x[None])[0]

        value, g = jax.value_and_grad(f)(jnp.asarray(x))
        moved = f(x - 1.3 * value * g / (g @ g))
        return jnp.abs(value) / jnp.linalg.norm(g), moved * value < 0

    seeds = 1000
    length, changed = map(np.asarray, attack(jax.random.split(jax.random.key(1), seeds)))
    # The density of |z|/0.6745 at its median 1 is 0.4287: its error is 1/(2 · 0.4287 √seeds).
    assert np.median(length) / scale / 0.6745 == pytest.approx(1, abs=4 * 1.17 / seeds**0.5)
    assert changed.mean() > 0.9


def test_refusals():
    with pytest.raises(InvalidInput, match="x"):
        lg.criticality.input_gradients(lg.mlp(1, "relu"), np.zeros((2, 0)))
    with pytest.raises(NumericalFailure, match="overflows"):
        lg.criticality.input_gradients(lg.mlp(3, "relu", weight_std=1e80), 1e200 * X)
