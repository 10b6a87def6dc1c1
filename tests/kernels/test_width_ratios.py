"""Kernels of networks with layers of unequal widths."""

import numpy as np
import pytest

import largen as lg

X = np.random.default_rng(5).normal(size=(4, 6))
PLAIN = lg.mlp(3, "erf", weight_std=1.4, bias_std=0.3)
NET = lg.mlp(3, "erf", weight_std=1.4, bias_std=0.3, width_ratios=(1 / 2, 2, 1))


def test_limits_with_factors_outside_do_not_depend_on_ratios():
    for one, two in zip(lg.kernel(NET, X), lg.kernel(PLAIN, X), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)


@pytest.mark.slow
def test_shares_of_a_concatenation():
    """Features side by side count by their numbers."""
    wide = lg.serial(lg.Dense(weight_std=2.0, width_ratio=3), lg.Activation("relu"))
    narrow = lg.serial(lg.Dense(), lg.Activation("tanh"))
    found = lg.nngp_kernel(lg.serial(lg.layers.Concatenate(wide, narrow), lg.Dense()), X)
    alone = [lg.nngp_kernel(lg.mlp(1, "relu"), X) * 4, lg.nngp_kernel(lg.mlp(1, "tanh"), X)]
    np.testing.assert_allclose(found, (3 * alone[0] + alone[1]) / 4, rtol=1e-13)


@pytest.mark.slow
def test_tangent_kernel_of_wide_networks():
    """With one rate for all it grows as N; extrapolated from N and 2N."""
    wanted = lg.ntk_kernel(NET, X, param=lg.standard())
    estimates = []
    for width, seed in ((64, 0), (128, 1)):
        run = lg.Run(NET, lg.standard(), lg.Dataset(X, X[:, 0]), optimizer=lg.gd(1e-9), steps=1)
        nets = lg.train(run, width, 100, seed, record="ntk", record_at=[0])
        found = nets.ntk[:, 0] / width
        estimates.append((found.mean(0), found.std(0, ddof=1) / np.sqrt(len(found))))
    (coarse, coarse_error), (fine, fine_error) = estimates
    error = np.hypot(2 * fine_error, coarse_error)
    assert error.max() < 0.1 * wanted.max()
    assert np.abs((2 * fine - coarse - wanted) / error).max() < 4


def test_standard_rates_count_fan_ins():
    """ρ of a weight is its fan-in, in units of N: 1/2, 2 and 1 behind the three layers."""
    rates = {"2.weight": 0.5, "4.weight": 2.0, "6.weight": 1.0, "input": 0.0, "bias": 0.0}
    wanted = lg.ntk_kernel(PLAIN, X, param=lg.ntk().with_rates(rates))
    by_fan_in = lg.ntk_kernel(NET, X, param=lg.standard()) * 1.4**2
    np.testing.assert_allclose(by_fan_in, wanted, rtol=1e-12)
