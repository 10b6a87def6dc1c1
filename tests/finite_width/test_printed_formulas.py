"""Formulas of two sets of lectures as they are printed, each of which fails beside networks.

Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width (LH), and Hanin,
lectures on scaling limits of neural networks (H). Others are beside what they belong to: LH Theorem
4.1 in ``tests/criticality``, LH Theorem 4.2, H (2.3.2) and H Remark 2.3.2 in
``test_width_corrections``, LH Theorem 5.1 for E Θ² in ``test_homogeneous``, H (1.3.10) in
``tests/regression``, H Lemma 3.2.1 in ``tests/experiments``.
"""

import numpy as np
import pytest

import largen as lg

X = np.array([[0.9, -0.4, 1.3]])


def test_two_point_functions_are_those_of_the_layer_before():
    # LH (46): E z z = σ_w² G, with (47): G = mean of z z, both of layer l.
    std = 1.5
    S = lg.finite_width.sample_kernels(
        lg.mlp(2, "linear", weight_std=std), X, width=40, draws=20_000, key=0
    )
    E, error = S.mean(), S.std() / np.sqrt(len(S))
    before = lg.finite_width.sample_kernels(
        lg.mlp(1, "linear", weight_std=std), X, width=40, draws=20_000, key=1
    )
    right, printed = std**2 * before.mean(), std**2 * E
    assert abs(E - right) < 3.5 * np.hypot(error, std**2 * before.std() / np.sqrt(len(before)))
    assert abs(E - printed) > 20 * error


@pytest.mark.slow
def test_logarithms_of_chi_squares():
    # LH §4.6: ½ log(χ²_n/n) has mean −1/4n and variance 1/4n, as printed; it is 1/2n. H §1.3.3
    # prints the same as |z|² ≈ exp N(−L/2n, L/n).
    n, layers, draws = 50, 25, 20_000
    net = lg.mlp(layers, "linear")
    S = lg.finite_width.sample_kernels(net, X, width=n, draws=draws, key=0)[:, 0, 0]
    half = np.log(S / (X[0] @ X[0] / 3)) / 2
    for seen, error, printed in (
        (half.mean(), half.std() / np.sqrt(draws), -layers / (4 * n)),
        (half.var(), half.var() * np.sqrt(2 / draws), layers / (4 * n)),
    ):
        assert abs(seen - 2 * printed) < 3.5 * error + 2 / n * abs(printed)
        assert abs(seen - printed) > 20 * error
    exact = lg.finite_width.linear_network_output(net, X, width=n).log_kernel
    assert exact[0] / 2 == pytest.approx(-layers / (2 * n), rel=1.5 / n)
    assert exact[1] / 4 == pytest.approx(layers / (2 * n), rel=1.5 / n)


def collisions(widths, mu4, coefficient):
    """E ∏(1 + 5·1_C + coefficient·1_C 1_C') over two random paths whose ends are the same."""
    apart, together = 0.0, 1.0  # they start together
    for n in (*widths, 1):
        again, fresh = 6 + coefficient, 6.0
        new = (together * again + apart * fresh) / n
        apart, together = (together + apart) * (1 - 1 / n), new
    return together + apart


@pytest.mark.parametrize("mu4", [3.0, 1.8])
def test_fourth_moments_of_jacobians(mu4):
    # LH §5.5.2, with σ on the output: prefactor 2/n₀² and coefficient 6(μ₄ − 3), and 12/n₀ at last.
    rng, n0, widths, draws = np.random.default_rng(0), 4, (5, 7, 6), 400_000
    J = np.zeros((draws, n0, 1))
    J[:, 0] = 1
    root = np.sqrt(3)
    for before, n in zip((n0, *widths), (*widths, 1), strict=True):
        shape = (draws, n, before)
        W = rng.standard_normal(shape) if mu4 == 3 else rng.uniform(-root, root, shape)
        J = np.sqrt(2 / before) * (W @ J) * rng.integers(0, 2, (draws, n, 1))
    fourth = J[:, 0, 0] ** 4
    seen, error = fourth.mean(), fourth.std() / np.sqrt(draws)
    net = lg.mlp(3, "relu", weight_std=2**0.5)
    exact = (
        lg.finite_width.homogeneous_jacobian(net, width=widths, inputs=n0, fourth_moment=mu4).fourth
        / 2
    )
    assert exact == pytest.approx(collisions(widths, mu4, 2 * (mu4 - 3)) / n0**2, rel=1e-12)
    assert abs(seen - exact) < 3.5 * error
    printed = [2 / n0**2 * collisions(widths, mu4, 6 * (mu4 - 3))]
    printed += [12 / n0**2 * np.prod([1 + 5 / n for n in widths])]
    printed += [12 / n0 * np.exp(sum(5 / n for n in widths))]
    if mu4 != 3:  # the coefficient alone
        printed += [collisions(widths, mu4, 6 * (mu4 - 3)) / n0**2]
    assert all(abs(seen - each) > 10 * error for each in printed)


