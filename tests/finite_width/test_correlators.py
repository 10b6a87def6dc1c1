"""Correlators of derivatives: exact of linear networks, their orders, and the hierarchy."""

from itertools import combinations, combinations_with_replacement

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.finite_width.hierarchy import _hierarchy

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))
CHANGE = [(0, 1), (1, 2)]


def exact(x, contractions=(), width=7, layers=2, **options):
    net = lg.mlp(layers, "linear", **options)
    return lg.finite_width.linear_correlator(net, x, contractions, width=width)


@pytest.mark.parametrize("width", [(7,), (4, 5, 3)])
def test_one_input_is_known(width):
    net, one = lg.mlp(len(width), "linear"), np.ones((4, 3))
    known = lg.finite_width.homogeneous_moments(net, one[:1], width=width)
    args = {"width": width, "layers": len(width)}
    theta = exact(one, [(0, 1), (2, 3)], **args)
    assert theta == pytest.approx(known.ntk_variance + known.ntk**2, rel=1e-12)
    assert exact(one, CHANGE, **args) == pytest.approx(known.ntk_change, rel=1e-12)
    sixth = lg.finite_width.linear_network_output(net, one[:1], width=width).moment(6)
    assert exact(np.ones((6, 3)), **args) == pytest.approx(sixth, rel=1e-12)


def test_two_factors_are_the_kernels():
    net = lg.mlp(2, "linear", weight_std=1.3)
    nngp, ntk = lg.kernel(net, X[:2])
    assert exact(X[:2], weight_std=1.3) == pytest.approx(float(nngp[0, 1]), rel=1e-5)
    assert exact(X[:2], [(0, 1)], weight_std=1.3) == pytest.approx(float(ntk[0, 1]), rel=1e-5)
    assert exact(X[:2], [(0, 1)] * 4) == 0  # more derivatives than matrices
    assert exact(X[:2], [(0, 1)] * 3, width=5) > 0


def test_orders_bound_exact_correlators_of_up_to_six_factors():
    attained = []
    for m in (2, 4, 6):
        edges = list(combinations(range(m), 2))
        for count in range(5):
            graphs = list(combinations_with_replacement(edges, count))
            chosen = RNG.choice(len(graphs), min(len(graphs), 12), replace=False)
            for graph in (graphs[i] for i in chosen):
                near, far = (exact(np.ones((m, 1)), graph, width=n) for n in (10**5, 10**6))
                if near:
                    power = np.log10(far / near)
                    order = lg.finite_width.correlator_order(graph)
                    assert power < order + 0.01, graph
                    attained.append(abs(power - order) < 0.01)
    assert len(attained) > 60
    assert np.mean(attained) > 0.8


@pytest.mark.parametrize(("s", "order"), [(2, 0), (3, -1), (4, -1), (5, -2), (6, -2)])
def test_orders_of_the_hierarchy(s, order):
    # A tree of s factors.
    pairs = [(a, a + 1) for a in range(s - 1)]
    assert lg.finite_width.correlator_order(pairs) == order


def test_the_hierarchy_drives_itself():
    net = lg.mlp(2, "tanh", weight_std=1.2)
    params = lg.networks.init(net, lg.ntk(), width=6, inputs=3, key=1, dtype=np.float64)
    run = lg.finite_width.training_hierarchy(net, params, X, order=4)
    theta = lg.networks.empirical_ntk(net, params, X)
    np.testing.assert_allclose(run[1], theta, rtol=1e-10)
    slope = jax.grad(lambda p: lg.networks.apply(net, p, X)[1], allow_int=True)
    with jax.enable_x64(True):
        step = slope(params)
        for s in (1, 2, 3):
            ends = [
                lg.finite_width.training_hierarchy(
                    net, jax.tree.map(lambda p, g, e=e: p + e * g, params, step), X, order=s
                )[-1]
                for e in (-1e-5, 1e-5)
            ]
            change = (ends[1] - ends[0]) / 2e-5
            np.testing.assert_allclose(run[s][..., 1], change, atol=1e-7 * np.abs(run[s]).max())


@pytest.mark.slow
def test_networks_have_the_correlators_of_several_inputs():
    net, width = lg.mlp(2, "linear"), 5
    with jax.enable_x64(True):
        network = lg.networks.finite_network(net, lg.ntk(), width=width, inputs=3)
        keys = jax.random.split(jax.random.key(3), 40_000)

        def one(key):
            params = network.draw(key, np.float64)
            return _hierarchy((network, 3), params, X)

        f, theta, third = map(np.asarray, jax.jit(jax.vmap(one))(keys))

    def z(values, expected):
        return abs(values.mean() - expected) / (values.std() / len(values) ** 0.5)

    assert z(f.prod(1), exact(X, width=width)) < 4
    pairs = theta[:, 0, 1] * theta[:, 2, 3]
    assert z(pairs, exact(X, [(0, 1), (2, 3)], width=width)) < 4
    # O_3(x₀, x₁, x₂) is the derivative of ∇f₀·∇f₁ along ∇f₂.
    expected = exact(X, [(0, 1), (0, 2)], width=width) + exact(X, CHANGE, width=width)
    assert z(third[:, 0, 1, 2] * f[:, 3], expected) < 4
    assert expected > 0.02 or expected < -0.02


def test_bad_arguments_are_named():
    with pytest.raises(InvalidInput, match="even number"):
        exact(X[:3])
    with pytest.raises(InvalidInput, match="two different factors"):
        lg.finite_width.correlator_order([(1, 1)])
    with pytest.raises(InvalidInput, match="from 0 to 3"):
        exact(X, [(0, 4)])
    with pytest.raises(NoTheory, match="not linear"):
        lg.finite_width.linear_correlator(lg.mlp(1, "abs"), X, width=3)
