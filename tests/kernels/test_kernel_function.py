"""Kernels as a function of σ_w and σ_b: those of the networks, and gradients by differences."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import largen as lg
from largen.architectures import Affine
from largen.errors import InvalidInput, NoTheory
from largen.kernels.hyperparameters import with_stds

RNG = np.random.default_rng(8)
X, X2, IMAGES = (RNG.standard_normal(shape) for shape in ((3, 4), (2, 4), (2, 5, 3)))
MLP = lg.mlp(3, "relu", weight_std=1.2, bias_std=0.3)
RESIDUAL = lg.residual_mlp(3, "tanh", weight_std=1.1, bias_std=0.2)
CNN = lg.serial(
    lg.Conv((3,), weight_std=1.3, bias_std=0.2), lg.Activation("erf"), lg.GlobalAvgPool(),
    lg.Dense(weight_std=0.8),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "x", "param"),
    [
        (MLP, X, lg.ntk()),
        (MLP, X, lg.standard()),  # rates fall with σ²
        (MLP, X, lg.mup()),
        (RESIDUAL, X, lg.depth_mup()),
        (CNN, IMAGES, lg.standard()),
    ],
)
def test_kernels_of_the_networks(net, x, param):
    kernels = lg.kernels.kernel_of_stds(net, x, param=param)
    for got, want in zip(kernels(), lg.kernel(net, x, param=param), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
    factors = RNG.uniform(0.6, 1.6, len(kernels.stds))
    others = {n: s * f for (n, s), f in zip(kernels.stds.items(), factors, strict=True)}
    want = lg.kernel(with_stds(net, others), x, param=param)
    for got, wanted in zip(kernels(others), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.ntk(), lg.standard()])
@pytest.mark.parametrize("name", ["weight_std", "bias_std"])
def test_gradients_against_differences(name, param):
    weights = RNG.standard_normal((2, 3, 2))

    def total(kernels):
        return sum((kernel * w).sum() for kernel, w in zip(kernels, weights, strict=True))

    def at(size):
        sizes = {"weight_std": 1.2, "bias_std": 0.3, name: size}
        return float(total(lg.kernel(lg.mlp(2, "erf", **sizes), X, X2, param=param)))

    net = lg.mlp(2, "erf", weight_std=1.2, bias_std=0.3)
    kernels = lg.kernels.kernel_of_stds(net, X, X2, param=param)
    names = [each for each in kernels.stds if each.endswith(name)]
    size = kernels.stds[names[0]]
    with jax.enable_x64(True):
        slope = jax.grad(lambda s: total(kernels(dict.fromkeys(names, s))))(size)
    np.testing.assert_allclose(slope, (at(size + 1e-5) - at(size - 1e-5)) / 2e-5, rtol=1e-7)


@pytest.mark.slow
def test_masks():
    there = np.ones((2, 5), bool)
    there[1, 3:] = False
    for masks in ({"mask1": there}, {"x2": IMAGES[:1], "mask1": there}):
        got, want = (
            lg.kernels.kernel_of_stds(CNN, IMAGES, **masks)(),
            lg.kernel(CNN, IMAGES, **masks),
        )
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_precision_follows_the_inputs():
    assert lg.kernels.kernel_of_stds(MLP, X)().ntk.dtype == np.float64
    assert lg.kernels.kernel_of_stds(MLP, X.astype("f"))().ntk.dtype == np.float32


def test_wrong_input():
    with pytest.raises(InvalidInput, match=r"no '2.bias_std', only 0.weight_std"):
        lg.kernels.kernel_of_stds(lg.mlp(1), X)({"2.bias_std": 0.1})
    with pytest.raises(NoTheory, match=r"lg.nngp_kernel"):
        lg.kernels.kernel_of_stds(lg.mlp(1, "sign"), X)
    with pytest.raises(InvalidInput, match=r"lg.kernels.kernel_of_stds"):
        jax.grad(lambda s: Affine.__post_init__(SimpleNamespace(weight_std=s)))(1.0)
