"""Networks of finite width over the plane of σ_w and σ_b, with the same weights at every point.

The quantities of the phase diagram at infinite width are measured in finite networks, with their
equations written out: for z¹ of mean square 1 and a direction t¹,

    z ← σ_w Wφ(z)/√n + σ_b b,   t ← σ_w W(φ'(z)t)/√n,

so that |t|² grows by χ_⊥ a layer at large width.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.expectations import ActivationFunction

START = 0.5  # correlation of the two inputs
_AT_ONCE = 2**24  # numbers of one layer held at a time


class DrawnNetworks(NamedTuple):
    """Measurements of networks of one size at every point of a diagram, (i, j) each.

    Attributes
    ----------
    growth, growth_error
        Mean over networks of the logarithmic growth of the gradients' mean square per layer, and
        its standard error: negative in order, positive in chaos; NaN where signals overflow or
        vanish.
    correlation, correlation_error
        The correlation of the last preactivations of two inputs whose own correlation is 0.5.
    width, depth, draws
        Neurons, hidden layers, and number of networks.
    """

    growth: np.ndarray
    growth_error: np.ndarray
    correlation: np.ndarray
    correlation_error: np.ndarray
    width: int
    depth: int
    draws: int

    def __repr__(self) -> str:
        return f"DrawnNetworks: {self.draws} of width {self.width} and depth {self.depth}"


def draw(
    phi: ActivationFunction, weight: np.ndarray, bias: np.ndarray, width: int, depth: int,
    draws: int, key: Any,
) -> DrawnNetworks:  # fmt: skip
    """Draw networks at every point of σ_w and σ_b, (i, j) each."""
    flat = np.stack([weight.ravel(), bias.ravel()]).astype(np.float32)
    part = max(1, _AT_ONCE // width)
    keys = jax.random.split(key, draws)
    parts = [
        np.asarray(_measure(phi, width, depth, jnp.asarray(flat[:, first : first + part]), keys))
        for first in range(0, flat.shape[1], part)
    ]
    growth, correlation = np.moveaxis(np.concatenate(parts, axis=2).astype(np.float64), 1, 0)
    with np.errstate(invalid="ignore"):
        means, errors = (
            [of(seen).reshape(weight.shape) for seen in (growth, correlation)]
            for of in (_mean, _standard_error)
        )
    return DrawnNetworks(
        means[0], errors[0], means[1], errors[1], width=width, depth=depth, draws=draws
    )


def _mean(seen: np.ndarray) -> np.ndarray:
    return seen.mean(axis=0)


def _standard_error(seen: np.ndarray) -> np.ndarray:
    return seen.std(axis=0, ddof=1) / np.sqrt(len(seen))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _measure(phi: ActivationFunction, n: int, depth: int, constants: Any, keys: Any) -> Any:
    """Return growth and correlation of every network, (draw, 2, point)."""
    weight, bias = constants

    def network(key: Any) -> Any:
        first, key = jax.random.split(key)
        inputs = jax.random.normal(first, (3, n), np.float32)
        one, other, t = inputs / jnp.sqrt(jnp.mean(inputs**2, axis=1, keepdims=True))
        other = START * one + np.sqrt(1 - START**2) * other
        z = jnp.broadcast_to(jnp.stack([one, other, t])[:, :, None], (3, n, weight.shape[0]))

        def layer(state: Any, key: Any) -> Any:
            z, growth = state
            network_key, shared = jax.random.split(key)
            W = jax.random.normal(network_key, (n, n), np.float32) / np.sqrt(n)
            b = jax.random.normal(shared, (n, 1), np.float32)
            moved = jnp.stack([phi(z[0]), phi(z[1]), phi.derivative(z[0]) * z[2]])
            moved = weight * jnp.einsum("ij,kjg->kig", W, moved)
            size = jnp.mean(moved[2] ** 2, axis=0)
            # The direction is rescaled to length 1, and its previous length is recorded.
            new = jnp.stack([moved[0] + bias * b, moved[1] + bias * b, moved[2] / jnp.sqrt(size)])
            return (new, growth + jnp.log(size)), None

        start = z, jnp.zeros_like(weight)
        (z, growth), _ = lax.scan(layer, start, jax.random.split(key, depth))
        one, other = z[0], z[1]
        scale = jnp.sqrt(jnp.mean(one**2, axis=0)) * jnp.sqrt(jnp.mean(other**2, axis=0))
        return jnp.stack([growth / depth, jnp.mean(one * other, axis=0) / scale])

    sums = lax.map(network, keys)
    return jnp.where(jnp.isfinite(sums), sums, jnp.nan)
