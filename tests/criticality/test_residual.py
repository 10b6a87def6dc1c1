"""Residual networks between order and chaos: gradients grow with the root of the depth."""

import numpy as np
import pytest

import largen as lg

X = np.eye(3)[:2] * np.sqrt(3)  # two orthogonal samples of mean square 1
Z = np.linspace(-12, 12, 24001)  # the trapezoidal rule, independent of largen's nodes
P = np.exp(-(Z**2) / 2)
P = P / P.sum()


def blocks(activation, count, **stds):
    """Return variances behind the read-in and all blocks, and factors of gradients of blocks."""
    net = lg.residual_mlp(count, activation, **stds)
    found = lg.criticality.propagate(net, X)
    assert all("residual" in name for name in found.layers[1 : count + 1])
    return found.variance[: count + 1, 0], found.chi_perp[1 : count + 1, 0]


@pytest.mark.parametrize("std", [0.5, 1.3])
def test_linear_branches_multiply_variances_and_gradients(std):
    variance, factors = blocks("linear", 6, weight_std=std)
    np.testing.assert_allclose(variance, std**2 * (1 + std**2) ** np.arange(7), rtol=1e-12)
    np.testing.assert_allclose(factors, 1 + std**2, rtol=1e-12)


@pytest.mark.slow
def test_saturating_branches_add_to_the_variance():
    """K grows by σ_w² E[tanh²] + σ_b², and log of gradients by about c(√L − √l).

    E[tanh'²] → (4/3)/√(2πK) where K = (σ_w² + σ_b²)l is large, so that c = (8/3) σ_w²/√(2π(σ_w² +
    σ_b²)): neither order nor chaos (Yang and Schoenholz, 2017).
    """
    w, b, L = 1.2, 1.0, 120
    variance, factors = blocks("tanh", L, weight_std=w, bias_std=b)
    K = w**2 + b**2
    for at, factor in zip(variance, factors, strict=False):
        assert at == pytest.approx(K, rel=1e-8)
        phi = np.tanh(np.sqrt(K) * Z)
        assert factor == pytest.approx(1 + w**2 * P @ (1 - phi**2) ** 2, rel=1e-8)
        K += w**2 * P @ phi**2 + b**2
    c = 8 / 3 * w**2 / np.sqrt(2 * np.pi * (w**2 + b**2))
    grown = np.log(factors[40:]).sum() / (np.sqrt(L) - np.sqrt(40))
    assert grown == pytest.approx(c, rel=0.02)  # without biases in c it would be larger by 30 %
    assert variance[-1] - variance[-2] == pytest.approx(w**2 + b**2, rel=0.05)
