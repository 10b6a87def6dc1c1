"""Langevin noise on the parameters.

To stored matrices an independent Gaussian matrix is added at every step. For matrices that are
represented by directions this is inefficient: the noise matrices of different steps are
independent, so that the directions would have to be stored for every step.
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

    ``live`` is a mask of the neurons of each layer, None for all; other neurons stay 0.
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
