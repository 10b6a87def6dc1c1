"""Responses of one wide network: trained with weak random sources on all neurons of a layer.

A source εξ with random signs ξ in z of a layer, at one step, sample and output, changes φ(h) at
later steps, and ⟨ξ δφ(h)⟩/ε → A; in h it changes g, ⟨ξ δg⟩/ε → B.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Setting(NamedTuple):
    """A network and its training; f = Wφ(hᴸ)/(Nγ₀), squared loss."""

    phi: Callable
    slope: Callable
    x: np.ndarray
    y: np.ndarray
    skips: tuple[int, ...]  # the hidden layer that is added behind each hidden matrix, or −1
    stds: tuple[float, ...]  # σ of each map, the branch's factor included
    gamma: float
    lr: float
    steps: int
    momentum: float = 0.0
    decay: float = 0.0
    batches: np.ndarray | None = None


def trained(net: Setting, weights, signs, in_z, in_h):
    """Return φ(h) and g of all steps, for sources in z and in h."""
    n, (samples, dimensions), layers = weights[-1].shape[1], net.x.shape, len(net.stds) - 1
    weights, velocity = list(weights), [0 * w for w in weights]
    values, gradients = [], []
    for t in range(net.steps + 1):
        h, z, g = [], [None] * layers, [0] * (layers + 1)
        for l in range(layers):
            read = net.x.T / dimensions**0.5 if l == 0 else net.phi(h[-1]) / n**0.5
            new = net.stds[l] * weights[l] @ read
            if l and net.skips[l - 1] >= 0:
                new = new + h[net.skips[l - 1]]
            h.append(new + signs[l][:, None] * in_h[l, t])
        f = net.stds[-1] * weights[-1] @ net.phi(h[-1]) / (n * net.gamma)
        for l in reversed(range(layers)):
            back = weights[-1].T[:, None] * jnp.ones((samples, 1))
            if l < layers - 1:
                back = jnp.einsum("ji,jpc->ipc", weights[l + 1], g[l + 1]) / n**0.5
            z[l] = net.stds[l + 1] * back + signs[l][:, None, None] * in_z[l, t]
            g[l] = net.slope(h[l])[:, :, None] * z[l]
            for behind, skip in enumerate(net.skips, 1):
                g[l] = g[l] + g[behind] if skip == l else g[l]
        values.append(jnp.stack([net.phi(x) for x in h]))
        gradients.append(jnp.stack(g[:-1]))
        batch = np.arange(samples) if net.batches is None else net.batches[min(t, net.steps - 1)]
        share = np.bincount(batch, minlength=samples) / len(batch)
        delta = (net.y - f.T) * share[:, None]
        for l in range(layers + 1):
            read = net.x / dimensions**0.5 if l == 0 else net.phi(h[l - 1]).T / n**0.5
            pulled = jnp.einsum("ipc,pc->ip", g[l], delta) if l < layers else n**0.5 * delta.T
            change = net.gamma * net.stds[l] * pulled @ read - net.decay * weights[l]
            velocity[l] = net.momentum * velocity[l] + net.lr * change
            weights[l] = weights[l] + velocity[l]
    return jnp.stack(values), jnp.stack(gradients)


def network_responses(net: Setting, width: int, networks: int, size: float = 0.0):
    """Return A and B of several networks, with a last axis of outputs.

    ``size``: ε of central differences; 0 for derivatives.
    """
    layers, (p, dimensions), c = len(net.stds) - 1, net.x.shape, net.y.shape[1]
    times = net.steps + 1
    nothing = jnp.zeros((layers, times, p, c)), jnp.zeros((layers, times, p))

    @jax.jit
    def along(weights, signs, *sources):
        def run(*sources):
            return trained(net, weights, signs, *sources)

        if not size:
            return jax.jvp(run, nothing, sources)[1]
        up, down = (run(*(sign * size * x for x in sources)) for sign in (1, -1))
        return jax.tree.map(lambda a, b: (a - b) / (2 * size), up, down)

    found = []
    for number in range(networks):
        rng = np.random.default_rng(number)
        shapes = (width, dimensions), *[(width, width)] * (layers - 1), (c, width)
        weights = [jnp.asarray(rng.standard_normal(shape)) for shape in shapes]
        signs = jnp.asarray(rng.choice([-1.0, 1.0], (layers, width)))
        a = np.zeros((layers, times, p, times, p, c))
        b = np.zeros((layers - 1, *a.shape[1:]))
        for l, s, i in product(range(layers), range(times), range(p)):
            for o in range(c):
                source = nothing[0].at[l, s, i, o].set(1), nothing[1]
                value = along(weights, signs, *source)[0][:, l]
                a[l, :, :, s, i, o] = jnp.einsum("n,tnp->tp", signs[l], value) / width
            if l:
                source = nothing[0], nothing[1].at[l, s, i].set(1)
                g = along(weights, signs, *source)[1][:, l]
                b[l - 1, :, :, s, i] = jnp.einsum("n,tnpc->tpc", signs[l], g) / width
        found.append((a, b))
    return tuple(np.stack(x) for x in zip(*found, strict=True))