def test_changes_of_tangent_kernels_in_one_step():
    # LH Theorem 5.1: E ΔΘ/E Θ ~ (L/n) exp(5β), β = 5L/n. Whatever the constant, it grows otherwise.
    def change(layers, n):
        net = lg.mlp(layers, "relu", weight_std=2**0.5)
        found = lg.finite_width.homogeneous_moments(net, X, width=n)
        return 2 * found.ntk_change / found.ntk / (found.kernel * layers)

    n = 1000
    growth = change(400, n) / change(100, n)
    limit = lg.finite_width.homogeneous_limits("relu", 0.4).ntk_change
    assert growth == pytest.approx(
        limit / lg.finite_width.homogeneous_limits("relu", 0.1).ntk_change, rel=0.05
    )
    for power in (1, 5):
        printed = 4 * np.exp(power * 5 * 0.3)
        assert abs(growth / printed - 1) > 0.3
    # And e^β − 1 is not the relative variance of the kernel (LH §5.5.3).
    found = lg.finite_width.homogeneous_moments(lg.mlp(100, "relu", weight_std=2**0.5), X, width=n)
    relative = found.ntk_variance / found.ntk**2
    assert abs(relative / (np.exp(5 * 100 / n) - 1) - 1) > 0.2


def test_squares_of_jacobians_are_not_log_normal():
    # LH Theorem 5.1: (∂z/∂x)² ≈ exp N(−β/2, β), so that E J⁴/(E J²)² were e^β; it is 3∏(1 + 5/n).
    rng, n, layers, draws = np.random.default_rng(1), 20, 4, 200_000
    square = np.ones(draws)
    for _ in range(layers):
        alive = rng.binomial(n, 0.5, draws)
        square = square * 2 / n * rng.chisquare(np.maximum(alive, 1e-9))
    J2 = 2 * rng.chisquare(1, draws) * square
    ratio = np.mean(J2**2) / np.mean(J2) ** 2
    spread = np.std(J2**2 / np.mean(J2) ** 2) / np.sqrt(draws)
    found = lg.finite_width.homogeneous_jacobian(
        lg.mlp(layers, "relu", weight_std=2**0.5), width=n, inputs=3
    )
    assert abs(ratio - found.fourth / found.second**2) < 4 * spread
    assert abs(ratio - np.exp(5 * layers / n)) > 20 * spread


def test_shaped_relu_without_its_weights():
    # H §2.3.1: t + max(0, t)/√N with σ_W = 1 blows up with N at τ = ½; with σ_W² = 2/(s₊² + s₋²) it
    # does not.
    def median(n, weight):
        rng, S = np.random.default_rng(0), np.ones(400)
        for _ in range(n // 2):
            z = np.sqrt(S)[:, None] * rng.standard_normal((400, n))
            S = weight * np.mean((z + np.maximum(z, 0) / np.sqrt(n)) ** 2, axis=1)
        return float(np.median(S))

    printed = [median(n, 1.0) for n in (100, 400)]
    right = [median(n, 2 / ((1 + 1 / np.sqrt(n)) ** 2 + 1)) for n in (100, 400)]
    assert printed[0] > 50
    assert printed[1] > 50 * printed[0]
    assert all(0.3 < each < 1.0 for each in right)  # e^{−τ} = 0.61
