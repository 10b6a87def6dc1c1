"""Sums over paths against their enumeration, closed forms and drawn networks."""

from collections import Counter
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory

RNG = np.random.default_rng(0)
ONE = np.array([0.9, -0.4, 1.3])
UNIFORM = (9 / 5, 27 / 7, 9.0)
WIDTHS = (6, 9, 7)


def same(m):
    return np.tile(ONE, (m, 1))


def found(net, directions, contractions=(), width=WIDTHS, **options):
    return lg.finite_width.path_sum(net, directions, contractions, width=width, **options)


def enumerated(v, widths, slopes, moments, pairs):
    """Go through all collections of paths, and over the matrices of all contractions."""
    m, sizes = len(v), (v.shape[1], *widths, 1)
    known = dict(zip(range(0, m + 1, 2), (1.0, 1.0, *moments), strict=False))
    total = 0.0
    for paths in product(product(*map(range, sizes)), repeat=m):
        term = np.prod([v[a, path[0]] for a, path in enumerate(paths)])
        for layer in range(1, len(sizes) - 1):
            for count in Counter(path[layer] for path in paths).values():
                term *= (slopes[0] ** count + slopes[1] ** count) / 2
        if not term:
            continue
        edges = [[path[layer : layer + 2] for path in paths] for layer in range(len(sizes) - 1)]
        for matrices in product(range(len(edges)), repeat=len(pairs)):
            lost = [
                (layer, end) for layer, pair in zip(matrices, pairs, strict=True) for end in pair
            ]
            if len(set(lost)) < len(lost):
                continue
            if any(
                edges[layer][a] != edges[layer][b]
                for layer, (a, b) in zip(matrices, pairs, strict=True)
            ):
                continue
            each = term
            for layer, of in enumerate(edges):
                left = Counter(e for a, e in enumerate(of) if (layer, a) not in lost)
                each *= np.prod([known.get(count, 0.0) for count in left.values()])
                each /= sizes[layer] ** (m // 2)
            total += each
    return total


@pytest.mark.parametrize("pairs", [[], [(0, 1)], [(0, 1), (1, 2)], [(0, 1), (0, 1), (2, 3)]])
@pytest.mark.parametrize("moments", [(3.0,), UNIFORM])
def test_all_collections_of_paths_one_by_one(pairs, moments):
    v, net = RNG.standard_normal((4, 2)), lg.mlp(2, lg.expectations.leaky_relu(0.3))
    known = enumerated(v, (2, 2), (1.0, 0.3), moments, pairs)
    result = found(net, v, pairs, width=2, moments=moments)
    assert result.value == pytest.approx(known, rel=1e-10)
    np.testing.assert_allclose(result.parts.sum(1), known, rtol=1e-10)
    assert list(result.patterns) == ["0123", "01|23", "02|13", "03|12"]


@pytest.mark.parametrize(("name", "std"), [("relu", 2**0.5), ("linear", 1.0), ("abs", 1.0)])
def test_closed_forms_of_one_input(name, std):
    net = lg.mlp(3, name, weight_std=std)
    known = lg.finite_width.homogeneous_moments(net, ONE[None], width=WIDTHS)
    theta = known.ntk_variance + known.ntk**2
    assert found(net, same(2)).value == pytest.approx(known.kernel, rel=1e-12)
    fourth = 3 * (known.kernel**2 + known.kernel_variance)
    assert found(net, same(4)).value == pytest.approx(fourth, rel=1e-12)
    assert found(net, same(2), [(0, 1)]).value == pytest.approx(known.ntk, rel=1e-12)
    assert found(net, same(4), [(0, 1), (2, 3)]).value == pytest.approx(theta, rel=1e-12)
    change = found(net, same(4), [(0, 1), (1, 2)]).value
    assert change == pytest.approx(known.ntk_change, rel=1e-12)
    for moment in (3.0, 1.8, 6.0):
        jacobian = lg.finite_width.homogeneous_jacobian(
            net, width=WIDTHS, inputs=3, fourth_moment=moment
        )
        entries = np.eye(3)[[1, 1, 1, 1]]
        assert found(net, entries[:2], moments=[]).value == pytest.approx(jacobian.second)
        seen = found(net, entries, moments=[moment]).value
        assert seen == pytest.approx(jacobian.fourth, rel=1e-12)


@pytest.mark.parametrize(
    ("m", "pairs"),
    [(4, [(0, 1), (1, 2)]), (6, [(0, 1), (0, 1), (2, 3)]), (6, [(0, 1), (1, 2), (3, 4)]), (8, [])],
)
def test_linear_networks_at_several_inputs(m, pairs):
    v, net = RNG.standard_normal((m, 3)), lg.mlp(2, "linear", weight_std=1.3)
    for param in (None, lg.mean_field(2.0)):
        options = {"width": 4, "param": param}
        known = lg.finite_width.linear_correlator(net, v, pairs, **options)
        assert found(net, v, pairs, **options).value == pytest.approx(known, rel=1e-10)


def test_one_hidden_layer_of_uniform_weights_in_closed_form():
    # f = Σ w_i u_i/√n with u_i = Σ_p W_ip x_p/√D: E u⁴ = 3|x|⁴/D² + (μ₄ − 3) Σ x⁴/D².
    n, excess = 5, UNIFORM[0] - 3
    square = (ONE**2).mean()
    fourth = 3 * square**2 + excess * (ONE**4).sum() / 9
    known = 3 * (n - 1) / n * square**2 + (3 + excess) / n * fourth
    seen = found(lg.mlp(1, "linear"), same(4), width=n, moments=UNIFORM).value
    assert seen == pytest.approx(known, rel=1e-12)


def drawn(name, std, draws):
    """Return f, ∂f/∂x_0, Θ and ∇f·∇²f ∇f of networks with uniform weights."""
    sizes = (3, *WIDTHS, 1)

    def output(weights, x):
        for number, W in enumerate(weights):
            x = std * W @ x / W.shape[1] ** 0.5
            if number < len(weights) - 1 and name == "relu":
                x = jnp.maximum(x, 0)
        return x[0]

    def one(key):
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(keys, sizes[1:], sizes, strict=False)
        weights = [jax.random.uniform(k, (b, a), minval=-(3**0.5), maxval=3**0.5)
                   for k, b, a in shapes]  # fmt: skip
        f, (slope, jacobian) = jax.value_and_grad(output, (0, 1))(weights, jnp.asarray(ONE))
        along = jax.jvp(jax.grad(output), (weights, ONE), (slope, 0 * ONE))[1]
        tangent, bent = (
            sum(jnp.vdot(a, b) for a, b in zip(slope, other, strict=True))
            for other in (slope, along)
        )
        return f, jacobian[0], tangent, bent

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), draws)
        return map(np.asarray, jax.jit(lambda k: jax.lax.map(one, k, batch_size=1000))(keys))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "std"), [("relu", 2**0.5), ("linear", 1.0)])
