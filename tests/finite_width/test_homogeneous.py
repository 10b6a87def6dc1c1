"""Exact moments at any width, against expansions, limits and tiny networks."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

X = np.array([[0.9, -0.4, 1.3]])


def test_first_order_is_that_of_the_expansion():
    net = lg.mlp(6, "relu", weight_std=2**0.5)
    n = 10**6
    exact = lg.finite_width.homogeneous_moments(net, X, width=n)
    expanded = lg.finite_width.width_corrections(net, X, width=n)
    assert exact.kernel == pytest.approx(expanded.kernel[0, 0], rel=1e-12)
    assert exact.ntk == pytest.approx(expanded.ntk[0, 0], rel=1e-12)
    for seen, first in (
        (exact.kernel_variance, expanded.kernel_covariance[0, 0]),
        (exact.ntk_variance, expanded.ntk_covariance[0, 0]),
    ):
        assert seen == pytest.approx(first, rel=1e-4)


@pytest.mark.parametrize(("name", "std", "gate"), [("linear", 1.0, 1.0), ("relu", 2**0.5, 2.0)])
def test_layers_of_one_neuron_in_closed_form(name, std, gate):
    # z = √K ∏ d_j ∏ w_l with L gates and L + 1 Gaussians: Θ = z² Σ 1/w_l², and
    # z∇z∇²z∇z = z⁴ Σ_{l ≠ m} 1/(w_l w_m)².
    layers = 4
    found = lg.finite_width.homogeneous_moments(
        lg.mlp(layers, name, weight_std=std), X / std, width=1
    )
    K, pairs = X[0] @ X[0] / 3, (layers + 1) * layers
    own, crossed = (layers + 1) * 3.0**layers, pairs * 3.0 ** (layers - 1)
    second = found.ntk_variance + found.ntk**2
    assert found.kernel == pytest.approx(K, rel=1e-12)
    assert second == pytest.approx(K**2 * gate**layers * (own + crossed), rel=1e-12)
    assert found.ntk_change == pytest.approx(K**2 * gate**layers * crossed, rel=1e-12)


def test_limit_at_fixed_depth_over_width():
    # e^β [1/3 + (4/3) I(6β/5)] with β = 5L/n; the printed e^β and e^{5β} are far off.
    found = lg.finite_width.homogeneous_moments(
        lg.mlp(200, "relu", weight_std=2**0.5), X, width=1000
    )
    ratio = found.ntk_variance / found.ntk**2 + 1
    beta = 1.0
    a = 6 * beta / 5
    limit = np.exp(beta) * (1 / 3 + 4 / 3 * (1 / a - (1 - np.exp(-a)) / a**2))
    assert ratio == pytest.approx(2.1610, abs=5e-5)
    assert ratio == pytest.approx(limit, rel=4e-3)
    assert abs(ratio - np.exp(beta)) > 0.5
    assert abs(ratio - np.exp(5 * beta)) > 100


def test_linear_networks_in_closed_form():
    # E f⁴ = 3K² ∏(1 + 2/n).
    found = lg.finite_width.homogeneous_moments(lg.mlp(3, "linear"), X, width=(4, 5, 3))
    product = (1 + 2 / 4) * (1 + 2 / 5) * (1 + 2 / 3)
    assert 3 * (found.kernel**2 + found.kernel_variance) == pytest.approx(
        3 * found.kernel**2 * product, rel=1e-12
    )
    assert found.dead == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "std"), [("relu", 2**0.5), ("linear", 1.0)])
def test_moments_against_tiny_networks(name, std):
    widths, draws = (6, 9, 7), 300_000
    theory = lg.finite_width.homogeneous_moments(
        lg.mlp(3, name, weight_std=std), X / std, width=widths
    )
    sizes = (X.shape[1], *widths, 1)
    phi = (lambda z: jax.numpy.maximum(z, 0)) if name == "relu" else (lambda z: z)

    def output(weights):
        z = X[0] / std
        for number, W in enumerate(weights):
            z = std * W @ (phi(z) if number else z) / np.sqrt(W.shape[1])
        return z[0]

    def observed(key):
        keys = jax.random.split(key, len(sizes) - 1)
        weights = [
            jax.random.normal(k, (b, a)) for k, a, b in zip(keys, sizes, sizes[1:], strict=False)
        ]
        z, gradient = jax.value_and_grad(output)(weights)
        along = jax.jvp(jax.grad(output), (weights,), (gradient,))[1]
        pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True)
        products = [((g * g).sum(), (g * h).sum()) for g, h in pairs]
        tangent, bent = (sum(each) for each in zip(*products, strict=True))
        return tangent, z * bent

    keys = jax.random.split(jax.random.key(0), draws)
    tangent, bent = jax.lax.map(observed, keys, batch_size=5000)
    # Θ counts every weight with its σ_w²: that of standard Gaussian weights with σ_w outside.
    tangent, bent = np.asarray(tangent, np.float64), np.asarray(bent, np.float64)
    for seen, exact in (
        (tangent, theory.ntk),
        (tangent**2, theory.ntk_variance + theory.ntk**2),
        (bent, theory.ntk_change),
    ):
        assert abs(seen.mean() - exact) < 3.5 * seen.std() / np.sqrt(draws)


def test_bad_inputs_are_named():
    with pytest.raises(NoTheory, match="a₊"):
        lg.finite_width.homogeneous_moments(lg.mlp(2, "tanh"), X, width=5)
    with pytest.raises(NoTheory, match="weight_std"):
        lg.finite_width.homogeneous_moments(lg.mlp(2, "relu"), X, width=5)
    with pytest.raises(NoTheory, match="bias"):
        lg.finite_width.homogeneous_moments(
            lg.mlp(2, "relu", weight_std=2**0.5, bias_std=1.0), X, width=5
        )
    with pytest.raises(InvalidInput, match="one input"):
        lg.finite_width.homogeneous_moments(
            lg.mlp(2, "relu", weight_std=2**0.5), np.eye(3), width=5
        )


def test_fourth_moments_of_jacobians():
    relu = lg.mlp(3, "relu", weight_std=2**0.5)
    widths, n0 = (7, 11, 5), 6
    found = lg.finite_width.homogeneous_jacobian(relu, width=widths, inputs=n0)
    product = np.prod([1 + 5 / n for n in widths])
    assert found.second == pytest.approx(2 / n0, rel=1e-12)
    assert found.fourth == pytest.approx(12 / n0**2 * product, rel=1e-12)
    # The lectures print 2/n₀² (1 + …) and e^β; J² is χ²₁ times a log-normal variable.
    assert found.fourth / found.second**2 == pytest.approx(3 * product)
    deep = lg.finite_width.homogeneous_jacobian(
        lg.mlp(100, "relu", weight_std=2**0.5), width=1000, inputs=3
    )
    assert deep.fourth / deep.second**2 == pytest.approx(3 * np.exp(0.5), rel=2e-3)


@pytest.mark.parametrize(("name", "std"), [("relu", 2**0.5), ("linear", 1.0)])
@pytest.mark.parametrize("moment", [3.0, 1.8])
def test_jacobians_of_drawn_networks(name, std, moment):
    rng, draws, widths, n0 = np.random.default_rng(0), 100_000, (6, 9, 7), 8
    exact = lg.finite_width.homogeneous_jacobian(
        lg.mlp(3, name, weight_std=std), width=widths, inputs=n0, fourth_moment=moment
    )
    J = np.broadcast_to(np.eye(n0)[:, :2], (draws, n0, 2))
    for before, n in zip((n0, *widths), widths, strict=False):
        shape = (draws, n, before)
        root = np.sqrt(3)
        W = rng.standard_normal(shape) if moment == 3 else rng.uniform(-root, root, shape)
        # Slopes are 0 or 1 with probability ½ each, independent of everything else.
        J = std / np.sqrt(before) * W @ J
        if name == "relu":
            J = J * rng.integers(0, 2, (draws, n, 1))
    last = rng.standard_normal((draws, 1, widths[-1]))
    if moment != 3:
        last = rng.uniform(-root, root, last.shape)
    output = (std / np.sqrt(widths[-1]) * last @ J)[:, 0, 0]
    for seen, wanted in ((output**2, exact.second), (output**4, exact.fourth)):
        assert abs(seen.mean() - wanted) < 3.5 * seen.std() / np.sqrt(draws)
    if moment == 3:
        whole = lg.finite_width.homogeneous_jacobian(
            lg.mlp(3, name, weight_std=std), width=widths, inputs=2
        )
        # Two columns are a Jacobian of two inputs, but for the first layer's 1/√n₀.
        squares = J.swapaxes(1, 2) @ J * n0 / 2
        for seen, wanted in (
            (np.sum(squares**2, axis=(1, 2)), whole.trace_of_square),
            (np.trace(squares, axis1=1, axis2=2) ** 2, whole.square_of_trace),
        ):
            assert abs(seen.mean() - wanted) < 3.5 * seen.std() / np.sqrt(draws)


def test_limits_at_large_depth_and_width():
    for name, std in (("relu", 2**0.5), ("linear", 1.0)):
        limit = lg.finite_width.homogeneous_limits(name, 0.2)
        distances = []
        for n in (200, 1000):
            net = lg.mlp(n // 5, name, weight_std=std)
            found = lg.finite_width.homogeneous_moments(net, X, width=n)
            ratio = found.ntk_variance / found.ntk**2 + 1
            change = -2 * found.ntk_change / found.ntk / (found.kernel * n / 5)
            spread = found.kernel_variance / found.kernel**2 + 1
            distances.append(
                [ratio / limit.ntk - 1, change / limit.ntk_change - 1, spread / limit.kernel - 1]
            )
        assert np.abs(distances[1]).max() < 0.01
        assert np.all(np.abs(distances[1]) < 0.3 * np.abs(distances[0]) + 1e-12)
    # 1 + (11/3) L/n + … for the NTK, and −(4/3) ηKL·L/n for its change.
    small = lg.finite_width.homogeneous_limits("relu", 1e-5)
    assert (small.ntk - 1) / 1e-5 == pytest.approx(11 / 3, rel=1e-3)
    assert small.ntk_change / 1e-5 == pytest.approx(-4 / 3, rel=1e-3)
    with pytest.raises(NoTheory, match="a₊"):
        lg.finite_width.homogeneous_limits("tanh", 0.2)
