"""Kernels of graphs: against finite networks of the same program, and identities."""

import jax
import numpy as np
import pytest
from tests.kernels.graphs import CONV, DENSE, GRAPHS, POOL, RELU, TANH, looped, recurrent
from tests.programs.interpreter import extrapolated

import largen as lg
from largen.errors import InvalidInput, LostDigits, NoTheory, NumericalFailure
from largen.expectations.two_functions import cross_shortfall

RNG = np.random.default_rng(3)
X, X2 = RNG.standard_normal((3, 3)), RNG.standard_normal((4, 3))
ROWS = RNG.standard_normal((3, 4, 2))


def equal(one, two, rtol=1e-10):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.slow
@pytest.mark.long_loops
@pytest.mark.parametrize("name", GRAPHS)
def test_finite_networks_of_the_same_program(name):
    net, inputs = GRAPHS[name]
    x = np.random.default_rng(3).standard_normal((3, *inputs))
    with jax.enable_x64(True):
        found = extrapolated(net, x, 400, (64, 128))
    for limit, (estimate, error) in zip(lg.kernel(net, x), found, strict=True):
        assert np.abs((estimate - limit) / error).max() < 3.5
        assert error.mean() < 0.05 * np.abs(limit).max()


def test_a_tree_written_as_a_graph():
    bend = lg.Activation("abs")
    tree = lg.serial(
        DENSE,
        lg.Residual(lg.serial(bend, DENSE)),
        RELU,
        lg.layers.Concatenate(DENSE, bend),
        RELU,
        DENSE,
    )
    graph = lg.layers.Graph(
        {
            "h": (DENSE, "x"),
            "branch": (lg.serial(bend, DENSE), "h"),
            "s": ("sum", "h", "branch"),
            "r": (RELU, "s"),
            "one": (DENSE, "r"),
            "two": (bend, "r"),
            "both": ("concatenate", "one", "two"),
            "f": (lg.serial(RELU, DENSE), "both"),
        }
    )
    equal(lg.kernel(graph, X, X2), lg.kernel(tree, X, X2), 1e-13)


def test_one_weight_used_twice_on_the_same_value_is_used_once():
    """W h + W h = 2 W h, and half of it is W h."""
    once = lg.serial(DENSE, TANH, DENSE, RELU, DENSE)
    twice = lg.layers.Graph(
        {
            "h": (lg.serial(DENSE, TANH), "x"),
            "a": (DENSE, "h"),
            "b": ("a", "h"),
            "s": ("sum", (0.25, "a"), (0.75, "b")),
            "f": (lg.serial(RELU, DENSE), "s"),
        }
    )
    equal(lg.kernel(twice, X, X2), lg.kernel(once, X, X2))


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, -1.0, 0.5])
def test_a_shared_weight_is_linear(factor):
    """W a + c W b = W (a + c b) for one weight W, of relu and sigmoid, which are not centred."""
    free, sigmoid = lg.Dense(weight_std=1.3), lg.Activation("sigmoid")
    towers = {"a": (lg.serial(DENSE, RELU), "x"), "b": (lg.serial(DENSE, sigmoid), "x")}
    apart = lg.layers.Graph(
        {
            **towers,
            "Wa": (free, "a"),
            "Wb": ("Wa", "b"),
            "s": ("sum", "Wa", (factor, "Wb")),
            "f": (lg.serial(RELU, DENSE), "s"),
        }
    )
    together = lg.layers.Graph(
        {
            **towers,
            "s": ("sum", "a", (factor, "b")),
            "f": (lg.serial(free, RELU, DENSE), "s"),
        }
    )
    equal(lg.kernel(apart, X, X2), lg.kernel(together, X, X2))


def dependent_linear(nodes):
    return lg.layers.Graph({"h": (DENSE, "x"), **nodes, "f": (lg.serial(TANH, DENSE), "s")})


