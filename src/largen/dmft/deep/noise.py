"""Langevin noise on everything that moves.

Matrices that are stored take another Gaussian matrix at every step. Those that are known by the
directions in which they were asked do not: no answer to a matrix of one step says anything of the
next, so that every step would ask in new directions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from largen.dmft.deep.dense import DenseMatrices
from largen.dmft.deep.state import Moving, Noise


def shaken(
    params: Moving, matrices: DenseMatrices, noise: Noise, lr: Any, key: Any
) -> tuple[Moving, DenseMatrices]:
    """Return parameters and matrices with √(2ηT) ξ added, in the coordinates V = s · change."""
    keys = jax.random.split(key, 4)
    root = jnp.sqrt(lr)

    def noisy(x: Array, size: Array, key: Any) -> Array:
        return x + root * size * jax.random.normal(key, x.shape, x.dtype)

    moved = params._replace(
        fields=noisy(params.fields, noise.fields, keys[0]),
        readout=noisy(params.readout, noise.readout, keys[1]),
        biases=noisy(params.biases, noise.biases, keys[2]),
    )
    size = (noise.matrices / params.scale)[:, None, None]
    return moved, matrices._replace(change=noisy(matrices.change, size, keys[3]))
