"""Random matrices that are stored, for networks whose directions do not compress.

If φ' jumps, gradients keep leaving the space that they have spanned, and once there are as many
directions as neurons, it is cheaper to store the matrix: N² numbers, and 6N² operations per sample
and step. At initialisation its products are those of the variance-reduced matrix,

    V(0) = (Ξ_i Q_iᵀ + Q_o Ξ_oᵀ)/N + (1 − Q_o Q_oᵀ/N) W (1 − Q_i Q_iᵀ/N)/√N,

with independent standard Gaussian entries of W: a Gaussian matrix whose products with the initial
features and gradients are replaced. Its later products have the fluctuations, and the shift of
order 1/N, of a network of width N; ``estimation/width_extrapolation.py`` removes the shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from largen.theories.mean_field.deep.matrices.by_directions import (
    Draws,
    FreshVectors,
    Precision,
    Share,
)
from largen.theories.mean_field.deep.matrices.row_buffers import Index

# The standard Gaussian numbers of a matrix, given its place and its shape.
Normals = Callable[[int, tuple[int, int]], np.ndarray]


def drawn_by(rng: np.random.Generator) -> Normals:
    """Return the rule for matrices that are drawn one after the other."""
    return lambda _, shape: rng.standard_normal(shape, np.float32)


class DenseMatrices(NamedTuple):
    """V of all layers, output neurons by input neurons (of all taps)."""

    # V, the initial matrices with their change by training.
    change: Float[Array, "matrix behind before"]
    # The momentum of V; None without momentum.
    velocity: Float[Array, "matrix behind before"] | None

    @property
    def number(self) -> int:
        """The number of matrices."""
        return len(self.change)

    @property
    def ranks(self) -> np.ndarray:
        """Ranks of the bases: empty, shape ``(0, 2)``, since stored matrices have none."""
        return np.zeros((0, 2), int)

    def apply(
        self,
        l: Index,
        x: Float[Array, "k near"],
        draws: Draws,
        fresh_vectors: FreshVectors,
        precision: Precision,
        share: Share,
        *,
        transposed: bool = False,
    ) -> tuple[DenseMatrices, Float[Array, "k far"], Float[Array, "near k"], Draws]:
        """Return V x of matrix l, or Vᵀ x, the coordinates x/√N of x, and the draws."""
        v = self.change[l]
        y = x @ v if transposed else x @ v.T
        return self, y, jnp.sqrt(precision.weight) * x.T, draws


def stored(
    inputs: Sequence[tuple[np.ndarray, np.ndarray]],
    outputs: Sequence[tuple[np.ndarray, np.ndarray]],
    neurons: int,
    live: np.ndarray | None,
    normals: Normals,
    dtype: Any,
) -> DenseMatrices:
    """Return Gaussian matrices with prescribed products: images Ξ of directions Q on both sides."""
    n, most = neurons, neurons if live is None else live.shape[1]
    before = [basis.shape[1] for basis, _ in inputs]
    found = np.zeros((len(inputs), most, max(before, default=most)), dtype)
    sides = zip(before, inputs, outputs, strict=True)
    for l, (width, (q_i, xi_i), (q_o, xi_o)) in enumerate(sides):
        v = found[l, :, :width]
        v[...] = normals(l, (most, width))
        v /= np.sqrt(n)
        if live is not None:
            v *= live[l + 1][:, None] * live[l]
        v -= (v @ q_i.T / n) @ q_i
        v -= q_o.T @ (q_o @ v / n)
        v += (xi_i.T @ q_i + q_o.T @ xi_o) / n
    return DenseMatrices(jnp.asarray(found), None)
