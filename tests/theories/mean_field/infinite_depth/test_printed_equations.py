"""Misprints in the limit of infinite depth of Bordelon et al., found out by networks.

Others are in `test_one_step.py` ((8), (9), (94), (101)), `test_riccati.py` ((141)-(143), and (54)
with (90) without A), and, of finite depth too, in `../deep/test_printed_equations.py` and
`../deep/test_residual.py` ((39)-(43), (53), (54), (62), (67), (69)-(71), (100), (147)).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largen.theories.mean_field.infinite_depth.one_step import infinite_depth_one_step

N, STEPS, RATE, GAMMA, GROUPS, EACH = 256, 5, 0.8, 1.5, 8, 4


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
