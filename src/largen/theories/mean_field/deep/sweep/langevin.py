"""Langevin noise on the parameters.

To stored matrices an independent Gaussian matrix is added at every step. For matrices that are
represented by directions this is inefficient: the noise matrices of different steps are
independent, so that the directions would have to be stored for every step.
"""

from __future__ import annotations

from typing import Any

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
    sizes = (
        noise.fields * there[0],
        noise.readout * there[-1],
        noise.biases * there[1:],
        size,
    )
    values = params.fields, params.readout, params.biases, matrices.change
    fields, readout, biases, change = noisy(values, sizes, lr, key)
    moved = params._replace(fields=fields, readout=readout, biases=biases)
    return moved, matrices._replace(change=change)
