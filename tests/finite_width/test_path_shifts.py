"""Mean kernels of residual networks at order 1/width: closed forms, other routes, networks."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.finite_width import path_shifts
from largen.finite_width.layered_network import layered_network
from largen.finite_width.neuron_paths import limits_of

X = np.random.default_rng(3).normal(size=(2, 4))
I, J = np.array([0, 0, 1]), np.array([0, 1, 1])
WIDTH = 100


def shifts(net, draws, x=X, key=0, param=None):
    """Return the shifts times the width, and the limits."""
    network = layered_network(net, WIDTH, "here", param, x.shape[1:])
    limits = limits_of(network, x)
    found = path_shifts.shifts_of(network, limits, draws, jax.random.key(key), 2**14)
    return path_shifts.Shifts(*(WIDTH * part for part in found)), limits


def residual(blocks, layers=1, name="tanh", std=1.3):
    return lg.residual_mlp(blocks, name, layers_per_block=layers, weight_std=std, bias_std=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "net", [lg.mlp(2, "tanh", weight_std=1.3, bias_std=0.2), lg.mlp(3, "sin", weight_std=1.2),
            lg.mlp(2, "relu", weight_std=1.3, bias_std=0.2)]
)  # fmt: skip
def test_chains_have_the_shifts_of_the_recursion(net):
    exact = lg.finite_width.width_corrections(net, X, width=WIDTH)
    found, limits = shifts(net, 2**19)
    for name, wanted in (("kernel", exact.kernel_shift), ("tangent", exact.ntk_shift)):
        error = getattr(found, f"{name}_error")
        assert np.abs((getattr(found, name) - WIDTH * wanted) / error).max() < 3.5
    assert found.tangent_error.max() < 0.05 * limits.tangent.max()


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
def test_linear_streams_have_no_shift(layers):
    # Forward and backward passes to a matrix have independent factors, whose squares average to
    # those of infinite width.
    found, limits = shifts(residual(2, layers, "linear", 0.6), 2**18)
    for name in ("kernel", "tangent"):
        error = getattr(found, f"{name}_error")
        assert np.all(np.abs(getattr(found, name)) < 4 * error + 1e-5 * limits.tangent.max())
    assert found.tangent_error.max() < 0.1 * limits.tangent.max()


@pytest.mark.slow
def test_streams_have_the_shift_of_kernels():
    net = residual(2, 2, std=0.8)
    exact = lg.finite_width.width_corrections(net, X, width=WIDTH)
    found, _ = shifts(net, 2**18)
    assert np.abs((found.kernel - WIDTH * exact.kernel_shift) / found.kernel_error).max() < 3.5
    assert np.abs(found.kernel / found.kernel_error).min() > 8
    # The public function takes more inputs, and says how large the errors are.
    three = lg.finite_width.width_fluctuations(net, np.concatenate([X, X[:1] + 1]), width=WIDTH)
    assert three.kernel_shift is not None
    apart = three.kernel_shift[:2, :2] - WIDTH**-1 * found.kernel
    assert np.abs(apart / three.kernel_shift_error[:2, :2]).max() < 4
    assert "ntk_shift_error" in three.to_xarray()


@pytest.mark.parametrize(
    ("net", "known"),
    [(residual(2), True), (residual(2, name="relu"), False), (lg.mlp(2, "relu"), True),
     (lg.serial(lg.Conv((3,)), lg.Activation("relu"), lg.Flatten(), lg.Dense()), True)],
)  # fmt: skip
def test_which_networks_have_shifts(net, known):
    inputs = (4,) if "Conv" not in repr(net) else (5, 3)
    network = layered_network(net, WIDTH, "here", None, inputs)
    assert path_shifts.has_shifts(network) == known


@pytest.mark.slow
@pytest.mark.long_loops
@pytest.mark.parametrize("layers", [1, 2])
def test_tangent_kernels_of_networks(layers, monkeypatch):
    net, width = residual(2, layers), 16
    found, limits = shifts(net, 2**19)
    nets = lg.networks.monte_carlo_kernel(
        net, X.astype(np.float32), width=width, draws=2**19, key=5
    )
    measured = width * (nets.ntk - limits.tangent)
    error = np.hypot(width * nets.ntk_error, found.tangent_error)
    assert np.abs((measured - found.tangent) / error)[I, J].max() < 3.5
    # Networks tell the shift from none, and from what it is without a neuron's own responses.
    assert np.abs(measured / error)[I, J].max() > 5
    zero = lambda network, limits, normals, s: [  # noqa: E731
        0 * s * each for each in path_shifts._by_others(network, limits, normals)
    ]
    monkeypatch.setattr(path_shifts, "_by_own", zero)
    path_shifts._sums.clear_cache()
    without, _ = shifts(net, 2**18, key=1)
    path_shifts._sums.clear_cache()
    error = np.hypot(error, without.tangent_error)
    if layers == 1:  # the stream has as many layers as there are branches, and a larger part of it
        assert np.abs((measured - without.tangent) / error)[I, J].max() > 5


@pytest.mark.slow
def test_posterior_of_residual_networks_against_the_exact_distribution():
    net, n = residual(2, std=1.0), 200
    x, y, noise = np.random.default_rng(1).normal(size=(4, 5)), np.array([1.0, -1.0, 0.5]), 0.1
    found = lg.finite_width.corrected_posterior(net, x[:3], y, x[3:], width=n, noise=noise, key=1)
    S = lg.finite_width.sample_kernels(net, x, width=n, draws=40_000, key=0).astype(np.float64)
    f = np.linalg.solve(
        S[:, :3, :3] + noise * np.eye(3), np.broadcast_to(y[:, None], (len(S), 3, 1))
    )
    f = (S[:, 3:, :3] @ f)[:, 0, 0]
    error = np.hypot(f.std() / len(f) ** 0.5, found.mean_error[0])
    left = 5 / n * abs(found.mean_shift[0])
    assert abs(f.mean() - found.mean[0] - found.mean_shift[0]) < 3.5 * error + left
    assert found.width_covariance[0, 0] == pytest.approx(f.var(), rel=0.1)
