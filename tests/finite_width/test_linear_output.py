"""Deep linear networks: moments, Meijer's function, the log-normal limit."""

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.finite_width import linear_networks

X = np.ones((1, 2))


def output(width, layers=3):
    return lg.finite_width.linear_network_output(lg.mlp(layers, "linear"), X, width=width)


def meijer(f, widths, K):
    constant = np.prod([n / 2 for n in widths]) / (2 * K)
    norm = mpmath.sqrt(mpmath.pi) * mpmath.fprod(mpmath.gamma(n / 2) for n in widths)
    bottom = [-0.5] + [n / 2 - 1 for n in widths]
    return float(f * constant / norm * mpmath.meijerg([[], []], [bottom, []], constant * f * f))


def test_density_is_meijers_function():
    found = output((4, 5, 3))
    for f in (1e-3, 0.5, 2.0, 20.0, 100.0):
        assert found.density(np.array([f]))[0] == pytest.approx(
            meijer(f, (4, 5, 3), 1.0), rel=1e-12
        )


@pytest.mark.parametrize("width", [2, 40, 10**6])
def test_density_has_the_moments(width):
    found = output(width, layers=4)
    for order in (0.0, 1.0, 2.0, 3.5):
        integral, _ = quad(
            lambda u, order=order: 2 * np.exp(u * (order + 1)) * found.density(np.exp([u]))[0],
            -30, 6, epsabs=1e-11, limit=200,
        )  # fmt: skip
        assert integral == pytest.approx(found.moment(order), rel=1e-9)


def test_moments_are_products():
    found = output((4, 5, 3))
    assert found.moment(2) == pytest.approx(1, rel=1e-12)
    product = np.prod([1 + 2 / n for n in (4, 5, 3)])
    assert found.moment(4) == pytest.approx(3 * product, rel=1e-12)
    triple = np.prod([(1 + 2 / n) * (1 + 4 / n) for n in (4, 5, 3)])
    assert found.moment(6) == pytest.approx(15 * triple, rel=1e-12)
    # Nothing is lost at large widths.
    wide = output(10**7, layers=2)
    assert wide.moment(4) / 3 - 1 == pytest.approx(4e-7, rel=1e-6)


def test_log_normal_limit():
    # log S/K becomes N(−t, 2t) at L, n → ∞ with t = L/n.
    for n, bound in ((40, 0.03), (160, 0.008)):
        mean, variance = output(n, layers=n // 2).log_kernel
        assert abs(mean + 0.5) < bound * 0.5
        assert abs(variance - 1) < bound


def test_density_is_that_of_drawn_networks():
    rng, K, widths = np.random.default_rng(0), 1.0, (4, 5, 3)
    S = K * np.prod([rng.chisquare(n, 200_000) / n for n in widths], axis=0)
    f = np.abs(np.sqrt(S) * rng.standard_normal(len(S)))
    found = output(widths)
    for low, high in ((0.4, 0.6), (1.9, 2.1), (3.5, 4.5)):
        grid = np.linspace(low, high, 41)
        mass = 2 * np.trapezoid(found.density(grid), grid)
        seen = np.mean((f > low) & (f < high))
        assert abs(seen - mass) < 3.5 * np.sqrt(mass / len(f))


def test_bad_inputs_are_named():
    with pytest.raises(NoTheory, match="not linear"):
        lg.finite_width.linear_network_output(lg.mlp(2, "relu"), X, width=5)
    with pytest.raises(InvalidInput, match="one input"):
        lg.finite_width.linear_network_output(lg.mlp(2, "linear"), np.eye(2), width=5)
    with pytest.raises(InvalidInput, match="order"):
        output(5).moment(-1.0)


def test_ratios_of_gamma_functions_at_large_arguments():
    """Stirling's series, where its last term still counts."""
    a = 64.0
    steps = a * np.array([0.3 + 0.4j, 0.9j, -0.5 + 0.5j])
    with mpmath.workdps(30):
        exact = [complex(mpmath.loggamma(a + complex(s)) - mpmath.loggamma(a)) for s in steps]
    np.testing.assert_allclose(linear_networks._log_ratio(a, steps), exact, rtol=0, atol=2e-13)
