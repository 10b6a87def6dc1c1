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
from largen.theories.mean_field.engine.descent import noisy


def add_langevin_noise(
    params: Moving, matrices: DenseMatrices, noise: Noise, live: Array | None, lr: Any, key: Any
) -> tuple[Moving, DenseMatrices]:
    """Return parameters and matrices with √(2ηT) ξ added.

    ``live`` is a mask of the neurons of each layer, None for all; other neurons stay 0.
    """
    there = jnp.ones((matrices.number + 1, 1), params.fields.dtype) if live is None else live
    size = noise.matrices[:, None, None] * there[1:, :, None] * there[:-1, None]
    sizes = (noise.fields * there[0], noise.readout * there[-1], noise.biases * there[1:], size)
    values = params.fields, params.readout, params.biases, matrices.change
    normals = noisy(jax.tree.map(jnp.zeros_like, values), (1.0,) * len(values), lr, key)
    if noise.sums is not None:
        of_matrices = (jnp.tensordot(noise.sums, part, 1) for part in normals[2:])
        normals = (*normals[:2], *of_matrices)
    fields, readout, biases, change = (
        x + size * xi for x, size, xi in zip(values, sizes, normals, strict=True)
    )
    moved = params._replace(fields=fields, readout=readout, biases=biases)
    return moved, matrices._replace(change=change)
