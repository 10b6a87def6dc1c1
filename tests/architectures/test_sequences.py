"""Tokens and positions as inputs."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

RNG = np.random.default_rng(14)
X = RNG.standard_normal((3, 4, 2))
NET = lg.serial(
    lg.Dense(weight_std=1.3, bias_std=0.2), lg.Activation("erf"), lg.GlobalAvgPool(), lg.Dense()
)


def plain(first):
    """NNGP and NTK of NET in NumPy from the covariance behind its first layer."""
    q = np.einsum("ipip->ip", first)
    s = (1 + 2 * q)[:, :, None, None] * (1 + 2 * q)
    K = 2 / np.pi * np.arcsin(2 * first / np.sqrt(s))
    slope = 4 / np.pi / np.sqrt(s - 4 * first**2)
    nngp = K.mean(axis=(1, 3))
    return nngp, nngp + (slope * first).mean(axis=(1, 3))


@pytest.mark.parametrize("length", [None, 1.5])
def test_positions_add_a_gaussian_process(length):
    p = np.arange(4)
    R = np.eye(4) if length is None else np.exp(-((p[:, None] - p) ** 2) / (2 * length**2))
    first = 0.04 + 1.69 * (np.einsum("ipc,jqc->ipjq", X, X) / 2 + 0.7**2 * R[:, None, :])
    got = lg.kernel(NET, lg.with_positions(X, 0.7, length))
    for a, b in zip(got, plain(first), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_tokens():
    tokens = RNG.integers(0, 5, (3, 4))
    same = tokens[:, :, None, None] == tokens
    first = 0.04 + 1.69 * (same + 0.25 * np.eye(4)[:, None, :])
    got = lg.kernel(NET, lg.with_positions(lg.token_inputs(tokens, 5), 0.5))
    for a, b in zip(got, plain(first), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_planes_precisions_and_traces():
    x = RNG.standard_normal((2, 2, 3, 2)).astype("f")
    found = lg.with_positions(x, 0.3, 2.0)
    assert found.dtype == np.float32
    rows = found.astype(float).reshape(2, 6, -1)
    K = np.einsum("ipc,iqc->ipq", rows, rows) / rows.shape[-1]
    place = np.array([(i, j) for i in range(2) for j in range(3)])
    R = np.exp(-np.sum((place[:, None] - place) ** 2, axis=-1) / 8)
    content = np.einsum("ipc,iqc->ipq", x.reshape(2, 6, 2), x.reshape(2, 6, 2)) / 2
    np.testing.assert_allclose(K, content + 0.09 * R, atol=1e-6)
    slope = jax.grad(lambda x: lg.with_positions(x, 0.3).sum())(x)
    np.testing.assert_allclose(slope, np.sqrt(8 / 2), rtol=1e-6)


@pytest.mark.slow
def test_wide_networks():
    x = lg.with_positions(lg.token_inputs(RNG.integers(0, 5, (3, 4)), 5), 0.5, 1.0)
    x = x.astype("f")
    run = lg.Run(NET, lg.ntk(), lg.Dataset(x, np.zeros(3, "f")), optimizer=lg.gd(1e-3), steps=1)
    want, found = lg.kernel(NET, x), []
    for width, key in ((64, 0), (128, 1)):
        nets = lg.train(run, width=width, seeds=400, key=key, record=("ntk",), record_at=[0])
        f = nets.f_train[:, 0].astype(float)
        both = (f[:, :, None] * f[:, None, :], nets.ntk[:, 0].astype(float))
        found.append([(s.mean(0), s.std(0, ddof=1) / np.sqrt(len(s))) for s in both])
    for coarse, fine, limit in zip(*found, want, strict=True):
        error = np.sqrt(4 * fine[1] ** 2 + coarse[1] ** 2)
        z = (2 * fine[0] - coarse[0] - limit) / error
        assert np.abs(z).max() < 4, z
        assert (error < 0.25 * np.abs(np.diag(limit)).max()).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lg.token_inputs([[0.5]], 3), "tokens: wanted integers"),
        (lambda: lg.token_inputs([[0, 3]], 3), "tokens: wanted numbers from 0 to 2, got 0 to 3"),
        (lambda: lg.token_inputs([[0, 1], [2]], 3), "tokens: wanted rows of one length"),
        (lambda: lg.token_inputs([0, 1], 3), "tokens: wanted .sample, position."),
        (lambda: lg.with_positions(X[:, 0]), "x: wanted .sample, .space, channel."),
        (lambda: lg.with_positions(X, -1.0), "std"),
        (lambda: lg.with_positions(X, 1.0, 0.0), "length_scale"),
    ],
)
def test_bad_inputs(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()
