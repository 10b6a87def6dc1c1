"""Products of Gaussian matrices: moments, determinants and drawn products."""

from math import comb

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput


@pytest.mark.parametrize("factors", [1, 2, 3, 6])
def test_moments_are_fuss_catalan_numbers(factors):
    edge = (factors + 1) ** (factors + 1) / factors**factors
    # x = edge·s^(2(L+1)) near 0 and the square root at the edge: smooth in an angle.
    angle = (np.arange(4000) + 0.5) * np.pi / 2 / 4000
    s = np.sin(angle)
    x = edge * s ** (2 * (factors + 1))
    steps = np.pi / 2 / 4000 * 2 * (factors + 1) * x / s * np.cos(angle)
    weights = lg.criticality.product_density(x, factors=factors) * steps
    for k in range(4):
        wanted = comb((factors + 1) * k, k) / (factors * k + 1)
        assert np.isclose(weights @ x**k, wanted, rtol=1e-6)
    assert lg.criticality.product_density(1.01 * edge, factors=factors) == 0


def test_linear_networks_have_the_density():
    x = np.sqrt(200) * np.eye(200)
    network = lg.finite_width.kernel_spectrum(lg.mlp(3, "linear"), x, width=200)
    values = np.geomspace(1e-2, 8, 7)
    wanted = lg.criticality.product_density(values, factors=3)
    assert np.allclose(network.density(values), wanted, rtol=2e-3)


def test_drawn_products_have_the_exponents():
    width, factors, draws = 3, 40, 4000
    rng = np.random.default_rng(0)
    basis, logs = np.broadcast_to(np.eye(width), (draws, width, width)), np.zeros((draws, width))
    for _ in range(factors):
        basis, r = np.linalg.qr(rng.standard_normal((draws, width, width)) / width**0.5 @ basis)
        logs = logs + np.log(np.abs(np.diagonal(r, axis1=1, axis2=2)))
    found = lg.criticality.lyapunov_exponents(width)
    error = np.sqrt(found.variances / factors / draws)
    assert np.all(np.abs(logs.mean(0) / factors - found.exponents) < 4 * error)
    spread = logs.var(0, ddof=1) / factors / found.variances - 1
    assert np.all(np.abs(spread) < 4.5 * np.sqrt(2 / draws))


def test_errors():
    with pytest.raises(InvalidInput, match="width"):
        lg.criticality.lyapunov_exponents(0)
    with pytest.raises(InvalidInput, match="factors"):
        lg.criticality.product_density([1.0], factors=0)
    with pytest.raises(InvalidInput, match="values: wanted positive"):
        lg.criticality.product_density([0.0], factors=1)
