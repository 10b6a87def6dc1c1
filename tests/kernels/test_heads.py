"""Attention of many heads with logits q·k/√d, against integrals done otherwise and networks."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 4))
QUERIES, KEYS, VALUES = (
    lg.Dense(weight_std=1.3),
    lg.Dense(weight_std=1.0, bias_std=0.4),
    lg.Dense(weight_std=1.1, bias_std=0.3),
)
MANY, FEW = 2048, 64
TOP = (lg.GlobalAvgPool(), lg.Dense())


def network(draws=FEW, **options):
    heads = lg.layers.MultiHeadAttention(QUERIES, KEYS, VALUES, draws=draws, **options)
    return lg.serial(heads, lg.Dense(weight_std=1.3), *TOP)


def by_jacobians(draws):
    """Means and errors of both kernels: logits from their full covariance, softmax' as it is."""
    rows = X.reshape(6, 4)
    gram = rows @ rows.T / 4
    q, k, v = (s**2 * gram + b**2 for s, b in ((1.3, 0.0), (1.0, 0.4), (1.1, 0.3)))
    index = [(3 * x + p, 3 * x + u) for x in range(2) for p in range(3) for u in range(3)]
    p, u = np.array(index).T
    root = np.linalg.cholesky(q[np.ix_(p, p)] * k[np.ix_(u, u)] + 1e-12 * np.eye(18))
    L = (np.random.default_rng(1).standard_normal((draws, 18)) @ root.T).reshape(draws, 2, 3, 3)
    w = np.exp(L - L.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    J = np.einsum("hxpr,ru->hxpru", w, np.eye(3)) - np.einsum("hxpr,hxpu->hxpru", w, w)
    V, theta_L = v.reshape(2, 3, 2, 3), np.einsum("ac,bd->abcd", q, k)
    # The first maps have Θ = K; a logit's is the sum of those of its query and of its key.
    theta_L = 2 * theta_L.reshape(2, 3, 2, 3, 2, 3, 2, 3)
    nngp = np.einsum("hxpr,hyqs,xrys->hxy", w, w, V) / 9
    path = "hxpru,hyqsv,xrys,xpxuyqyv->hxy"
    theta = nngp + np.einsum(path, J, J, V, theta_L, optimize=True) / 9
    # The two maps behind, of σ² = 1.69 and 1, add their own share each.
    kernels = 1.69 * nngp, 1.69 * (2 * nngp + theta)
    return [(each.mean(0), each.std(0) / draws**0.5) for each in kernels]


@pytest.mark.slow
def test_against_logits_drawn_from_their_covariance():
    wanted = by_jacobians(20_000)
    found = lg.kernels.averaged_kernel(network(MANY), X, replicates=6)
    for mean, error, (want, its) in zip(found[:2], found[2:], wanted, strict=True):
        assert np.abs((mean - want) / np.hypot(error, its)).max() < 4
        assert (np.hypot(error, its) < 0.01 * mean.max()).all()


# By default 12 heads of 12 features, whose logits are nearly Gaussian.
SIZES = {"many": {}, "few": {"key_size": 2, "logit_scale": 2.0, "causal": True}}


@pytest.mark.parametrize("size", SIZES)
def test_against_networks_of_many_heads(size):
    limit = lg.kernel(network(MANY, **SIZES[size]), X)
    net = network(**SIZES[size])
    nets = lg.networks.monte_carlo_kernel(net, X.astype(np.float32), width=144, draws=256, key=0)
    assert np.abs((nets.nngp - limit.nngp) / nets.nngp_error).max() < 3.5
    assert np.abs((nets.ntk - limit.ntk) / nets.ntk_error).max() < 3.5
    assert (nets.ntk_error < 0.03 * limit.ntk.max()).all()


@pytest.mark.slow
def test_a_hidden_first_position_is_as_if_it_were_not_there():
    net = network(causal=True, key_size=3)
    hidden = lg.kernel(net, X, mask1=np.array([[False, True, True]] * 2))
    short = lg.kernels.averaged_kernel(net, X[:, 1:], replicates=16)  # of other draws
    for mean, error, found in zip(short[:2], short[2:], hidden, strict=True):
        assert np.abs((found - mean) / (4 * error)).max() < 4  # error is of 16 times the draws
        assert (error < 0.02 * mean.max()).all()


@pytest.mark.slow
def test_without_a_softmax_it_is_exact():
    """Against networks, and in parts: the values of neural-tangents are elsewhere."""
    heads = lg.layers.MultiHeadAttention(QUERIES, KEYS, VALUES, mechanism="identity")
    net = lg.serial(heads, lg.Dense(weight_std=1.3), *TOP)
    limit = lg.kernel(net, X)
    nets = lg.networks.monte_carlo_kernel(net, X.astype(np.float32), width=144, draws=256, key=0)
    assert np.abs((nets.nngp - limit.nngp) / nets.nngp_error).max() < 3.5
    assert np.abs((nets.ntk - limit.ntk) / nets.ntk_error).max() < 3.5
    mask = np.array([[True, True, False], [True, True, True]])
    hidden = lg.ntk_kernel(net, X, mask1=mask)
    short = lg.ntk_kernel(net, X[:1, :2])
    np.testing.assert_allclose(hidden[:1, :1], short, rtol=1e-12)
    np.testing.assert_allclose(hidden[1, 1], limit.ntk[1, 1], rtol=1e-12)


@pytest.mark.slow
def test_errors_fall_with_draws_and_are_those_of_the_mean():
    few, many = (lg.kernels.averaged_kernel(network(d), X, replicates=8) for d in (FEW, MANY))
    assert 2.8 < few.ntk_error.mean() / many.ntk_error.mean() < 11  # the root of 32 is 5.7
    z = (few.ntk - many.ntk) / np.hypot(few.ntk_error, many.ntk_error)
    assert np.abs(z).max() < 4
    exact = lg.kernels.averaged_kernel(lg.mlp(1, "relu"), X[:, 0], replicates=2)
    assert not exact.ntk_error.any()


@pytest.mark.slow
def test_positive_and_the_same_draws_in_parts_of_a_batch():
    twins = np.concatenate([X, X[:1]])
    net = lg.serial(
        lg.Dense(bias_std=0.2), lg.Activation("relu"), lg.layers.MultiHeadAttention(draws=FEW),
        lg.Dense(), lg.Activation("relu"), lg.Flatten(), lg.Dense(),
    )  # fmt: skip
    whole = lg.ntk_kernel(net, twins)
    assert np.linalg.eigvalsh(whole).min() > -1e-6 * whole.max()
    np.testing.assert_allclose(whole[0, 2], whole[0, 0], rtol=1e-4)
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_allclose(lg.ntk_kernel(net, X), whole[:2, :2], rtol=1e-12)
    np.testing.assert_allclose(lg.ntk_kernel(net, X[1:], X[:1]), whole[1:2, :1], rtol=1e-10)


def test_hidden_positions_do_not_matter():
    mask = np.array([[True, True, False], [True, True, True]])
    other = np.where(mask[..., None], X, 5.0)
    first, second = (lg.ntk_kernel(network(), x, mask1=mask) for x in (X, other))
    np.testing.assert_allclose(first, second, rtol=1e-12)


@pytest.mark.slow
def test_gradients():
    net = network()

    def total(x):
        return lg.ntk_kernel(net, x).sum()

    # The slope happens to be small: a shorter step would leave rounding errors of 1e-6 of it.
    step = 1e-4 * RNG.standard_normal(X.shape)
    with jax.enable_x64(True):
        slope = float((jax.grad(total)(jax.numpy.asarray(X)) * step).sum())
    np.testing.assert_allclose(slope, (total(X + step) - total(X - step)) / 2, rtol=1e-6)


def test_sums_of_rates_and_names_in_the_table():
    table = lg.ntk().table(network(), lg.gd(0.1), width=16, inputs=(3, 4))
    assert [row.name for row in table.rows][:4] == ["0.0.weight", "0.1.weight", "0.1.bias",
                                                    "0.2.weight"]  # fmt: skip
    frozen = lg.ntk().with_rates({"0.0": 0, "0.1": 0})
    assert np.all(lg.ntk_kernel(network(), X, param=frozen) < lg.ntk_kernel(network(), X))


@pytest.mark.parametrize(
    ("net", "error", "words"),
    [
        (
            lg.serial(lg.layers.MultiHeadAttention(lg.Activation("relu")), *TOP),
            InvalidInput,
            "affine",
        ),
        (
            lg.serial(
                lg.Dense(),
                lg.layers.MultiHeadAttention(lg.serial(lg.Dense(), lg.Activation("relu"))),
                *TOP,
            ),
            NoTheory,
            "queries of",
        ),
        (
            lg.serial(lg.layers.MultiHeadAttention(), lg.Activation("relu"), *TOP),
            NoTheory,
            "not Gaussian",
        ),
        (
            lg.serial(lg.GlobalAvgPool(), lg.layers.MultiHeadAttention(), *TOP),
            InvalidInput,
            "positions",
        ),
    ],
)
def test_what_has_no_kernel(net, error, words):
    with pytest.raises(error, match=words):
        lg.kernel(net, X)


@pytest.mark.slow
def test_all_samples_must_fit():
    with pytest.raises(InvalidInput, match="takes all 2 samples together"):
        lg.nngp_kernel(network(), X, memory_budget=3000.0)
    with pytest.raises(InvalidInput, match="draws: wanted"):
        lg.layers.MultiHeadAttention(draws=1)
    with pytest.raises(InvalidInput, match="mechanism: 'relu'"):
        lg.layers.MultiHeadAttention(mechanism="relu")