@pytest.mark.slow
def test_a_value_and_its_normalisation():
    """h + h/|h| = h (1 + 1/|h|) is a scaled Gaussian, by hand."""
    net = dependent_linear({"n": (lg.RMSNorm(eps=0.1), "h"), "s": ("sum", "h", "n")})
    K = 1.69 * X @ X.T / 3 + 0.04
    scale = 1 + 1 / np.sqrt(np.diag(K) + 0.1)
    K, T = (scale[:, None] * k * scale for k in (K, K))
    value, slope = lg.expectations.gaussian_moments(
        "tanh", np.diag(K)[:, None], K, np.diag(K)[None]
    )
    nngp = 1.69 * value + 0.04
    equal(lg.kernel(net, X), (nngp, nngp + 1.69 * slope * T))


@pytest.mark.slow
def test_the_order_of_samples():
    """Kernels of x and of its permutation are permuted, though no pair is known to be the same."""
    net, order = recurrent(3, RELU), np.array([2, 0, 1])
    alone, both = lg.kernel(net, X), lg.kernel(net, X, X[order])
    equal(both, [k[:, order] for k in alone], 1e-9)
    assert all((k == k.T).all() for k in alone)


@pytest.mark.slow
def test_convolutions_at_one_position_are_dense():
    one = lg.Conv((1,), weight_std=1.3, bias_std=0.2)

    def graph(layer, end):
        return lg.layers.Graph(
            {
                "h": (layer, "x"),
                "g": (lg.serial(RELU, layer), "h"),
                "g2": ("g", "g"),
                "s": ("sum", "g", "g2", "h"),
                "f": (lg.serial(RELU, *end, DENSE), "s"),
            }
        )

    dense = lg.kernel(graph(DENSE, ()), X, X2)
    for end in (POOL, lg.Flatten()):
        equal(lg.kernel(graph(one, (end,)), X[:, None], X2[:, None]), dense)
    # Equal positions: an average of equal values.
    repeated = np.repeat(X[:, None], 3, 1), np.repeat(X2[:, None], 3, 1)
    equal(lg.kernel(graph(one, (POOL,)), *repeated), dense, 1e-9)


@pytest.mark.slow
def test_pooling_before_or_behind_a_sum():
    """Pools and flattened positions of terms that depend on one another."""
    middle = {
        "h": (CONV, "x"),
        "a": (RELU, "h"),
        "g": (lg.serial(CONV), "a"),
        "b": (lg.Activation("abs"), "h"),
    }
    for end in (POOL, lg.layers.AvgPool((2,)), lg.Flatten()):
        last = lg.serial(lg.Flatten(), DENSE) if end == lg.layers.AvgPool((2,)) else DENSE
        before = lg.layers.Graph(
            {
                **middle,
                "c": ("sum", "a", "g"),
                "p": (end, "c"),
                "q": (end, "b"),
                "s": ("sum", "p", "q"),
                "f": (last, "s"),
            }
        )
        behind = lg.layers.Graph(
            {
                **middle,
                "c": ("sum", "a", "g"),
                "s": ("sum", "c", "b"),
                "p": (end, "s"),
                "f": (last, "p"),
            }
        )
        equal(lg.kernel(before, ROWS), lg.kernel(behind, ROWS))


@pytest.mark.slow
def test_a_repetition_between_dependent_terms():
    """x + (two residual blocks)(x), as a repetition and written out."""
    block = lg.Residual(lg.serial(TANH, DENSE))
    nodes = {"h": (DENSE, "x")}
    loop = lg.layers.Graph(
        {
            **nodes,
            "r": (lg.repeat(block, 2), "h"),
            "s": ("sum", "h", "r"),
            "f": (lg.serial(RELU, DENSE), "s"),
        }
    )
    written = lg.layers.Graph(
        {
            **nodes,
            "r1": (block, "h"),
            "r2": (block, "r1"),
            "s": ("sum", "h", "r2"),
            "f": (lg.serial(RELU, DENSE), "s"),
        }
    )
    equal(lg.kernel(loop, X), lg.kernel(written, X), 1e-13)


