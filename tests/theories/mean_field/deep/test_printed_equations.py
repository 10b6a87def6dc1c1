"""Misprints in the equations of motion, found out by one small network.

Before any average the fields of a network of finite width obey the equations exactly, with its own
kernels and with W(0)φ(h) and W(0)ᵀg in the place of the Gaussian fields. The network here is
trained by automatic differentiation and is too narrow for any law of large numbers, so that an
equation holds to rounding errors or not at all.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid
from scipy.special import sici

import largen as lg

P, D, N, L, STEPS, RATE, GAMMA = 3, 4, 6, 3, 5, 0.7, 1.3
KAPPA = RATE * GAMMA / P
RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((P, D)), np.array([1.0, -0.8, 0.5])
PHI0 = X @ X.T / D


def preactivations(weights, residual):
    """Return h^1 … h^L (h^(L+1) too in a residual network), by layer: (sample, neuron)."""
    first, hidden, _ = weights
    fields = [X @ first.T / D**0.5]
    for w in hidden:
        change = jnp.tanh(fields[-1]) @ w.T / N**0.5
        fields.append(fields[-1] + change / L**0.5 if residual else change)
    return fields


def read_out(weights, last, residual):
    return (last if residual else jnp.tanh(last)) @ weights[2] / (GAMMA * N)


def trained(residual, momentum=0.0):
    """Train a network; return h, g = Nγ₀∂f/∂h, Δ and the weights by time."""
    hidden = L if residual else L - 1
    weights = (
        RNG.standard_normal((N, D)),
        [RNG.standard_normal((N, N)) for _ in range(hidden)],
        RNG.standard_normal(N),
    )
    velocity = jax.tree.map(jnp.zeros_like, weights)
    seen = {name: [] for name in ("h", "g", "delta", "weights")}

    def outputs(weights):
        return read_out(weights, preactivations(weights, residual)[-1], residual)

    def moved(weights, nudges):
        """The outputs when the preactivations are nudged."""
        first, hidden, _ = weights
        h = X @ first.T / D**0.5 + nudges[0]
        for w, nudge in zip(hidden, nudges[1:], strict=True):
            change = jnp.tanh(h) @ w.T / N**0.5
            h = (h + change / L**0.5 if residual else change) + nudge
        return read_out(weights, h, residual).sum()

    @jax.jit
    def at(weights):
        h = preactivations(weights, residual)
        g = jax.grad(moved, argnums=1)(weights, [jnp.zeros_like(each) for each in h])
        loss = lambda w: ((outputs(w) - Y) ** 2).sum() / (2 * P)  # noqa: E731
        return jnp.stack(h), N * GAMMA * jnp.stack(g), Y - outputs(weights), jax.grad(loss)(weights)

    for _ in range(STEPS):
        h, g, delta, slope = at(weights)
        for name, value in zip(seen, (h, g, delta, weights), strict=True):
            seen[name].append(value)
        velocity = jax.tree.map(lambda v, s: momentum * v + (1 - momentum) * s, velocity, slope)
        weights = jax.tree.map(lambda w, v: w - RATE * GAMMA**2 * N * v, weights, velocity)
    return SimpleNamespace(
        **{name: np.stack(seen[name]) for name in ("h", "g", "delta")}, weights=seen["weights"]
    )


@pytest.fixture(scope="module")
def nets():
    with jax.enable_x64(True):
        return SimpleNamespace(
            plain=trained(False), residual=trained(True), momentum=trained(True, 0.6)
        )


def phi(net, layer):
    """φ(h^layer): (time, sample, neuron)."""
    return np.tanh(net.h[:, layer - 1])


def past(net, kernel, fields, t, when=None):
    """κ Σ_{s<t} Σ_ν Δ_ν(s) K_μν(t, s) v_ν(s), with the v of another time if ``when`` is given."""
    return KAPPA * sum(
        np.einsum("n,mn,nj->mj", net.delta[s], kernel(t, s), fields[s if when is None else when])
        for s in range(t)
    )


def features(net, layer):
    f = phi(net, layer)
    return lambda t, s: f[t] @ f[s].T / N


def gradients(net, layer):
    g = net.g[:, layer - 1]
    return lambda t, s: g[t] @ g[s].T / N


def far(printed, right):
    return np.linalg.norm(printed - right) > 0.02 * np.linalg.norm(right)


def test_fields_of_a_plain_network(nets):
    """The notes' (48) and (52) have g(t) for g(s); their (48) Φ(s, t) and G(s, t) for (t, s).

    Their (65) has no η₀/P.
    """
    net, t = nets.plain, STEPS - 1
    first, hidden, _ = net.weights[0]
    g1, h1 = net.g[:, 0], net.h[t, 0]
    inputs = lambda t, s: PHI0  # noqa: E731
    chi = X @ first.T / D**0.5
    np.testing.assert_allclose(chi + past(net, inputs, g1, t), h1, atol=1e-12)
    assert far(chi + past(net, inputs, g1, t, when=t), h1)
    assert far(chi + past(net, inputs, g1, t) * P / RATE, h1)

    chi, g2, h2 = phi(net, 1)[t] @ hidden[0].T / N**0.5, net.g[:, 1], net.h[t, 1]
    kernel = features(net, 1)
    np.testing.assert_allclose(chi + past(net, kernel, g2, t), h2, atol=1e-12)
    assert far(chi + past(net, kernel, g2, t, when=t), h2)
    assert far(chi + past(net, lambda t, s: kernel(s, t), g2, t), h2)

    xi, kernel, f1 = g2[t] @ hidden[0] / N**0.5, gradients(net, 2), phi(net, 1)
    z1 = g1[t] / (1 - f1[t] ** 2)
    np.testing.assert_allclose(xi + past(net, kernel, f1, t), z1, atol=1e-11)
    assert far(xi + past(net, lambda t, s: kernel(s, t), f1, t), z1)


def test_features_through_the_blocks(nets):
    """(42) of Bordelon et al. counts u from k = 0, and Φ^k g^(k+1) too; both begin at h^1.

    What (54) prints, Δ once more beside a C_h that has it already, is off as well.
    """
    net, t, layer = nets.residual, STEPS - 1, L + 1
    hidden = net.weights[0][1]
    chi = [phi(net, k)[t] @ hidden[k - 1].T / N**0.5 for k in range(1, layer)]
    moved = [past(net, features(net, k), net.g[:, k], t) for k in range(1, layer)]
    right = net.h[t, 0] + sum(chi) / L**0.5 + sum(moved) / L
    np.testing.assert_allclose(right, net.h[t, L], atol=1e-12)
    read_in = X @ net.weights[0][0].T / D**0.5
    assert far(right + read_in / L**0.5, right)
    assert far(right + past(net, lambda t, s: PHI0, net.g[:, 0], t) / L, right)
    assert far(right - net.h[t, 0], right)  # (148) has no h(0)
    squared = SimpleNamespace(delta=net.delta**2)
    twice = [past(squared, features(net, k), net.g[:, k], t) for k in range(1, layer)]
    assert far(net.h[t, 0] + sum(chi) / L**0.5 + sum(twice) / L, right)


def test_gradients_through_the_blocks(nets):
    """In (43) of Bordelon et al. the last sum is over the blocks above, k ≥ ℓ, with G^(k+1).

    So it is in (71), which has the blocks below. In (62) gradients begin with themselves, not with
    the last.
    """
    net, t, layer = nets.residual, STEPS - 1, 2
    hidden = net.weights[0][1]
    slope = {k: 1 - phi(net, k)[t] ** 2 for k in range(1, L + 1)}
    above = range(layer, L + 1)
    initial = (
        net.g[t, L] + sum(slope[k] * (net.g[t, k] @ hidden[k - 1]) for k in above) / (L * N) ** 0.5
    )
    moved = [slope[k] * past(net, gradients(net, k + 1), phi(net, k), t) for k in above]
    np.testing.assert_allclose(initial + sum(moved) / L, net.g[t, layer - 1], atol=1e-12)
    assert far(initial - net.g[t, L] + net.g[t, layer - 1] + sum(moved) / L, net.g[t, layer - 1])
    below = sum(past(net, gradients(net, k), phi(net, k), t) for k in range(1, layer))
    assert far(initial + sum(slope[k] * below for k in above) / L, net.g[t, layer - 1])


def test_gradient_kernel_from_block_to_block(nets):
    """What W has learnt adds η₀γ₀ E∫ΔG⟨φ̇(h(x, t)) φ(h(x″, t′)) g(x′, s)⟩ to G(x, x′; t, s).

    (67) of Bordelon et al. has φ at (x′, s) and g at (x″, t′).
    """
    net, t, s, layer = nets.residual, STEPS - 1, STEPS - 2, 2
    learnt = np.subtract(*(net.weights[when][1][layer - 1] for when in (t, 0)))
    f, g = phi(net, layer), net.g[:, layer]
    slope = 1 - f[t] ** 2
    added = slope * (g[t] @ learnt) / (L * N) ** 0.5
    kernel = gradients(net, layer + 1)

    def over_the_past(average):
        """Return (κ/L) Σ Δ_ν(t′) G_μν(t, t′) average_μνρ(t′), for the samples μ and ρ."""
        return (
            KAPPA
            / L
            * sum(
                np.einsum("n,mn,mnr->mr", net.delta[u], kernel(t, u), average(u)) / N
                for u in range(t)
            )
        )

    right = over_the_past(lambda u: np.einsum("mi,ni,ri->mnr", slope, f[u], g[s]))
    np.testing.assert_allclose(right, added @ g[s].T / N, atol=1e-12)
    assert far(over_the_past(lambda u: np.einsum("mi,ri,ni->mnr", slope, f[s], g[u])), right)


def test_response_of_gradients_to_their_sources():
    """δg/δr has terms with φ̈ as well, and its second is with C_g.

    (69) of Bordelon et al. lacks the former and has C_h. The fields are those of one site, with
    any kernels, so that their responses are derivatives.
    """
    times, c = 4, L**-0.5
    rng = np.random.default_rng(2)
    before = np.tril(np.ones((times, times)), -1)
    c_h, c_g = rng.standard_normal((2, L, times, times)) * before
    r, u = rng.standard_normal((2, L, times))
    start, end = rng.standard_normal((2, times))

    def site(r):
        """Return h¹ … h^(L+1) and g¹ … g^(L+1), by layer and time."""
        h, g = ([[None] * times for _ in range(L + 1)] for _ in range(2))
        for t in range(times):
            h[0][t], g[L][t] = start[t], end[t]
            for l in range(L):
                pulled = sum(c_h[l, t, s] * g[l + 1][s] for s in range(t))
                h[l + 1][t] = h[l][t] + c * u[l, t] + pulled / L
            for l in reversed(range(L)):
                pulled = sum(c_g[l, t, s] * jnp.tanh(h[l][s]) for s in range(t))
                g[l][t] = g[l + 1][t] + (1 - jnp.tanh(h[l][t]) ** 2) * (c * r[l, t] + pulled / L)
        return jnp.array(h), jnp.array(g)

    with jax.enable_x64(True):
        h, _ = map(np.asarray, site(r))
        to_h, to_g = (np.asarray(part) for part in jax.jacobian(site)(r))
    f = np.tanh(h[:L])
    slope, bend = 1 - f**2, -2 * f * (1 - f**2)
    source = c * r + np.einsum("lts,ls->lt", c_g, f) / L
    direct = c * np.einsum("lt,lk,ts->ltks", slope, np.eye(L), np.eye(times))

    def response(kernel, bent):
        """Return δg(τ, t)/δr(τ′, s) from the sum over the layers above."""
        seen = np.einsum("lt,ltu,lu,luks->ltks", slope, kernel, slope, to_h[:L]) / L
        terms = direct + seen + bent * np.einsum("lt,ltks->ltks", bend * source, to_h[:L])
        return np.cumsum(terms[::-1], 0)[::-1]

    np.testing.assert_allclose(response(c_g, 1), to_g[:L], atol=1e-12)
    assert far(response(c_g, 0), to_g[:L])
    assert far(response(c_h, 1), to_g[:L])


def test_states_of_neurons_do_not_determine_their_velocities(nets):
    """Hanin's §4.2 has dS/dt = F(S, μ), S = (h, ∂f/∂φ(h)): true of one hidden layer only.

    What a matrix does to other vectors than these is not in S, nor in the distribution μ of all S.
    """
    first, (w, last), readout = jax.tree.map(np.asarray, nets.plain.weights[-1])
    f1, g2 = phi(nets.plain, 1)[-1], nets.plain.g[-1, 1]

    def orthogonal_to(rows):
        return np.eye(N) - np.linalg.pinv(rows) @ rows

    unseen = orthogonal_to(g2) @ RNG.standard_normal((N, N)) @ orthogonal_to(f1)

    def state_and_velocity(weights):
        def loss(weights):
            outputs = read_out(weights, preactivations(weights, False)[-1], False)
            return ((outputs - Y) ** 2).sum() / (2 * P)

        def state(weights):
            h = preactivations(weights, False)
            z = [weights[2]]
            for hidden, below in zip(reversed(weights[1]), reversed(h[1:]), strict=True):
                z.insert(0, ((1 - jnp.tanh(below) ** 2) * z[0]) @ hidden / N**0.5)
            return h, z

        slope = jax.tree.map(lambda s: -s, jax.grad(loss)(weights))
        return jax.jvp(state, (weights,), (slope,))

    with jax.enable_x64(True):
        state, velocity = state_and_velocity((first, [w, last], readout))
        same, other = state_and_velocity((first, [w + unseen, last], readout))
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_allclose(velocity[0][0], other[0][0], atol=1e-9)
    assert far(other[0][1], velocity[0][1])


def test_last_gradient_is_a_field(nets):
    """In (146) of Bordelon et al. the update is η₀γ₀ E∫Δφ(h^L), a field, not the kernel Φ^L."""
    net, t = nets.plain, STEPS - 1
    last, w = phi(net, L), net.weights[0][2]
    z = w + past(net, lambda t, s: np.ones((P, P)), last, t)
    np.testing.assert_allclose((1 - last[t] ** 2) * z, net.g[t, L - 1], atol=1e-12)
    kernel = features(net, L)
    printed = w + KAPPA * sum(kernel(t, s) @ net.delta[s] for s in range(t))[:, None]
    assert far((1 - last[t] ** 2) * printed, net.g[t, L - 1])


def test_momentum_weighs_the_present_step(nets):
    """(152)-(153) of Bordelon et al. sum over s < t′; the step at t′ itself counts: s ≤ t′."""
    net, t, beta = nets.momentum, STEPS - 1, 0.6
    chi = phi(net, 1)[t] @ net.weights[0][1][0].T / (L * N) ** 0.5
    kernel, right = features(net, 1), L * (net.h[t, 1] - net.h[t, 0] - chi)

    def moved(after):
        weight = [(1 - beta) * sum(beta ** (u - s) for u in range(s + after, t)) for s in range(t)]
        return past(net, lambda t, s: weight[s] * kernel(t, s), net.g[:, 1], t)

    np.testing.assert_allclose(moved(0), right, atol=1e-12)
    assert far(moved(1), right)


def test_delta_function_of_an_order_parameter():
    """∫ dΦ dΦ̂ N/2πi e^(Φ̂(NΦ−X)) = 1; the notes' (58) has N in the exponent and gives 1/N."""
    grid, x = np.linspace(-40.0, 40.0, 2), 0.3

    def mass(in_exponent, cut=3000.0):
        # Over Φ̂ from −i·cut to i·cut first: N sin(cut·c·y)/(πy·c) with y = NΦ − X; then over Φ.
        ends = sici(cut * in_exponent * (N * grid - x))[0]
        return (ends[1] - ends[0]) / (np.pi * in_exponent)

    assert mass(1) == pytest.approx(1, abs=1e-4)
    assert mass(N) == pytest.approx(1 / N, abs=1e-4)


