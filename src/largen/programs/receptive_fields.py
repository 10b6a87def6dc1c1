"""The positions of the previous layer that an affine map reads.

Weights that are shared by positions act on channels only. A convolution is therefore a sum of few
matrices, one for each place in the window,

    hˡ⁺¹(a) = σ Σ_k W_k Σ_b T_k(a, b) φ(hˡ(b)),

where T_k(a, b) is the weight with which place k of the window at output position a reads position b
(Bordelon et al., Depthwise hyperparameter transfer in residual networks, (134), where the stride is
1 and all places are read). Strides, padding, dilation, pooling before the map and transposed
convolutions are all contained in T. After ``Flatten`` every position has a matrix of its own, and
there is one output position. Without shared weights every output position has matrices of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from largen.programs.operations import Affine, Pool, Scale
from largen.programs.windows import Window, slides


@dataclass(frozen=True, eq=False)
class Reading:
    """The positions that one affine map reads."""

    taps: np.ndarray  # T, of shape (tap, output position, input position), pooling included
    # The matrix of the pooling before the map, (pooled position, input position).
    pooled: np.ndarray

    @property
    def number(self) -> int:
        """The number of matrices that the map consists of."""
        return len(self.taps)

    @property
    def positions(self) -> int:
        """The number of output positions."""
        return self.taps.shape[1]

    @property
    def plain(self) -> bool:
        """Whether it is the map of a dense layer between single positions."""
        return self.taps.shape == (1, 1, 1) and self.taps.item() == 1


@dataclass(frozen=True, eq=False)
class View:
    """The linear map from the output positions of the last affine map to the current positions."""

    space: tuple[int, ...]  # current lengths of the spatial axes
    # The matrix that maps the output positions of the affine map to the current positions.
    pooled: np.ndarray
    flat: bool = False  # whether the positions have become channels
    fresh: bool = True  # whether there was no pooling since the affine map

    @classmethod
    def of(cls, space: tuple[int, ...]) -> View:
        """Return the view directly after an affine map."""
        return cls(space, np.eye(prod(space)))

    def pool(self, pool: Pool) -> View:
        """Return the view after the average or the sum over windows, or over all positions."""
        if pool.window is None:
            space, sums = (), np.ones((1, len(self.pooled)))
        else:
            space, shown = _shown(pool.window, self.space)
            sums = shown.sum(0)
        if not pool.total:
            sums = sums / sums.sum(1, keepdims=True)
        return replace(self, space=space, pooled=sums @ self.pooled, fresh=False)

    def scale(self, scale: Scale) -> View:
        """Return the view after a factor for each position."""
        return replace(self, pooled=scale.along * self.pooled, fresh=False)

    def flatten(self) -> View:
        """Return the view after ``Flatten``."""
        return replace(self, space=(), flat=True)

    def read_by(self, affine: Affine) -> tuple[Reading, View]:
        """Return the reading of an affine map, and the view after it."""
        if affine.window is None:
            space = self.space
            taps = self.pooled[:, None] if self.flat else self.pooled[None]
        else:
            space, shown = _shown(affine.window, self.space)
            roots = np.sqrt(affine.window.of_taps()).reshape(-1, 1, 1)
            taps = (roots * shown) @ self.pooled
        if not affine.tied:
            taps = np.einsum("kab,ac->kcab", taps, np.eye(taps.shape[1]))
            taps = taps.reshape(-1, *taps.shape[2:])
        return Reading(_independent(taps), self.pooled), View.of(space)


def _shown(window: Window, space: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the output space of a window, and T of its places, (place, output, input)."""
    shifts = slides(window, space)
    axes = []
    for slide, length in zip(shifts, space, strict=True):
        extended = np.asarray(slide.extended(np.eye(length, dtype=np.float32), 0), float)
        axes.append(np.stack([slide.offset(extended, k, 0) for k in range(slide.window)]))
    # Kronecker products of (place, output, input), the first axis slowest.
    return tuple(slide.positions for slide in shifts), reduce(np.kron, axes)


def _independent(taps: np.ndarray) -> np.ndarray:
    """Return equivalent taps that are linearly independent.

    Orthogonal transformations among the Gaussian W_k change neither their law nor gradient descent.
    """
    taps = taps[np.abs(taps).max((1, 2)) > 0]
    _, s, vt = np.linalg.svd(taps.reshape(len(taps), -1), full_matrices=False)
    rank = int(np.sum(s > 1e-12 * s[0]))
    return taps if rank == len(taps) else (s[:, None] * vt)[:rank].reshape(rank, *taps.shape[1:])


def gather(taps: Any, x: Any) -> Any:
    """Return patches ``(sample·output, tap·n)`` of features ``(sample·input, n)``."""
    number, behind, before = taps.shape
    n = x.shape[-1]
    read = taps.reshape(number * behind, before) @ x.reshape(-1, before, n)
    return read.reshape(-1, number, behind, n).swapaxes(1, 2).reshape(-1, number * n)


def scatter(taps: Any, patches: Any) -> Any:
    """Apply the transpose of :func:`gather`: patches back to ``(sample·input, n)``."""
    number, behind, before = taps.shape
    n = patches.shape[-1] // number
    read = patches.reshape(-1, behind, number, n).swapaxes(1, 2)
    back = taps.reshape(number * behind, before).T @ read.reshape(-1, number * behind, n)
    return back.reshape(-1, n)
