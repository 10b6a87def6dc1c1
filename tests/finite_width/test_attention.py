"""Kernels of attention at order 1/width: exact cases, the kernels' rule, and networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

X = 0.6 * np.random.default_rng(0).normal(size=(2, 3, 4))
I, J = np.array([0, 0, 1]), np.array([0, 1, 1])
fluctuations = lg.finite_width.width_fluctuations
MAP, END = lg.Dense(weight_std=1.2, bias_std=0.3), lg.GlobalAvgPool()
TANH, OWN = lg.Activation("tanh"), lg.layers.SelfAttention(logit_scale=0.7)


def heads():
    return lg.layers.MultiHeadAttention(MAP, MAP, MAP, key_size=2, logit_scale=1.3)


def vanishing(number, scale=1.0):
    return lg.QKVAttention(MAP, MAP, MAP, heads=number, logit_scale=scale)


def dense(key, h, n):
    of_weights, of_bias = jax.random.split(key)
    u = h @ jax.random.normal(of_weights, (h.shape[-1], n)) / h.shape[-1] ** 0.5
    return 1.2 * u + 0.3 * jax.random.normal(of_bias, (n,))


def attend(q, k, v, number, scale, power):
    q, k, v = (each.reshape(*each.shape[:2], number, -1) for each in (q, k, v))
    logits = scale * jnp.einsum("nphd,nrhd->nhpr", q, k) / q.shape[-1] ** power
    y = jnp.einsum("nhpr,nrhd->nphd", jax.nn.softmax(logits, -1), v)
    return y.reshape(*y.shape[:2], -1)


def mixed(keys, h, n, *options):
    return attend(*(dense(key, h, n) for key in keys), *options)


def of_heads(keys, h, n):
    h = mixed(keys[1:4], jnp.tanh(dense(keys[0], h, n)), n, n // 2, 1.3, 0.5)
    return jnp.tanh(dense(keys[4], h, n))


def of_vanishing(keys, h, n):
    h = mixed(keys[1:4], jnp.tanh(dense(keys[0], h, n)), n, 2, 1.0, 1.0)
    return jnp.tanh(dense(keys[4], h, n))


def of_own(keys, h, n):
    h = dense(keys[0], h, n)
    return jnp.tanh(dense(keys[1], attend(h, h, h, 1, 0.7, 1.0), n))


def of_stream(keys, h, n):
    h = dense(keys[0], h, n)
    h = h + dense(keys[4], mixed(keys[1:4], h, n, n // 2, 1.3, 0.5), n)
    h = h + dense(keys[8], mixed(keys[5:8], h, n, 1, 1.0, 1.0), n)
    return jnp.tanh(h)


def drawn_kernels(features, width, draws):
    """Return S of networks whose weights are drawn, from pooled features of width n."""

    def one(key):
        h = features(jax.random.split(key, 9), X.astype(np.float32), width).mean(1)
        return 1.44 * h @ h.T / width + 0.09

    keys = jax.random.split(jax.random.key(7), (draws // 256, 256))
    return np.asarray(jax.lax.map(jax.vmap(one), keys), np.float64).reshape(-1, 2, 2)[:, I, J]


def shifts_of(found):
    """Return the kernel's shift and its standard error."""
    assert found.kernel_shift is not None
    assert found.kernel_shift_error is not None
    return found.kernel_shift, found.kernel_shift_error


STREAM = lg.serial(
    MAP, lg.Residual(lg.serial(heads(), MAP)), lg.Residual(lg.serial(vanishing(1), MAP)),
    TANH, END, MAP,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "features"),
    [(lg.serial(MAP, TANH, heads(), MAP, TANH, END, MAP), of_heads),
     (lg.serial(MAP, TANH, vanishing(2), MAP, TANH, END, MAP), of_vanishing),
     (lg.serial(MAP, OWN, MAP, TANH, END, MAP), of_own), (STREAM, of_stream)],
    ids=["heads", "vanishing", "own", "stream"],
)  # fmt: skip
def test_networks_of_two_widths(net, features):
    found = fluctuations(net, X, width=64, draws=2**16)
    np.testing.assert_allclose(found.kernel, lg.kernel(net, X).nngp, rtol=1e-9)
    samples = found.kernel_samples[:, I, J].astype(np.float64)
    shift, error = (64 * each[I, J] for each in shifts_of(found))
    means, errors = [], []
    for width in (16, 48):
        S = drawn_kernels(features, width, 2**15)
        means.append(S.mean(0))
        errors.append(S.std(0) / len(S) ** 0.5)
        ratio = width * np.cov(S.T) / (64 * samples.T @ samples / len(samples))
        assert np.abs(ratio - 1).max() < 0.04 + 3 / width
    # The limit of random heads has an error of its own, which differences do not contain.
    apart, size = means[0] - means[1], 1 / 16 - 1 / 48
    z = (apart - size * shift) / np.hypot(np.hypot(*errors), size * error)
    assert np.abs(z).max() < 3.5
    assert np.abs(shift / error).max() > 20
    if features is not of_own:  # networks tell the shift from none
        assert np.abs(apart / np.hypot(*errors)).max() > 4


