"""Misprints in the limit of infinite depth of Bordelon et al., found out by networks.

Others are in `test_one_step.py` ((8), (9), (94), (101)), `test_riccati.py` and
`test_lazy_blocks.py` ((141)-(143), and (54) with (90) without A), and, of finite depth too, in
`../deep/test_printed_equations.py` and `../deep/test_residual.py` ((39)-(43), (53), (54), (62),
(67), (69)-(71), (100), (147)).
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.theories.mean_field.infinite_depth.one_step import infinite_depth_one_step

N, STEPS, RATE, GAMMA, GROUPS, EACH = 256, 5, 0.8, 1.5, 8, 4
RNG = np.random.default_rng(4)
INPUTS, TARGETS = RNG.standard_normal((4, 5)), np.array([1.0, -1.0, 1.0, -1.0])
DATA = lg.Dataset(INPUTS, TARGETS)


@partial(jax.jit, static_argnames=("blocks",))
def correlations(key, blocks):
    """Train a network on one sample; return M = g·W(0)φ(h)/N, Φ and G by block, over two times."""
    keys = jax.random.split(key, 3)
    first, last = jax.random.normal(keys[0], (N,)), jax.random.normal(keys[1], (N,))
    hidden = jax.random.normal(keys[2], (blocks, N, N))

    def stream(weights, nudges):
        first, hidden, _ = weights

        def block(h, own):
            w, nudge = own
            h = h + w @ jnp.tanh(h) / (blocks * N) ** 0.5 + nudge
            return h, h

        _, behind = jax.lax.scan(block, first, (hidden, nudges))
        return jnp.concatenate([first[None], behind])

    def output(weights, nudges):
        return weights[2] @ jnp.tanh(stream(weights, nudges)[-1]) / (GAMMA * N)

    def step(weights, _):
        still = jnp.zeros((blocks, N))
        f, (slope, g) = jax.value_and_grad(output, (0, 1))(weights, still)
        seen = jnp.tanh(stream(weights, still)[:-1]), N * GAMMA * g
        # Of (1 − f)²/2, at the rate η₀γ₀²N.
        return jax.tree.map(
            lambda w, s: w + RATE * GAMMA**2 * N * (1 - f) * s, weights, slope
        ), seen

    _, (features, gradients) = jax.lax.scan(step, (first, hidden, last), None, length=STEPS)
    passed = jnp.einsum("lij,tlj->tli", hidden, features) / N**0.5
    pair = partial(jnp.einsum, "sli,tli->lst")
    return tuple(pair(*two) / N for two in
                 ((gradients, passed), (features, features), (gradients, gradients)))  # fmt: skip


def responses(m, phi, g):
    """Solve M(s, t) = Σ B(s, s′)Φ(s′, t) + Σ A(t, s′)G(s′, s), with A(t, s′) of s′ < t, for B.

    By Stein's lemma, with W(0)φ(h(t)) = u(t) + Σ A(t, s)g(s). B(s, s′) of s′ ≤ s: there are as many
    numbers as equations.
    """
    before = [(t, s) for t in range(STEPS) for s in range(t)]
    upto = [*before, *((t, t) for t in range(STEPS))]
    columns = []
    for s, past in upto:
        column = np.zeros((STEPS, STEPS))
        column[s] = phi[past]
        columns.append(column.ravel())
    for t, past in before:
        column = np.zeros((STEPS, STEPS))
        column[:, t] = g[past]
        columns.append(column.ravel())
    found = np.linalg.solve(np.array(columns).T, m.ravel())
    return found[len(before) : len(upto)]


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [4, 16])
def test_response_at_equal_times_outlives_the_depth(blocks):
    """C_g has B(t, t), which the integrals up to s < t of (71)-(73) leave out.

    B of one of L blocks is √L times smaller than in the limit.
    """
    keys = jax.random.split(jax.random.key(1), GROUPS * EACH)
    seen = jax.lax.map(partial(correlations, blocks=blocks), keys)
    grouped = [
        np.asarray(x, float).reshape(GROUPS, EACH, blocks, STEPS, STEPS).mean(1) for x in seen
    ]
    equal = [
        np.mean([responses(*(x[group, l] for x in grouped)) for l in range(blocks)], 0)
        for group in range(GROUPS)
    ]
    mean = blocks**0.5 * np.mean(equal, 0)
    error = blocks**0.5 * np.std(equal, 0, ddof=1) / GROUPS**0.5
    assert abs(mean[0]) < 4 * error[0]
    assert abs(mean[-1]) > 8 * error[-1]
    assert -0.45 < mean[-1] < -0.2  # at both depths


def test_features_at_small_depth():
    """H₁ − H₀ ≈ η₀²γ₀²y² e τ²; what follows (101) has 1 + (1 + e⁻¹) where G₀ = e^(1−τ) gives e."""
    y, gamma, lr = 0.7, 1.3, 0.8
    step = infinite_depth_one_step(y, gamma=gamma, lr=lr, read_in=False, points=10001)
    change = (step.feature_after - step.feature_before)[10] / step.tau[10] ** 2
    k = (lr * gamma * y) ** 2
    assert change == pytest.approx(np.e * k, rel=5e-3)
    assert abs(change / (k * (2 + np.exp(-1))) - 1) > 0.1


def assert_read_out_is_needed(outputs, kernel, parts, rate):
    """The outputs move as the whole kernel says, and not as it does without the read-out's part."""
    without, read_out = parts
    np.testing.assert_allclose(without + read_out, kernel, rtol=2e-3, atol=2e-3)
    moved = outputs[1] - outputs[0]

    def off(kernel):
        predicted = rate / 4 * kernel @ (TARGETS - outputs[0])
        return np.linalg.norm(predicted - moved) / np.linalg.norm(moved)

    assert off(kernel) < 0.02
    assert off(without) > 0.15


