"""The causal sweep beside the published algorithm for the same equations, in the same run.

    python benchmarks/bench_dmft_published.py               # some minutes
    python benchmarks/bench_dmft_published.py --rounds 10   # fewer rounds of the algorithm

The algorithm (Bordelon and Pehlevan, *Self-consistent dynamical field theory*) alternates: from
kernels and responses over all times and samples, draw single sites, solve each of them forward in
time, take averages, with responses A and B from the Jacobian of every draw, and integrate
df/dt = (η₀/P) K Δ; damp, and repeat. The implementation here is written for this comparison:
vectorised over draws, compiled, in double precision, and with the base cases A⁰ = 0, Bᴸ = 0 and
the tangent kernel of all layers. The reference is the causal sweep with many neurons; errors are
relative, of the whole trajectory.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg

SAMPLES, INPUTS, STEPS, LAYERS, RATE, GAMMA = 4, 10, 16, 3, 0.5, 1.0


def problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, INPUTS))
    x *= np.sqrt(INPUTS) / np.linalg.norm(x, axis=1, keepdims=True)
    return x, np.sign(rng.standard_normal(SAMPLES))


def site(u, r, forward, backward):
    """Solve one single-site process: h = u + C g, z = r + D φ(h), over (time, sample)."""

    def instant(t, fields):
        h, g = fields
        h = h.at[t].set(u[t] + jnp.einsum("asb,sb->a", forward[t], g))
        z = r[t] + jnp.einsum(
            "asb,sb->a", backward[t], jnp.tanh(h) * (jnp.arange(STEPS) <= t)[:, None]
        )
        return h, g.at[t].set((1 - jnp.tanh(h[t]) ** 2) * z)

    h, g = jax.lax.fori_loop(0, STEPS, instant, (jnp.zeros_like(u), jnp.zeros_like(u)))
    return jnp.tanh(h), g


@jax.jit
def averages(u, r, forward, backward):
    """Return Φ, G, A = ⟨∂φ/∂r⟩ and B = ⟨∂g/∂u⟩ from all draws."""
    phi, g = jax.vmap(lambda u, r: site(u, r, forward, backward))(u, r)

    def jacobian(pair):
        of = jax.jacfwd(lambda u, r: site(u, r, forward, backward), argnums=(0, 1))(*pair)
        return of[0][1], of[1][0]

    responses = jax.lax.map(jacobian, (u, r), batch_size=64)
    gram = [jnp.einsum("nta,nsb->tasb", f, f) / len(u) for f in (phi, g)]
    return *gram, *(part.mean(0) for part in responses)


def gaussian(kernel, draws, rng):
    size = STEPS * SAMPLES
    values, vectors = np.linalg.eigh(np.asarray(kernel).reshape(size, size))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return (rng.standard_normal((draws, size)) @ root.T).reshape(draws, STEPS, SAMPLES)


def published(x, y, draws, rounds, damping=0.5):
    """Return Δ (step, sample), Φˡ and Gˡ at equal times."""
    rng, p = np.random.default_rng(1), SAMPLES
    kappa, shape = RATE * GAMMA / p, (STEPS, p, STEPS, p)
    past = np.tril(np.ones((STEPS, STEPS)), -1)[:, None, :, None]
    ones = np.ones(shape)
    phi = [np.broadcast_to((x @ x.T / INPUTS)[None, :, None], shape)] + [0.5 * ones] * LAYERS
    g = [ones] * (LAYERS + 1)
    a, b = [0 * ones] * (LAYERS + 1), [0 * ones] * (LAYERS + 1)
    delta = np.tile(y, (STEPS, 1))
    for _ in range(rounds):
        for l in range(1, LAYERS + 1):
            forward = a[l - 1] + kappa * past * phi[l - 1] * delta
            backward = b[l] + kappa * past * g[l] * delta
            u, r = gaussian(phi[l - 1], draws, rng), gaussian(g[l], draws, rng)
            found = [np.asarray(part) for part in averages(u, r, forward, backward)]
            phi[l] = phi[l] + damping * (found[0] - phi[l])
            g[l - 1] = g[l - 1] + damping * (found[1] - g[l - 1])
            if l < LAYERS:
                a[l] = a[l] + damping * (found[2] - a[l])
            if l > 1:
                b[l - 1] = b[l - 1] + damping * (found[3] - b[l - 1])
        kernel = np.sum([g[l] * phi[l] for l in range(LAYERS + 1)], 0)
        new = [y]
        for t in range(STEPS - 1):
            new.append(new[-1] - RATE / p * kernel[t, :, t] @ new[-1])
        delta = delta + damping * (np.array(new) - delta)
    equal = [np.stack([[k[t, :, t] for k in ks] for t in range(STEPS)]) for ks in (phi[1:], g[:-1])]
    return delta, *equal


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    x, y = problem()
    run = lg.Run(
        lg.mlp(LAYERS, "tanh"),
        lg.mean_field(GAMMA),
        lg.Dataset(x, y),
        optimizer=lg.gd(RATE),
        steps=STEPS - 1,
    )

    def solve(key, **wanted):
        return lg.solve(run, record_at=range(STEPS), progress=False, key=key, **wanted)

    def errors(delta, phi, g):
        return (
            relative(delta, y - best.f_train),
            relative(phi, best.feature_kernel),
            relative(g, best.gradient_kernel),
        )

    best = solve(0, particles=8192, replicates=8)
    print("method                                    CPU s      Δ      Φ      G")
    rows = []
    for name, wanted in (
        ("causal sweep, 1024 neurons", {"particles": 1024, "replicates": 1, "rtol": 6e-3}),
        ("causal sweep, 8192 neurons", {"particles": 8192, "replicates": 1, "rtol": 6e-3}),
    ):
        solve(1, **wanted)
        begin = time.process_time()
        found = solve(2, **wanted)
        taken = time.process_time() - begin
        delta = y - found.f_train
        rows.append((name, taken, errors(delta, found.feature_kernel, found.gradient_kernel)))
    with jax.enable_x64(True):
        published(x, y, options.draws, 1)
        begin = time.process_time()
        found = published(x, y, options.draws, options.rounds)
        name = f"alternating, {options.draws} draws, {options.rounds} rounds"
        rows.append((name, time.process_time() - begin, errors(*found)))
    for name, taken, (delta, phi, g) in rows:
        print(f"{name:38} {taken:8.2f} {delta:6.2%} {phi:6.2%} {g:6.2%}")


if __name__ == "__main__":
    main()