def test_heads_that_read_the_data_are_exact():
    # S is an average over heads, so that its mean does not shift and n Var S is the same at all n.
    net = lg.serial(heads(), END, MAP)
    found = fluctuations(net, X, width=8, draws=10_000)
    np.testing.assert_allclose(found.kernel, lg.kernel(net, X).nngp, rtol=1e-9)
    assert np.all(found.kernel_shift == 0)
    S = drawn_kernels(lambda keys, h, n: mixed(keys[:3], h, n, n // 2, 1.3, 0.5), 8, 2**13)
    theory = found.kernel_samples[:, I, J].astype(np.float64)
    for a, b in ((0, 0), (0, 1), (0, 2), (1, 1), (2, 2)):
        seen, wanted = ((each - each.mean(0))[:, [a, b]].prod(1) for each in (S, theory))
        error = np.hypot(seen.std() / len(seen) ** 0.5, wanted.std() / len(wanted) ** 0.5)
        assert abs(seen.mean() - wanted.mean()) < 4 * error
        assert (a, b) == (0, 1) or wanted.mean() > 10 * error


def test_uniform_attention_in_closed_form():
    # Without logits the output is v·z̄ of the mean value z̄ over positions, S = σ_b² + σ_w²|z̄|²/n.
    net = lg.serial(vanishing(1, scale=0.0), END, MAP)
    found = fluctuations(net, X[:1], width=20, draws=40_000)
    mean = X[0].mean(0)
    wanted = 2 * (1.44 * (1.44 * mean @ mean / 4 + 0.09)) ** 2 / 20
    seen = found.kernel_samples.ravel().astype(np.float64) ** 2
    assert abs(seen.mean() - wanted) < 4 * seen.std() / 200
    assert abs(shifts_of(found)[0].item()) < 1e-6
    assert found.kernel.item() == pytest.approx(lg.kernel(net, X[:1]).nngp.item(), rel=1e-9)
    # Features of the data attend to each other without noise.
    still = fluctuations(lg.serial(OWN, END, MAP), X, width=20, draws=9)
    assert not still.kernel_samples.any()


def test_vanishing_logits_in_closed_form():
    # Two positions, S = (1.44/H) Σ_h |a v_1 + (1 − a) v_2|²/d + …, a = ½ + L/4 + O(L³), L the
    # difference of logits, E L² = c² K_Q (K_K,11 + K_K,22 − 2K_K,12)/d, read at position 0 alone.
    x = np.stack([X[0, :2]])
    net = lg.serial(vanishing(2), lg.layers.ScalePositions([1.0, 0.0]), lg.Flatten(), MAP)
    found = fluctuations(net, x, width=40, draws=2**17)
    K = 1.44 * x[0] @ x[0].T / 4 + 0.09
    between = K[0, 0] + K[1, 1] - 2 * K[0, 1]
    shift = 1.44 * K[0, 0] * between / 20 * between / 16 / 2  # the two positions share the fan-in
    seen, error = (each.item() for each in shifts_of(found))
    assert abs(seen - shift) < 4 * error
    assert shift > 20 * error


def test_kernels_in_another_parameterization():
    param, net = lg.mup(), lg.serial(MAP, heads(), MAP, TANH, END, MAP)
    found = fluctuations(net, X, width=16, draws=9, param=param)
    usual = fluctuations(net, X, width=16, draws=9)
    np.testing.assert_allclose(found.kernel, usual.kernel / 16, rtol=1e-9)
    np.testing.assert_allclose(shifts_of(found)[0], shifts_of(usual)[0] / 16, rtol=1e-3)


def test_what_there_is_not():
    found = fluctuations(lg.serial(heads(), END, MAP), X, width=8, draws=9)
    assert "NTK" not in repr(found)
    assert "ntk" not in found.to_xarray()
    with pytest.raises(NoTheory, match="with attention"):
        found.ntk_covariance([(0, 0)])
    for attention, message in (
        (lg.layers.MultiHeadAttention(), "powers of N.*key_size"),
        (lg.layers.MultiHeadAttention(key_size=2, mechanism="identity"), "no softmax"),
        (lg.serial(heads(), lg.Activation("relu")), "behind attention"),
        (lg.QKVAttention(lg.serial(MAP, TANH, MAP)), "affine maps of an activation"),
        (lg.serial(heads(), heads()), "affine maps of an activation"),
    ):
        with pytest.raises(NoTheory, match=message):
            fluctuations(lg.serial(attention, END, MAP), X, width=16)
    with pytest.raises(InvalidInput, match="split"):
        fluctuations(lg.serial(heads(), END, MAP), X, width=9)
    with pytest.raises(InvalidInput, match="more than 32"):
        fluctuations(lg.serial(heads(), END, MAP), np.ones((11, 3, 4)), width=8)
    # 400 K_Q K_K/4d, with the largest variance of a position.
    strong = fluctuations(lg.serial(vanishing(1, 20.0), END, MAP), X, width=100, draws=9)
    largest = (1.44 * (X**2).mean(2) + 0.09).max() ** 2
    assert strong.next_order == pytest.approx(np.full(2, largest))
    assert strong.trusted == bool(largest < 0.2)
