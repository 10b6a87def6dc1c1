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

from largen.theories.mean_field.deep.matrices.dense import DenseMatrices
from largen.theories.mean_field.deep.sweep.state import Moving, Noise


def add_langevin_noise(
    params: Moving, matrices: DenseMatrices, noise: Noise, live: Array | None, lr: Any, key: Any
) -> tuple[Moving, DenseMatrices]:
    """Return parameters and matrices with √(2ηT) ξ added, in the coordinates V = s · change.

    Neurons that layers do not have stay 0: ``live`` says which they have, None for all.
    """
    keys = jax.random.split(key, 4)
    root = jnp.sqrt(lr)

    there = jnp.ones((matrices.number + 1, 1), root.dtype) if live is None else live

    def noisy(x: Array, size: Array, key: Any) -> Array:
        return x + root * size * jax.random.normal(key, x.shape, x.dtype)

    moved = params._replace(
        fields=noisy(params.fields, noise.fields * there[0], keys[0]),
        readout=noisy(params.readout, noise.readout * there[-1], keys[1]),
        biases=noisy(params.biases, noise.biases * there[1:], keys[2]),
    )
    size = (noise.matrices / params.scale)[:, None, None] * there[1:, :, None] * there[:-1, None]
    return moved, matrices._replace(change=noisy(matrices.change, size, keys[3]))
