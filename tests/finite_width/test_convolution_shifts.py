"""Mean kernels of convolutional networks at order 1/width: exact cases and networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.random.default_rng(0).normal(size=(2, 3, 3))
I, J = np.array([0, 0, 1]), np.array([0, 1, 1])
KINDS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
STDS = {"weight_std": 1.4, "bias_std": 0.2}


def convolutions(name, windows, end):
    """Return hidden convolutions with activations, the first without padding."""
    pads = ["VALID", *["CIRCULAR"] * (len(windows) - 1)]
    layers = [
        (lg.Conv((window,), padding=pad, **STDS), lg.Activation(name))
        for window, pad in zip(windows, pads, strict=True)
    ]
    return lg.serial(*(part for layer in layers for part in layer), end, lg.Dense(**STDS))


def z_scores(found, measured, error, width, name):
    """Return (measured − K − shift)/error for the pairs of both samples."""
    limit, shift, own = (getattr(found, name + end) for end in ("", "_shift", "_shift_error"))
    size = found.widths[0] / width
    return ((measured - limit - size * shift) / np.hypot(error, size * own))[I, J]


@pytest.mark.parametrize("name", KINDS)
def test_pooled_single_positions_have_the_shift_of_dense_networks(name):
    # Without windows the output is the average of a dense network over the positions.
    x, hidden = X[:1, :2], [1, 1]
    net = convolutions(name, hidden, lg.GlobalAvgPool())
    found = lg.finite_width.width_fluctuations(net, x, width=100, draws=2)
    dense = lg.mlp(len(hidden), name, weight_std=1.4, bias_std=0.2)
    exact = lg.finite_width.width_corrections(dense, x[0], width=100)
    for kernel in ("kernel", "ntk"):
        shift, error = (getattr(found, f"{kernel}_shift{end}").item() for end in ("", "_error"))
        assert abs(shift - getattr(exact, f"{kernel}_shift").mean()) < 3.5 * error
        assert error < 3e-3 * getattr(found, kernel).item()
        assert kernel == "ntk" or abs(shift) > 3 * error


def drawn_kernels(phi, width, draws):
    """Return ff'/(3n) of features behind three convolutions with a window of 2, by weights."""

    def one(key):
        h = X.astype(np.float32)
        for layer, now in enumerate(jax.random.split(key, 3)):
            of_weights, of_bias = jax.random.split(now)
            w = jax.random.normal(of_weights, (2, h.shape[-1], width))
            behind = jnp.roll(h, -1, axis=1)
            if layer == 0:
                h, behind = h[:, :-1], behind[:, :-1]
            u = (h @ w[0] + behind @ w[1]) / np.sqrt(2 * h.shape[-1])
            h = phi(1.4 * u + 0.2 * jax.random.normal(of_bias, (width,)))
        f = h.reshape(len(h), -1)
        return f @ f.T / f.shape[1]

    keys = jax.random.split(jax.random.key(4), (draws // 1024, 1024))
    return np.asarray(jax.lax.map(jax.vmap(one), keys), np.float64).reshape(-1, 2, 2)


@pytest.mark.parametrize("name", ["tanh", pytest.param("relu", marks=pytest.mark.slow)])
def test_mean_kernels_of_networks_at_two_widths(name):
    net = convolutions(name, [2, 2, 2], lg.Flatten())
    found = lg.finite_width.width_fluctuations(net, X, width=64, draws=2)
    seen = []
    for width in (8, 16):
        S = 1.4**2 * drawn_kernels(KINDS[name], width, 2**14) + 0.04
        error = S.std(0) / len(S) ** 0.5
        assert np.abs(z_scores(found, S.mean(0), error, width, "kernel")).max() < 3.5
        seen.append(np.abs((S.mean(0) - found.kernel) / error).max())
    assert min(seen) > 3  # the networks differ from the limit


@pytest.mark.slow
@pytest.mark.long_loops
def test_mean_tangent_kernels_of_networks():
    def circular():
        return lg.serial(lg.Activation("sin"), lg.Conv((2,), padding="CIRCULAR", **STDS))

    first = lg.Conv((2,), padding="VALID", **STDS)
    stream = lg.serial(
        first, lg.Residual(circular()), lg.Residual(circular()),
        lg.Activation("sin"), lg.GlobalAvgPool(), lg.Dense(),
    )  # fmt: skip
    chain = lg.serial(first, circular(), circular(), lg.Activation("sin"), lg.Flatten(), lg.Dense())
    for net, visible in ((chain, 4), (stream, 5)):
        found = lg.finite_width.width_fluctuations(net, X, width=64, draws=2**17)
        seen = []
        for width, draws in ((8, 2**18), (16, 2**16)):
            nets = lg.networks.monte_carlo_kernel(
                net, X.astype(np.float32), width=width, draws=draws, key=5
            )
            z = z_scores(found, nets.ntk, nets.ntk_error, width, "ntk")
            assert np.abs(z).max() < 3.5
            seen.append(np.abs((nets.ntk - found.ntk) / nets.ntk_error)[I, J].max())
        assert seen[0] > visible


def test_inputs_with_positions_are_told_where_to_go():
    with pytest.raises(InvalidInput, match=r"got shape \(2, 3, 3\).*width_fluctuations"):
        lg.finite_width.width_corrections(lg.mlp(1), X, width=9)
