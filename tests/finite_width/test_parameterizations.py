"""Order 1/width in any parameterization, against finite networks in the same one."""

from typing import Any

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1]])
NET = lg.mlp(2, "tanh", weight_std=1.3, bias_std=0.3)
LAZY_BRANCHES = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2")
QUICK = [lg.mup(), lg.mean_field(2.0)]
OTHERS = [
    lg.standard(),
    lg.mup(3.0),
    lg.ntk().with_rates({"hidden": 0.3, "bias": 4.0, "input": 0.0}),
    lg.mean_field(0.5).shift({"hidden": "1/2"}),
    lg.scaling.from_reference(width=8, scaling="mean field"),
]


def of_networks(net, param, width, count):
    """Tangent kernels and products of outputs of dense networks."""
    drawn = lg.networks.finite_network(net, param, width=width, inputs=4)
    rates = jax.tree.leaves(drawn.per_leaf(drawn.table, "lr"))

    def observed(key):
        params = drawn.draw(key, np.float64)
        jac = jax.jacrev(lambda p: drawn.outputs_of(p, X))(params)
        rows = zip(jax.tree.leaves(jac), rates, strict=True)
        tangent = sum(r * j.reshape(2, -1) @ j.reshape(2, -1).T for j, r in rows)
        f = drawn.outputs_of(params, X)
        return tangent, f[:, None] * f

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(7), count)
        tangent, products = jax.lax.map(observed, keys, batch_size=500)
    return np.asarray(tangent), np.asarray(products)


def z_scores(samples, mean):
    return (samples.mean(0) - mean) / (samples.std(0) / len(samples) ** 0.5)


@pytest.mark.parametrize("param", QUICK + [pytest.param(p, marks=pytest.mark.slow) for p in OTHERS])
def test_kernels_are_those_of_networks(param):
    width, count = 24, 4000
    found: Any = lg.finite_width.width_corrections(NET, X, width=width, param=param)
    tangent, products = of_networks(NET, param, width, count)
    drawn = lg.finite_width.sample_kernels(NET, X, width=width, draws=count, param=param, key=1)
    assert np.abs(z_scores(tangent, found.ntk + found.ntk_shift)).max() < 3.5
    assert np.abs(z_scores(products, found.kernel + found.kernel_shift)).max() < 3.5
    assert np.abs(z_scores(drawn, found.kernel + found.kernel_shift)).max() < 3.5
    i, j = found.pairs.T
    moved = (tangent - tangent.mean(0))[:, i, j]
    others = (products - products.mean(0))[:, i, j]
    slack = 4 * np.abs(found.next_order).max()
    for seen, wanted in (
        (moved[:, :, None] * moved[:, None], found.ntk_covariance),
        (moved[:, :, None] * others[:, None], found.ntk_kernel_covariance),
    ):
        left = slack * np.abs(wanted).max()
        error = seen.std(0) / count**0.5
        assert np.all(np.abs(seen.mean(0) - wanted) < 3.5 * error + left)


def test_units_are_those_of_the_width():
    # γf√n has the kernel of lg.ntk() in mean-field parameterization, and Θ is the same.
    plain: Any = lg.finite_width.width_corrections(NET, X, width=50)
    moving: Any = lg.finite_width.width_corrections(NET, X, width=50, param=lg.mean_field(2.0))
    assert np.allclose(moving.kernel * 4 * 50, plain.kernel, rtol=1e-12)
    assert np.allclose(moving.kernel_covariance * (4 * 50) ** 2, plain.kernel_covariance)
    for name in ("ntk", "ntk_shift", "ntk_covariance"):
        assert np.allclose(getattr(moving, name), getattr(plain, name), rtol=1e-10)
    assert moving.trusted == plain.trusted
    same: Any = lg.finite_width.width_corrections(NET, X, width=50, param=lg.ntk())
    assert np.allclose(same.ntk_covariance, plain.ntk_covariance, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.standard(), lg.depth_mup(), LAZY_BRANCHES])
def test_streams_are_those_of_networks(param):
    net, width, count = lg.residual_mlp(2, "tanh", weight_std=1.2, bias_std=0.4), 24, 4000
    found = lg.finite_width.width_corrections(net, X, width=width, param=param)
    _, products = of_networks(net, param, width, count)
    drawn = lg.finite_width.sample_kernels(net, X, width=width, draws=count, param=param, key=1)
    for samples in (products, drawn):
        assert np.abs(z_scores(samples, found.kernel + found.kernel_shift)).max() < 3.5


def test_what_is_refused():
    for call in (
        lg.finite_width.width_corrections,
        lambda *a, **k: lg.finite_width.sample_kernels(*a, draws=2, key=0, **k),
    ):
        with pytest.raises(NoTheory, match="sign distribution"):
            call(NET, X, width=8, param=lg.ntk().with_distribution({"hidden": "sign"}))
        with pytest.raises(InvalidInput, match="powers of a single width"):
            call(NET, X, width=[8, 9], param=lg.mup())
    several = lg.finite_width.width_corrections(NET, X, width=[8, 9], param=lg.ntk())
    assert several.widths == (8, 9)


def test_the_progress_of_long_calls():
    seen = []
    lg.finite_width.width_corrections(
        NET, X, width=8, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)


@pytest.mark.parametrize("param", [lg.mean_field(2.0), lg.mup(), lg.depth_mup()])
def test_posteriors_of_features_that_move_are_refused(param):
    y, options = np.array([1.0, -1.0]), {"param": param}
    with pytest.raises(NoTheory, match="no biases behind the first layer"):
        lg.posterior(NET, X, y, noise=0.1, **options)
    for call, own in (
        (lg.posterior, {"kind": "ntk"}),
        (lg.regression.flow_posterior, {"time": 1.0}), (lg.regression.log_likelihood,
            {"noise": 0.1}),
        (lg.regression.fit_cross_validation, {"noise": 0.1}),
    ):  # fmt: skip
        with pytest.raises(NoTheory, match=r"param: .* lg\.solve"):
            call(NET, X, y, **own, **options)
    with pytest.raises(NoTheory, match=r"param: .* lg\.solve"):
        lg.regression.large.low_rank_posterior(NET, X, y, noise=0.1, landmarks=1, param=param)
    with pytest.raises(NoTheory, match=r"param: .* lg\.solve"):
        lg.NNGPRegressor(NET, param=param).fit(X, y)
    lazy = lg.posterior(lg.residual_mlp(2, "tanh"), X, y, noise=0.1, param=LAZY_BRANCHES)
    assert lazy.status == "ok"