def test_drawn_networks_of_uniform_weights(name, std):
    f, J, theta, bent = drawn(name, std, 60_000)
    net, x, e = lg.mlp(3, name, weight_std=std), ONE, np.eye(3)[0]
    for seen, directions, pairs in (
        (f**2, [x, x], []),
        (f**4, [x] * 4, []),
        (f * J, [x, e], []),
        (f**2 * J**2, [x, x, e, e], []),
        (J**6, [e] * 6, []),
        (theta, [x, x], [(0, 1)]),
        (theta**2, [x] * 4, [(0, 1), (2, 3)]),
        (theta * f * J, [x, x, x, e], [(0, 1)]),
        (theta**3, [x] * 6, [(0, 1), (2, 3), (4, 5)]),
        (f * bent, [x] * 4, [(0, 1), (1, 2)]),
    ):
        exact = found(net, np.array(directions), pairs, moments=UNIFORM).value
        error = seen.std() / len(seen) ** 0.5
        assert abs(seen.mean() - exact) < 4 * error
        gaussian = found(net, np.array(directions), pairs).value
        assert len(directions) == 2 or gaussian > exact


def test_signs_have_moments_of_outputs_and_no_derivatives_at_kinks():
    rng, net, signs = np.random.default_rng(4), lg.mlp(2, "relu", weight_std=2**0.5), (1, 1, 1)
    first, second, last = (
        rng.choice([-1.0, 1.0], (40_000, *shape)) for shape in ((4, 3), (4, 4), (1, 4))
    )
    one = np.maximum(first @ ONE / 3**0.5 * 2**0.5, 0)
    z = np.einsum("cba,ca->cb", second, one) / 2**0.5
    f = np.einsum("ca,ca->c", last[:, 0], np.maximum(z, 0)) / 2**0.5
    assert (np.abs(z[one.any(1)]) < 1e-12).mean() > 0.04  # the reason: twins of opposite signs
    for m in (2, 4, 6):
        error = (f**m).std() / len(f) ** 0.5
        value = found(net, same(m), width=4, moments=signs).value
        assert abs((f**m).mean() - value) < 4 * error
    entries = np.eye(3)[[0, 0, 0, 1, 1, 1]]
    for directions, pairs in ((entries, []), (same(6), [(0, 1)])):
        for moments in (signs, (1.5, 1.5**2)):  # the second ones are 0 or ±√1.5
            with pytest.raises(NoTheory, match="exactly 0 with a positive probability"):
                found(net, directions, pairs, width=4, moments=moments)
        linear = found(lg.mlp(2, "linear"), directions, pairs, width=4, moments=signs)
        assert np.isfinite(linear.value)
    with pytest.raises(NoTheory, match="only signs have"):
        lg.finite_width.homogeneous_jacobian(net, width=4, inputs=3, fourth_moment=1)


def test_what_is_no_sum_over_paths():
    with pytest.raises(NoTheory, match="a₊"):
        found(lg.mlp(3, "tanh"), same(2))
    with pytest.raises(NoTheory, match="bias"):
        found(lg.mlp(3, "relu", bias_std=0.1), same(2))
    for directions in (same(3), same(10)):
        with pytest.raises(InvalidInput, match="even number of factors"):
            found(lg.mlp(3, "relu"), directions)
    with pytest.raises(InvalidInput, match="wanted 2 for 6 factors"):
        found(lg.mlp(3, "relu"), same(6), moments=[1.8])
    # The last ones are log-convex, and a Hankel matrix of three of them has a negative eigenvalue.
    for m, moments in ((4, [0.9, 1.0]), (4, [3.0, 4.0]), (8, [2.0, 4.5, 10.2])):
        with pytest.raises(InvalidInput, match="no weights of unit variance"):
            found(lg.mlp(3, "relu"), same(m), moments=moments)
    with pytest.raises(InvalidInput, match="beyond the largest number"):
        found(lg.mlp(3, "relu"), 1e100 * same(4))
    with pytest.raises(InvalidInput, match="at most 6"):
        found(lg.mlp(3, "relu"), same(4), [(0, 1)] * 7)
    with pytest.raises(InvalidInput, match="two different factors"):
        found(lg.mlp(3, "relu"), same(4), [(0, 4)])