@pytest.mark.slow
def test_samples_that_coincide():
    """A gap at coincidence is exactly 0: the NTK of equal samples is that of one sample."""
    net = looped(3)
    twice = np.concatenate([X[:1], X[:1]])
    nngp, ntk = lg.kernel(net, twice)
    for k in (nngp, ntk):
        np.testing.assert_allclose(k, k[0, 0], rtol=1e-13)


def test_a_function_and_its_normalisation():
    """r + LayerNorm(r) with r = relu(h) is one function of h for samples of equal size."""
    x = X / np.linalg.norm(X, axis=1, keepdims=True)
    q = 1.69 / 3 + 0.04
    mean, size = np.sqrt(q / (2 * np.pi)), np.sqrt(q / 2 - q / (2 * np.pi) + 0.1)
    net = lg.layers.Graph(
        {
            "h": (DENSE, "x"),
            "r": (RELU, "h"),
            "n": (lg.LayerNorm(eps=0.1), "r"),
            "s": ("sum", "r", "n"),
            "f": (DENSE, "s"),
        }
    )
    one = lg.Activation(lambda u: jax.nn.relu(u) + (jax.nn.relu(u) - mean) / size)
    equal(lg.kernel(net, x), lg.kernel(lg.serial(DENSE, one, DENSE), x), 1e-9)


def test_a_value_and_its_masked_copy():
    """(h + m h/(1 − r))(h' + m' h'/(1 − r)) is 4 h h' on average, and h² (3 + 1/(1 − r))."""
    net = lg.layers.Graph({
        "h": (DENSE, "x"), "m": (lg.layers.Dropout(0.2), "h"), "s": ("sum", "h", "m"), "f": (DENSE,
            "s"),
    })  # fmt: skip
    K = 1.69 * X @ X.T / 3 + 0.04
    factor = np.where(np.eye(3), 3 + 1 / 0.8, 4.0)
    equal(lg.kernel(net, X), (1.69 * factor * K + 0.04, 1.69 * factor * 2 * K + 0.04))


def test_samples_that_nearly_coincide():
    """Θ(x, x) − Θ(x, x + δ) is proportional to δ, up to the error that is warned of."""
    net, direction = looped(3), np.array([[1.0, -2.0, 1.5]])

    def lost(step):
        _, ntk = lg.kernel(net, np.concatenate([X[:1], X[:1] + step * direction]))
        return ntk[0, 0] - ntk[0, 1]

    far = lost(1e-4)
    with pytest.warns(LostDigits, match="nearly coincide") as found:
        near = lost(3e-8)
    told = float(str(found[0].message).split("off by ")[1].rstrip("."))
    assert 1e-8 < told < 1e-7
    assert abs(near - far * 3e-4) < 30 * told
    assert abs(lost(1e-10)) < 1e-8


@pytest.mark.slow
def test_masked_positions_are_not_there():
    net, mask = GRAPHS["convolution used twice"][0], np.array([True, True, True, False])
    masks = np.broadcast_to(mask, ROWS.shape[:2])
    equal(lg.kernel(net, ROWS, mask1=masks), lg.kernel(net, ROWS[:, :3]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1])
def test_derivatives_in_the_constants(kind):
    kernels = lg.kernels.kernel_of_stds(GRAPHS["functions of dependent values"][0], X)
    name, start = next(iter(kernels.stds.items()))
    with jax.enable_x64(True):

        def total(std):
            return kernels({name: std})[kind].sum()

        slope, step = jax.jit(jax.grad(total))(start), 1e-5
        ends = np.asarray(jax.jit(jax.vmap(total))(start + step * np.array([-1.0, 1.0])))
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-7)


def test_what_the_series_does_not_resolve_is_told():
    relu, tanh = map(lg.expectations.as_activation, ("relu", "tanh"))
    words = [cross_shortfall(relu, tanh, *[np.array([q])] * 2, 1e-7, True) for q in (1.0, 1e6)]
    assert words[0] is None
    assert "of the activations relu and tanh" in words[1]


