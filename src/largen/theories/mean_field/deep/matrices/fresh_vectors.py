"""Fresh Gaussian vectors: the products of a random matrix with new directions.

========================  ====================================================================
sampling                  the fresh vectors of a layer
========================  ====================================================================
``"variance_reduced"``    at initialisation scrambled Sobol points, made orthonormal among
                          themselves and orthogonal to the layer's initial features; later
                          ones are orthogonal to those of initialisation, with the exact norm
``"finite_width"``        independent, orthogonal to the other side's basis only: the exact
                          distribution of networks whose width is the number of neurons
========================  ====================================================================

For linear networks fields are linear in the fresh vectors, and all averages follow from these
being orthonormal. The fresh vectors are then represented by unit vectors, and nothing is random.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from largen.theories.mean_field.deep.matrices.by_directions import FreshVectors
from largen.theories.mean_field.deep.matrices.row_buffers import Index, beside
from largen.theories.mean_field.options import Sampling

MOST_SOBOL_DIMENSIONS = 2048


def gaussian(
    # Orthonormal rows to which fresh vectors are orthogonal: the layer's fresh vectors of
    # initialisation, and gradients of test samples, which removes noise from f; None for the
    # distribution of a finite width.
    anchors: Float[Array, "anchor n"] | None,
    weight,  # of a neuron in averages, 1/N
    taps=None,  # for vectors over the taps of a matrix, their number; entries beyond stay 0
    live: Float[Array, " n"] | None = None,  # a mask of the layer's neurons
    ratio: Any = 1.0,  # the number of neurons per unit of width
) -> FreshVectors:
    """Return the rule for fresh vectors after initialisation."""

    def apart(xi):
        """Return the component orthogonal to the anchors, for each tap."""
        assert anchors is not None
        each = xi.reshape(-1, anchors.shape[1])
        return xi - weight * ((each @ anchors.T) @ anchors).reshape(xi.shape)

    def fresh_vectors(far, l, fills, rank, key):
        known = far.rank[l]

        def drawn(i, carry):
            xi, key = carry
            one = jax.random.normal(key, xi.shape[1:], xi.dtype)
            return xi.at[i].set(one), following(key, 1)

        # Random numbers cost more than projections: none are drawn for rows that stay empty.
        xi = jnp.zeros((len(fills), far.basis.shape[2]), far.basis.dtype)
        xi, key = lax.fori_loop(0, fills.sum(), drawn, (xi, key))
        if taps is not None:
            xi = xi * (weight * jnp.arange(xi.shape[1]) < taps - weight / 2)
        if live is not None:
            xi = xi * live

        # Anchors and basis are not orthogonal to each other. The projection off the basis comes
        # last, so that it is exact.
        xi = xi if anchors is None else apart(xi)
        xi = beside(far.basis, l, xi, known, weight)
        if anchors is not None:
            size = ratio if taps is None else taps
            left = jnp.maximum(size - weight * known, 0).astype(xi.dtype)
            norm = weight * jnp.sum(xi**2, 1, keepdims=True)
            xi = xi * jnp.sqrt(left / jnp.maximum(norm, 1e-6))
        return xi * fills[:, None], key

    return fresh_vectors


def following(key, steps: Index):
    """Return a later random key by a counter, which compiles faster than splitting."""
    words = jax.random.key_data(key)
    moved = words.at[-1].add(jnp.asarray(steps, words.dtype))
    return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(key))


def unit_vectors(units: int, taps=None, ratio: Any = 1.0) -> FreshVectors:
    """Return the rule for linear networks: the next unit vectors of the layer, of size √r.

    ``taps``: for vectors over the taps of a matrix, the number of taps; each tap takes one unit
    vector. ``ratio``: r, the number of neurons of the layer per unit of width.
    """

    def fresh_vectors(far, l, fills, rank, count):
        blocks = far.basis.shape[2] // units
        place = count + jnp.arange(len(fills) * blocks)
        xi = (place[:, None] == jnp.arange(units)).astype(far.basis.dtype) * jnp.sqrt(ratio)
        xi = xi.reshape(len(fills), blocks, units)
        if taps is not None:
            xi = xi * (jnp.arange(blocks) < taps)[:, None]
        used = blocks * fills.sum(dtype=jnp.int32)
        return xi.reshape(len(fills), -1) * fills[:, None], count + used

    return fresh_vectors


def initial(
    rows: int, neurons: int, sampling: Sampling, rng: np.random.Generator, dtype
) -> Float[np.ndarray, "rows neurons"]:
    """Return the fresh vectors of a layer at initialisation before they are orthonormalised."""
    if sampling == "finite_width" or rows > MOST_SOBOL_DIMENSIONS:
        return rng.standard_normal((rows, neurons)).astype(dtype)
    from scipy.special import ndtri
    from scipy.stats import qmc

    # The number of Sobol points is a power of two.
    points = qmc.Sobol(rows, bits=30, rng=rng).random_base2((neurons - 1).bit_length())[:neurons]
    return ndtri(np.clip(points, 2.0**-31, 1 - 2.0**-31)).T.astype(dtype)


def orthonormal(
    rows: Float[np.ndarray, "k n"],  # Gaussian rows; averages are over the n neurons
    avoid: Float[np.ndarray, "a n"],  # the other rows, in any basis; they may be linearly dependent
    wanted: Float[np.ndarray, "m m"] | None = None,  # the Gram matrix; the identity by default
    # The number of consecutive rows whose concatenation counts as one row of the Gram matrix.
    together: int = 1,
) -> Float[np.ndarray, "k n"]:
    """Return the nearest rows that are orthogonal to given others and have a given Gram matrix."""
    n = rows.shape[1]
    if not len(rows):  # features are zero, and have no directions
        return rows
    rows = rows - rows.mean(1, keepdims=True)
    if len(avoid):
        known = frame(avoid)
        for _ in range(2):
            rows = rows - (rows @ known.T / n) @ known
    shape, rows = rows.shape, rows.reshape(len(rows) // together, -1)
    values, vectors = np.linalg.eigh((rows @ rows.T / n).astype(np.float64))
    if values[0] <= 1e-6 * values[-1]:
        raise np.linalg.LinAlgError("fewer neurons than directions")
    root = (vectors / np.sqrt(values)) @ vectors.T
    if wanted is not None:
        values, vectors = np.linalg.eigh(wanted.astype(np.float64))
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T @ root
    return (root.astype(rows.dtype) @ rows).reshape(shape)


def frame(rows: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "k n"]:
    """Return an orthonormal basis of the numerical span of rows."""
    n = rows.shape[1]
    values, vectors = np.linalg.eigh((rows @ rows.T / n).astype(np.float64))
    keep = values > 100 * np.finfo(rows.dtype).eps * values[-1]
    basis = (vectors[:, keep] / np.sqrt(values[keep])).T.astype(rows.dtype) @ rows
    return reorthonormalise(basis, 1 / n)


def reorthonormalise(rows: Float[np.ndarray, "k n"], weight: float) -> Float[np.ndarray, "k n"]:
    """Return rows orthonormalised again, to remove rounding errors."""
    root = np.linalg.cholesky((weight * (rows @ rows.T)).astype(np.float64))
    return np.linalg.inv(root).astype(rows.dtype) @ rows
