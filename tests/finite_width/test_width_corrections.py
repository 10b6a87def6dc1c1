"""Order 1/width: known constants, closed forms, differences, and exact simulation."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure
from largen.expectations import as_activation, gaussian_moments
from largen.finite_width.averages import fourth_averages
from largen.finite_width.pairs import pair_derivatives

RNG = np.random.default_rng(3)
X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1], [-0.6, 0.8, 0.1, 0.9]])


def one_input(name, layers, width, std=1.0):
    return lg.finite_width.width_corrections(
        lg.mlp(layers, name, weight_std=std), np.ones((1, 1)), width=width
    )


def tensor_constants(found):
    """A/H², B/H², D/HK and F/HK over the depth, of one input and width 1."""
    K, H = found.kernel[0, 0], found.ntk[0, 0]
    tensors = (
        (found.between_outputs, H**2), (found.off_diagonal, H**2),
        (found.kernel_between_outputs, H * K), (found.off_diagonal_kernel, H * K),
    )  # fmt: skip
    return np.array([entry.ravel()[0] / unit for entry, unit in tensors]) / len(found.widths)


def test_universal_constants_of_relu():
    layers, found = 60, one_input("relu", 60, 1, 2**0.5)
    K, H = found.kernel[0, 0], found.ntk[0, 0]
    assert found.kernel_covariance[0, 0] / K**2 / layers == pytest.approx(5, rel=1e-10)
    assert abs(found.kernel_shift[0, 0]) < 1e-10 * layers
    assert abs(found.ntk_shift[0, 0]) < 1e-6 * layers * H
    # T ← T + 3 V C'/n + 44 K³/n² with V = 5ℓK²/n and C' = 10 K: 75 (ℓ/n)² to leading order.
    exact = sum(150 * m + 44 for m in range(layers))
    assert found.kernel_third_cumulant[0, 0, 0] == pytest.approx(exact * 2**3, rel=1e-9)
    # At finite depth the sums of the file's limits 11/3, 7/3, 3 have terms of order 1/L.
    deeper = one_input("relu", 240, 1, 2**0.5)
    near = [r.ntk_covariance[0, 0] / r.ntk[0, 0] ** 2 / n for r, n in ((found, 60), (deeper, 240))]
    assert (near[1] * 240 - near[0] * 60) / 180 == pytest.approx(11 / 3, rel=1e-3)
    # A, B, D and F, by the rate per layer.
    rates = (240 * tensor_constants(deeper) - 60 * tensor_constants(found)) / 180
    assert np.allclose(rates, [7 / 3, 2 / 3, 3, 1], rtol=2e-3)


@pytest.mark.slow
def test_universal_constants_of_smooth_odd_activations():
    layers = 240
    for name in ("tanh", "sin"):
        found = one_input(name, layers, 1)
        K, H = found.kernel[0, 0], found.ntk[0, 0]
        numbers = {
            "V": (found.kernel_covariance[0, 0] / K**2 / layers, 2 / 3),
            "m": (found.kernel_shift[0, 0] / K / layers, -1 / 3),
            "T": (found.kernel_third_cumulant[0, 0, 0] / K**3 / layers**2, 16 / 15),
            "ntk": (found.ntk_covariance[0, 0] / H**2 / layers, 2 / 3),
            "cross": (found.ntk_kernel_covariance[0, 0] / H / K / layers, 1 / 2),
            "m_H": (found.ntk_shift[0, 0] / H / layers, -1 / 4),
        }
        for what, (seen, limit) in numbers.items():
            assert seen == pytest.approx(limit, rel=0.08), what  # log(ℓ)/ℓ is left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "sin"])
def test_universal_constants_to_three_digits(name):
    # The rate per layer, without its terms of order 1/ℓ by extrapolation.
    seen = []
    for layers in (400, 800, 1600):
        found = one_input(name, layers, 1)
        K, H = found.kernel[0, 0], found.ntk[0, 0]
        pairs = (
            (found.kernel_covariance, K**2),
            (found.kernel_shift, K),
            (found.ntk_covariance, H**2),
            (found.ntk_kernel_covariance, H * K),
            (found.ntk_shift, H),
            (found.between_outputs, H**2),
            (found.off_diagonal, H**2),
            (found.kernel_between_outputs, H * K),
            (found.off_diagonal_kernel, H * K),
            (found.kernel_third_cumulant, K**3 * layers),
        )
        seen.append([float(entry.ravel()[0] / unit) for entry, unit in pairs])
    first, second = np.diff(seen, axis=0) / np.array([[400], [800]])
    constants = [2 / 3, -1 / 3, 2 / 3, 1 / 2, -1 / 4, 0, 1 / 3, 0, 1 / 4, 16 / 15]
    assert np.allclose(2 * second - first, constants, rtol=0, atol=1e-4)


def relu_pair(q1, q2, c):
    root = np.sqrt(q1 * q2 - c**2)
    theta = np.arctan2(root, c)
    k = (root + (np.pi - theta) * c) / (2 * np.pi)
    k_c, k_cc = (np.pi - theta) / (2 * np.pi), 1 / (2 * np.pi * root)
    k_1, k_2 = (k - c * k_c) / (2 * q1), (k - c * k_c) / (2 * q2)
    k_1c, k_2c = -c * k_cc / (2 * q1), -c * k_cc / (2 * q2)
    return k, k_c, k_1, k_cc, -(k_1 + c * k_1c) / (2 * q1), (k_2 - c * k_2c) / (2 * q1), k_1c


def test_derivatives_of_relu_pairs_in_closed_form():
    kernel = np.array([[1.3, 0.5], [0.5, 0.8]])
    found, _ = pair_derivatives(as_activation("relu"), kernel)
    seen = [entry[0, 1] for entry in found[:7]]
    assert np.allclose(seen, relu_pair(1.3, 0.8, 0.5), rtol=0, atol=1e-9)


def test_noise_of_relu_pairs_in_closed_form():
    kernel = np.array([[1.3, 0.5], [0.5, 0.8]])
    theta = np.arccos(0.5 / np.sqrt(1.3 * 0.8))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t = theta - np.pi / 2 + (np.pi - theta) * (nodes + 1) / 2
    found = fourth_averages(as_activation("relu"), kernel).values
    for a, b, entry in ((4, 0, (0, 0)), (3, 1, (0, 1)), (2, 2, (1, 1)), (1, 3, (1, 2))):
        if b == 0:
            exact = 1.5 * 1.3**2
        else:
            both = np.cos(t) ** a * np.cos(t - theta) ** b
            exact = 8 * 1.3 ** (a / 2) * 0.8 ** (b / 2) / (2 * np.pi) * (weights @ both)
            exact *= (np.pi - theta) / 2
        assert found[entry] == pytest.approx(exact, rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "tanh", "elu"])
def test_derivatives_of_pairs_by_differences(name):
    q1, q2, c = 1.3, 0.8, 0.5
    found, of_slope = pair_derivatives(as_activation(name), np.array([[q1, c], [c, q2]]))
    step = 1e-4

    def k(i, j, l):
        return float(gaussian_moments(name, q1 + step * i, c + step * l, q2 + step * j)[0])

    slopes = {"q1": (k(1, 0, 0) - k(-1, 0, 0)) / 2, "c": (k(0, 0, 1) - k(0, 0, -1)) / 2}
    for entry, difference in slopes.items():
        assert getattr(found, entry)[0, 1] == pytest.approx(difference / step, rel=1e-6)
    assert of_slope.value[0, 1] == pytest.approx(found.c[0, 1], rel=1e-9)
    mixed = (k(1, 0, 1) - k(1, 0, -1) - k(-1, 0, 1) + k(-1, 0, -1)) / 4
    assert found.q1c[0, 1] == pytest.approx(mixed / step**2, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "std", "bias"), [("tanh", 1.2, 0.3), ("gelu", 1.4, 0.1)])
def test_kernels_against_their_exact_distribution(name, std, bias):
    net = lg.mlp(3, name, weight_std=std, bias_std=bias)
    distances = []
    for n, draws in ((30, 40_000), (120, 40_000)):
        theory = lg.finite_width.width_corrections(net, X[:2], width=(n, 2 * n, n))
        drawn = lg.finite_width.sample_kernels(net, X[:2], width=(n, 2 * n, n), draws=draws, key=n)
        S = drawn[:, *theory.pairs.T]
        limit = theory.kernel[*theory.pairs.T]
        shift = theory.kernel_shift[*theory.pairs.T]
        error = S.std(axis=0) / np.sqrt(draws)
        # Beyond order 1/n the shift has terms of the relative size of the next order.
        left = np.abs(shift) * 3 * np.abs(theory.next_order).max()
        assert np.all(np.abs(S.mean(axis=0) - limit - shift) < 3.5 * error + left)
        V = np.cov(S.T)
        distances.append(np.abs(V - theory.kernel_covariance).max() / V.max())
        noise = 3.5 * np.sqrt(2 / draws) * 3
        assert distances[-1] < noise + 2 * np.abs(theory.next_order).max()
    assert distances[1] < max(distances[0] / 2, 0.03)


@pytest.mark.slow
def test_next_order_improves_the_variance():
    n, draws = 60, 60_000
    net = lg.mlp(4, "gelu", weight_std=1.9)
    theory = lg.finite_width.width_corrections(net, np.ones((1, 1)), width=n)
    V, ratio = theory.kernel_covariance[0, 0], theory.next_order[0]
    S = lg.finite_width.sample_kernels(net, np.ones((1, 1)), width=n, draws=draws, key=1)[:, 0, 0]
    error = np.std((S - S.mean()) ** 2) / np.sqrt(draws)
    assert abs(ratio * V) > 5 * error
    assert abs(S.var() - V * (1 + ratio)) < 3.5 * error + 2 * ratio**2 * V
    assert abs(S.var() - V) > 2 * abs(S.var() - V * (1 + ratio))
    # relu: Var S/K² = ∏(1 + 5/n) − 1, of which the second term is known.
    relu = one_input("relu", 4, 100, 2**0.5)
    assert relu.next_order[0] == pytest.approx(25 / 1e4 * 6 / (5 * 4 / 100), rel=1e-9)


@pytest.mark.long_loops
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_tangent_kernels_against_dense_networks(name):
    n, networks = 60, 12_000
    net = lg.mlp(3, name, weight_std=1.2, bias_std=0.3)
    theory = lg.finite_width.width_corrections(net, X[:2], width=n)
    drawn = lg.networks.finite_network(net, lg.ntk(), width=n, inputs=4)

    def observed(key):
        params = drawn.draw(key, np.float64)
        jac = jax.jacrev(lambda p: drawn.outputs_of(p, X[:2]))(params)
        rates = jax.tree.leaves(drawn.per_leaf(drawn.table, "lr"))
        rows = zip(jax.tree.leaves(jac), rates, strict=True)
        tangent = sum(r * j.reshape(2, -1) @ j.reshape(2, -1).T for j, r in rows)
        f = drawn.outputs_of(params, X[:2]).reshape(-1)
        return tangent, f[:, None] * f

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(5), networks)
        tangent, products = jax.lax.map(observed, keys, batch_size=200)
    i, j = theory.pairs.T
    tangent, products = np.asarray(tangent)[:, i, j], np.asarray(products)[:, i, j]
    centred, others = tangent - tangent.mean(0), products - products.mean(0)
    slack = 3 * np.abs(theory.next_order).max()
    for seen, expected in (
        (centred[:, :, None] * centred[:, None], theory.ntk_covariance),
        (centred[:, :, None] * others[:, None], theory.ntk_kernel_covariance),
    ):
        error = seen.std(0) / np.sqrt(networks)
        assert np.all(np.abs(seen.mean(0) - expected) < 3.5 * error + slack * expected.max())
    shift = tangent.mean(0) - theory.ntk[i, j]
    error = tangent.std(0) / np.sqrt(networks)
    assert np.all(np.abs(shift - theory.ntk_shift[i, j]) < 3.5 * error + 0.2 * np.abs(shift))


@pytest.mark.slow
def test_limits_are_the_kernels():
    net = lg.mlp(3, "elu", weight_std=1.3, bias_std=0.2)
    found = lg.finite_width.width_corrections(net, X, width=64)
    kernels = lg.kernel(net, X)
    assert np.allclose(found.kernel, kernels.nngp, rtol=1e-9)
    assert np.allclose(found.ntk, kernels.ntk, rtol=1e-9)


@pytest.mark.slow
def test_tensors_of_some_inputs_do_not_depend_on_others():
    net = lg.mlp(2, "gelu", weight_std=1.4)
    x = RNG.normal(size=(5, 6))
    all_five = lg.finite_width.width_corrections(net, x, width=50)
    two = lg.finite_width.width_corrections(net, x[[1, 3]], width=50)
    index = [n for n, pair in enumerate(all_five.pairs.tolist()) if set(pair) <= {1, 3}]
    for name in ("kernel_covariance", "ntk_covariance", "ntk_kernel_covariance"):
        seen = getattr(all_five, name)[np.ix_(index, index)]
        size = np.abs(seen).max()
        assert np.allclose(seen, getattr(two, name), rtol=0, atol=1e-5 * size)
    assert all_five.kernel_third_cumulant is None


@pytest.mark.long_loops
@pytest.mark.slow
def test_averages_of_observables():
    net = lg.mlp(3, "tanh", weight_std=1.2)
    found = lg.finite_width.width_corrections(net, X[:2], width=120)
    K, m, V = found.kernel, found.kernel_shift, found.kernel_covariance
    second = found.expectation(lambda z: z[:, 0, 0] * z[:, 0, 1])
    assert second == pytest.approx((K[0, 1], m[0, 1]), abs=1e-12)
    fourth = found.expectation(lambda z: z[:, 0, 0] ** 4, [0])
    assert fourth.shift == pytest.approx(3 * V[0, 0] + 6 * K[0, 0] * m[0, 0], rel=1e-9)
    two = found.expectation(lambda z: z[:, 0, 0] ** 2 * z[:, 1, 0] ** 2, [0], neurons=2)
    assert two.shift == pytest.approx(V[0, 0] + 2 * K[0, 0] * m[0, 0], rel=1e-9)
    drawn = lg.finite_width.sample_kernels(net, X[:2], width=120, draws=100_000, key=2)[:, 0, 0]
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    theory = found.expectation(lambda z: np.tanh(z[:, 0, 0]) ** 2, [0])
    seen = np.tanh(np.sqrt(drawn)[:, None] * z) ** 2 @ (weights / weights.sum())
    error = seen.std() / np.sqrt(len(seen))
    assert abs(seen.mean() - theory.value) < 3.5 * error + 2e-5


def test_the_fourth_cumulant_belongs_to_the_same_layer():
    # Bahri and Hanin's Theorem 4.2 prints κ₄ of the layer behind; with one hidden layer E z⁴ =
    # 3(K² + V) is exact, and the first layer's outputs are exactly Gaussian.
    net, width = lg.mlp(1, "tanh"), 30
    found = lg.finite_width.width_corrections(net, X[:1], width=width)
    exact = 3 * found.kernel_covariance[0, 0]
    assert found.expectation(lambda z: z[:, 0, 0] ** 4).shift == pytest.approx(exact, rel=1e-9)
    behind = lg.finite_width.width_corrections(lg.mlp(2, "tanh"), X[:1], width=width)
    printed = 3 * behind.kernel_covariance[0, 0]
    S = lg.finite_width.sample_kernels(net, X[:1], width=width, draws=100_000, key=0)[:, 0, 0]
    error = 3 * S.var() * np.sqrt(3 / len(S))
    assert abs(3 * S.var() - exact) < 3.5 * error
    assert abs(3 * S.var() - printed) > 10 * error


def test_cumulants_decay_with_one_power_of_the_width_less():
    # κ₄ ~ 1/n and κ₆ ~ 1/n²; one paper's remark prints n^(−k) for the 2k-th.
    small, large = (one_input("tanh", 3, n) for n in (50, 100))
    assert small.kernel_covariance / large.kernel_covariance == pytest.approx(2, rel=1e-12)
    ratio = small.kernel_third_cumulant / large.kernel_third_cumulant
    assert ratio == pytest.approx(4, rel=1e-12)


def test_small_inputs():
    """tanh of small numbers is linear, and relu takes them as any others."""
    tanh, linear = (
        lg.finite_width.width_corrections(lg.mlp(2, phi), 1e-7 * X, width=50)
        for phi in ("tanh", "linear")
    )
    for name in ("kernel_covariance", "ntk_covariance"):
        np.testing.assert_allclose(getattr(tanh, name), getattr(linear, name), rtol=1e-12)
    small, usual = (
        lg.finite_width.width_corrections(lg.mlp(2, "relu"), c * X, width=50) for c in (1e-8, 1.0)
    )
    np.testing.assert_allclose(small.kernel_covariance, 1e-32 * usual.kernel_covariance, rtol=1e-10)


def test_bad_inputs_are_named():
    with pytest.raises(NoRule, match="Conv"):
        lg.finite_width.width_corrections(
            lg.serial(lg.Conv((3,)), lg.Flatten(), lg.Dense()), X, width=8
        )
    with pytest.raises(NoTheory, match="jumps"):
        lg.finite_width.width_corrections(lg.mlp(1, "sign"), X, width=8)
    with pytest.raises(InvalidInput, match="width"):
        lg.finite_width.width_corrections(lg.mlp(2, "tanh"), X, width=[8])
    with pytest.raises(InvalidInput, match="at most 8"):
        lg.finite_width.width_corrections(lg.mlp(1, "tanh"), RNG.normal(size=(9, 3)), width=8)
    with pytest.raises(InvalidInput, match="parallel"):
        lg.finite_width.width_corrections(lg.mlp(1, "relu"), np.stack([X[0], 2 * X[0]]), width=8)
    with pytest.raises(NumericalFailure, match="signal vanishes"):
        lg.finite_width.width_corrections(lg.mlp(120, "tanh", weight_std=0.5), X, width=8)
    with pytest.raises(InvalidInput, match="inputs"):
        lg.finite_width.width_corrections(lg.mlp(1, "tanh"), X, width=8).expectation(len, neurons=2)
    same = lg.finite_width.width_corrections(lg.mlp(2, "tanh"), X[[0, 0]], width=8)
    assert same.kernel_third_cumulant is None
    assert same.kernel_covariance[0, 2] == pytest.approx(same.kernel_covariance[1, 1], rel=1e-8)


def test_results_become_data_sets():
    found = lg.finite_width.width_corrections(lg.mlp(1, "tanh"), X[:2], width=8).to_xarray()
    assert found["kernel_covariance"].dims == ("pair", "pair_2")
    assert found.attrs["widths"] == [8]


@pytest.mark.slow
def test_dead_networks_are_drawn_as_such():
    S = lg.finite_width.sample_kernels(
        lg.mlp(2, "relu", weight_std=2**0.5), X[:2], width=2, draws=20_000, key=0
    )
    assert np.isfinite(S).all()
    dead = np.mean(S[:, 0, 0] == 0)
    exact = 1 - (1 - 2**-2) ** 2
    assert abs(dead - exact) < 3.5 * np.sqrt(exact * (1 - exact) / len(S))