def test_linear_tangent_kernel_has_the_read_out():
    """K = Φ(1) + ∫GΦ dτ + G(0)Φ⁰: (8) and (89) lack Φ(1), though the read-out trains in (71)."""
    rate, steps = 0.01, 30
    net = lg.residual_mlp(math.inf, "linear")
    run = lg.Run(net, lg.depth_mup(GAMMA), DATA, optimizer=lg.gd(rate), steps=steps)
    limit = lg.solve(run, record_at=[steps - 1])
    phi, g = limit.feature_kernel[0], limit.gradient_kernel[0]
    boole = np.array([7, 32, 12, 32, 7]) / 90
    without = np.einsum("l,lmn->mn", boole, g * phi) + g[0] * (INPUTS @ INPUTS.T / 5)
    assert_read_out_is_needed(limit.f_train[-2:], limit.ntk[0], (without, phi[-1]), rate)


@pytest.mark.slow
def test_tangent_kernel_has_the_read_out():
    """As in the linear case: (75) lacks Φ_out(1) for any activation."""
    rate, steps, blocks = 0.01, 30, 16
    net = lg.residual_mlp(blocks, "tanh")
    run = lg.Run(net, lg.depth_mup(GAMMA), DATA, optimizer=lg.gd(rate), steps=steps)
    options = {"record": ("feature_kernel", "gradient_kernel", "ntk"), "record_at": [steps - 1]}
    one = lg.train(run, width=128, seeds=2, key=0, **options)
    phi, g = one.feature_kernel[0, 0], one.gradient_kernel[0, 0]
    without = (g[1:] * phi[:-1]).sum(0) / blocks + g[0] * (INPUTS @ INPUTS.T / 5)
    assert_read_out_is_needed(one.f_train[0, -2:], one.ntk[0, 0], (without, phi[-1]), rate)


@pytest.mark.slow
def test_inner_weights_of_blocks_move_the_stream():
    """(141)-(143) let the last matrix of a block alone move the stream, at any activation.

    Networks with the same initial weights show what training the first one changes: 3 % of Δ, at
    any depth.
    """
    param, first = lg.depth_mup(), "1.0.0.1.weight"
    still = param.with_rates({first: 0.0})
    changes = []
    for blocks in (4, 16):
        net = lg.residual_mlp(blocks, "tanh", layers_per_block=2)
        f, held = (
            lg.train(
                lg.Run(net, each, DATA, optimizer=lg.gd(0.3), steps=15), width=96, seeds=48, key=1
            ).f_train
            for each in (param, still)
        )
        change, left = (f - held).reshape(len(f), -1), (TARGETS - f).mean(0).ravel()
        along = change @ left / (left @ left)
        error = along.std(ddof=1) / len(along) ** 0.5
        assert along.mean() > max(0.02, 8 * error)
        changes.append((along.mean(), error))
    (few, few_error), (many, many_error) = changes
    assert many > 0.7 * few - 3 * math.hypot(few_error, many_error)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "close"), [("relu", 1e-5), ("tanh", 2e-2)])
def test_inner_weights_hold_half_of_the_body(activation, close):
    """Two matrices a block: exactly on the diagonal if φ is homogeneous, by Euler's theorem."""
    net, param = lg.residual_mlp(math.inf, activation, layers_per_block=2), lg.depth_mup()
    first, last = "1.0.0.1.weight", "1.0.0.3.weight"
    all_move, without, none = (
        np.diag(lg.ntk_kernel(net, INPUTS[:2], param=param.with_rates(dict.fromkeys(still, 0.0))))
        for still in ((), (first,), (first, last))
    )
    np.testing.assert_allclose((all_move - without) / (all_move - none), 0.5, atol=close)
