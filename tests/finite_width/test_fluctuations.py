"""Sampled fluctuations of many inputs against the exact tensors of few."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.random.default_rng(3).normal(size=(3, 4))
SAMPLES = 60_000


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_samples_have_the_exact_tensors(name):
    net, widths = lg.mlp(3, name, weight_std=1.3, bias_std=0.2), (50, 70, 60)
    exact = lg.finite_width.width_corrections(net, X, width=widths)
    found = lg.finite_width.width_fluctuations(net, X, width=widths, draws=SAMPLES, key=0)
    assert np.allclose(found.kernel, exact.kernel, rtol=1e-12)
    assert np.allclose(found.ntk, exact.ntk, rtol=1e-12)
    pairs = exact.pairs.tolist()
    i, j = exact.pairs.T
    S, H = (each[:, i, j] for each in (found.kernel_samples, found.ntk_samples))
    for seen, samples, wanted in (
        (found.kernel_covariance(pairs), S, exact.kernel_covariance),
        (found.ntk_covariance(pairs), H, exact.ntk_covariance),
    ):
        products = samples[:, :, None] * samples[:, None]
        error = products.std(axis=0) / np.sqrt(SAMPLES)
        assert np.all(np.abs(seen - wanted) < 4.5 * error)
    for name in ("kernel_shift", "ntk_shift"):
        wanted = getattr(exact, name)
        slack = 0.02 * np.abs(exact.ntk).max() / 50  # where the shift of relu is 0
        assert np.abs(getattr(found, name) - wanted).max() < max(0.03 * np.abs(wanted).max(), slack)


def test_kernel_and_tangent_kernel_belong_together():
    # One hidden layer and one input: δH̄ = w(φ² − E) + wK(φ'² − E), which is D, by hand.
    net = lg.mlp(1, "tanh", weight_std=1.1)
    found = lg.finite_width.width_fluctuations(net, X[:1], width=40, draws=SAMPLES, key=1)
    K = 1.21 * X[0] @ X[0] / 4
    z, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    value, slope = np.tanh(np.sqrt(K) * z) ** 2, (1 - np.tanh(np.sqrt(K) * z) ** 2) ** 2
    mixed = weights @ (value * (value + K * slope)) - (weights @ value) * (
        weights @ (value + K * slope)
    )
    products = found.kernel_samples[:, 0, 0] * found.ntk_samples[:, 0, 0]
    error = products.std() / np.sqrt(SAMPLES)
    assert abs(products.mean() - 1.21**2 * mixed / 40) < 4 * error


def test_results_and_errors():
    net = lg.mlp(2, "tanh")
    found = lg.finite_width.width_fluctuations(net, X, width=30, draws=200, key=0)
    assert "3 inputs, 200 samples" in repr(found)
    assert found.to_xarray()["ntk_std"].shape == (3, 3)
    with pytest.raises(InvalidInput, match="pairs"):
        found.kernel_covariance([(0, 3)])
    with pytest.raises(InvalidInput, match="2\\*\\*28"):
        lg.finite_width.width_fluctuations(net, X, width=30, draws=10**8, key=0)