@pytest.mark.slow
def test_functions_that_the_series_does_not_resolve():
    """E[relu(u) tanh(v)] at variance 1e4, where tanh is nearly a jump."""
    net = GRAPHS["functions of dependent values"][0]
    with pytest.raises(NumericalFailure, match=r"of the activations .* and"):
        lg.kernel(net, 30 * X, rtol=1e-7)


@pytest.mark.slow
def test_variances_along_a_graph():
    net = GRAPHS["overlapping skips"][0]
    variance = lg.criticality.propagate(net, X).variance[-1]
    np.testing.assert_allclose(variance, np.diag(lg.nngp_kernel(net, X)), rtol=1e-10)


def test_what_is_refused():
    two = {"h": (DENSE, "x"), "t": (TANH, "h"), "b": (lg.serial(TANH, DENSE), "h")}
    joint = {**two, "s": ("sum", "t", "b"), "f": (lg.serial(TANH, DENSE), "s")}
    with pytest.raises(NoTheory, match="not Gaussian"):
        lg.kernel(lg.layers.Graph(joint), X)
    read_out = lg.layers.Graph(
        {"h": (DENSE, "x"), "g": (lg.serial(TANH, DENSE), "h"), "f": ("g", "g")}
    )
    with pytest.raises(InvalidInput, match="weights of another node"):
        lg.kernel(read_out, X)


def test_weights_at_two_places_are_refused_where_there_is_no_rule_for_them():
    net = GRAPHS["weight used twice with a skip"][0]
    with pytest.raises(NoTheory, match="a weight at two places"):
        lg.scaling.classify(lg.ntk(), net)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({}, "a dictionary from names"),
        ((), "a dictionary from names"),
        ({"h": DENSE}, "a tuple of what it does"),
        ({"sum": (DENSE, "x")}, "names other than"),
        ({"h": (DENSE, "y")}, "not 'x' or a node before it"),
        ({"h": (DENSE, "x", "x")}, "applies a layer to 2 nodes"),
        ({"h": ("mean", "x", "x")}, "is to apply a layer"),
        ({"h": (DENSE, "x"), "g": ("sum", "h")}, "a sum of one node"),
        ({"h": (DENSE, "x"), "g": ("sum", "h", ("a", "x"))}, "factor in the node 'g'"),
        ({"h": (DENSE, "x"), "g": (DENSE, "x")}, "no node reads 'h'"),
        ({"h": (lg.repeat(DENSE, 2), "x"), "g": ("h", "h")}, "copies of a repetition"),
        ({"h": ("sum", "x", "x"), "g": ("h", "x")}, "which has no layer"),
    ],
)
def test_wrong_graphs(nodes, words):
    with pytest.raises(InvalidInput, match=words):
        lg.layers.Graph(nodes)


def test_nodes_of_other_shapes_are_refused():
    with pytest.raises(InvalidInput, match="the node 's' joins values of different shapes"):
        lg.kernel(
            lg.layers.Graph({"h": (DENSE, "x"), "s": ("sum", "h", "x"), "f": (DENSE, "s")}), X
        )
    with pytest.raises(InvalidInput, match="used again on values of another size"):
        lg.kernel(lg.layers.Graph({"h": (DENSE, "x"), "g": ("h", "h"), "f": (DENSE, "g")}), X)


@pytest.mark.slow
def test_graphs_are_records():
    one, two = looped(2), looped(2)
    assert one == two
    assert hash(one) == hash(two)
    assert eval(
        repr(lg.layers.Graph({"h": (lg.Dense(), "x"), "s": ("sum", "h", (0.5, "h"))})),
        {"Graph": lg.layers.Graph, "Dense": lg.Dense},
    ).nodes[1].factors == (1.0, 0.5)
    assert one.with_parts(one.parts) == one
