"""Exact averages for activations of degree one, against quadrature and known orthants."""

import numpy as np
import pytest
from scipy.special import ndtr

from largen.expectations import as_activation, leaky_relu
from largen.expectations.nodes import values
from largen.finite_width.averages import pairs_of
from largen.finite_width.grids import between_kinks
from largen.finite_width.orthants import HomogeneousAverages, slopes_of
from largen.finite_width.pairs import _between_kinks, pair_derivatives

ROOT = np.random.default_rng(0).normal(size=(4, 5))
KERNEL = ROOT @ ROOT.T / 5


@pytest.mark.parametrize("phi", [as_activation("relu"), leaky_relu(0.3)], ids=str)
def test_products_of_four_inputs_against_quadrature(phi):
    exact = HomogeneousAverages(slopes_of(phi), KERNEL)
    grid = between_kinks((0.0,), KERNEL)
    value, slope = values(phi, grid.points)
    for chosen in ([0, 1, 2, 3], [0, 0, 1, 3], [1, 1, 2, 2]):
        for number in range(5):
            flat, steep = chosen[number:], chosen[:number]
            wanted = grid.weights @ (value[:, flat].prod(axis=1) * slope[:, steep].prod(axis=1))
            assert exact.mean(flat, steep) == pytest.approx(wanted, abs=5e-6)


def test_derivatives_in_the_kernel_by_differences():
    phi, step = leaky_relu(-0.4), 1e-5
    for i, j in pairs_of(4):
        change = np.zeros((4, 4))
        change[i, j] = change[j, i] = step
        more, less = (
            HomogeneousAverages(slopes_of(phi), KERNEL + sign * change) for sign in (1, -1)
        )
        for factors in ([0, 1, 2, 3], [0, 0, 2, 3], [1, 1, 3, 3]):
            slope = (more.mean(factors) - less.mean(factors)) / (2 * step)
            exact = HomogeneousAverages(slopes_of(phi), KERNEL).change(factors, i, j)
            assert exact == pytest.approx(slope, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.1, 0.9, 0.999])
def test_orthants_of_exchangeable_gaussians(rho):
    # u_i = √ρ z + √(1 − ρ) z_i, so that the probability is an average over z.
    K = np.full((4, 4), rho) + (1 - rho) * np.eye(4)
    node, weight = np.polynomial.legendre.leggauss(3000)
    z = 9 * node
    exact = 9 * weight @ (ndtr(np.sqrt(rho / (1 - rho)) * z) ** 4 * np.exp(-(z**2) / 2))
    found = HomogeneousAverages((1.0, 0.0), K).mean([], [0, 1, 2, 3])
    assert found == pytest.approx(exact / np.sqrt(2 * np.pi), abs=1e-9)


def test_derivatives_of_pairs_against_quadrature():
    phi = leaky_relu(0.3)
    kernel = 0.4 + np.diag([0.5, 0.8, 1.1])
    off = ~np.eye(3, dtype=bool)
    for exact, table in zip(
        pair_derivatives(phi, kernel), _between_kinks(phi, kernel), strict=True
    ):
        for entry, wanted in zip(exact[:7], table, strict=True):
            assert np.allclose(entry[off], wanted[off], rtol=1e-8, atol=1e-8)


def test_other_activations_are_not_of_degree_one():
    assert slopes_of(as_activation("relu")) == (1, 0)
    assert slopes_of(as_activation("elu")) is None
    assert slopes_of(as_activation("tanh")) is None