def test_first_fields_are_scaled_by_the_inputs():
    """χ = Wx/√D has the covariance Φ⁰ = x·x/D of (57); the √N of the notes' (56) has not."""
    width = 20000
    params = lg.networks.init(lg.mlp(1, "linear"), lg.ntk(), width=width, inputs=D, key=0)
    w = next(np.asarray(leaf) for leaf in jax.tree.leaves(params) if leaf.shape == (D, width))
    covariance = X @ w @ w.T @ X.T / width
    np.testing.assert_allclose(covariance / D, PHI0, atol=0.05)
    assert far(covariance / width, PHI0)


def test_kernels_through_infinite_depth():
    """G₀ = e^(1−τ), and ∂H₁ = H₁ + 2η₀²γ₀²y² e^(1+τ)(τ² + τ) with it.

    (94) of Bordelon et al. has G₀ = e^(−τ) + 1 − e^(−1), and (100) follows with a factor e^(2τ)G₀;
    integrated, it has (1 − e^(−1)) where their (101) has (1 + e^(−1)), which lacks y² as well.
    """
    blocks, y, rate, gamma = 16, 0.6, 0.9, 1.2
    tau = np.arange(blocks + 1) / blocks
    data = lg.Dataset(np.ones((1, 1)), np.array([y]))
    param = lg.depth_mup(gamma).with_rates({"input": 0.0, "output": 0.0})
    run = lg.Run(lg.residual_mlp(blocks, "linear"), param, data, optimizer=lg.gd(rate), steps=1)
    gradient = lg.solve(run, record_at=[0]).gradient_kernel[0, :, 0, 0]
    np.testing.assert_allclose(gradient, np.exp(1 - tau), rtol=1 / blocks)
    printed = np.exp(-tau) + 1 - np.exp(-1)
    assert far(printed, np.exp(1 - tau))

    one = lg.theories.kernel_after_one_step(y, gamma=gamma, lr=rate, blocks=4000)
    tau, k = one.tau, (rate * gamma * y) ** 2
    slope = np.gradient(one.after, tau, edge_order=2)

    def moved(g):
        return one.after + 2 * k * np.exp(2 * tau) * g * (tau**2 + tau)

    np.testing.assert_allclose(moved(np.exp(1 - tau)), slope, rtol=2e-3)
    printed = np.exp(-tau) + 1 - np.exp(-1)
    assert far(moved(printed), slope)

    def integrated(sign):
        """Return (101) over 2η₀²γ₀²e^τ, without H₁(0), with a sign in place of its plus."""
        bump = (tau**2 - tau + 1) * np.exp(tau) - 1
        return tau**3 / 3 + tau**2 / 2 + (1 + sign * np.exp(-1)) * bump

    theirs = cumulative_trapezoid(np.exp(tau) * printed * (tau**2 + tau), tau, initial=0)
    np.testing.assert_allclose(integrated(-1), theirs, atol=1e-5)
    assert far(integrated(1), theirs)


@pytest.mark.slow
def test_flow_of_whitened_outputs():
    """df/dt = (2η₀/P)√(1 + γ₀²f²)(y − f); the notes' (79) has f for f²."""
    times, y, gamma = np.linspace(0.2, 0.6, 5), 1.4, 0.9
    h = 1e-5
    flow = lambda t: lg.theories.whitened_linear_flow(t, y, gamma=gamma).f  # noqa: E731
    slope, f = (flow(times + h) - flow(times - h)) / (2 * h), flow(times)
    np.testing.assert_allclose(2 * np.sqrt(1 + gamma**2 * f**2) * (y - f), slope, rtol=1e-7)
    assert far(2 * np.sqrt(1 + gamma**2 * f) * (y - f), slope)
