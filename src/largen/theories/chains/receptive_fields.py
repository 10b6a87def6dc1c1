"""How an affine map reads the positions of the layer before it.

Weights that are shared by positions act on channels only. So a convolution is a sum of few
matrices, one for each place in the window,

    hˡ⁺¹(a) = σ Σ_k W_k Σ_b T_k(a, b) φ(hˡ(b)),

where T_k says which position the place k of the window shows to the output a (Bordelon et al.,
Depthwise hyperparameter transfer in residual networks, (134), which has one stride and all
places). Strides, padding, dilation, pooling on the way and transposed convolutions are in T;
behind ``Flatten`` every position has a matrix of its own, and there is one output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from largen.architectures import (
    AvgPool,
    Conv,
    ConvTranspose,
    Dense,
    GlobalAvgPool,
    GlobalSumPool,
    SumPool,
)
from largen.kernels.sliding import slides

Affine = Dense | Conv | ConvTranspose
Pooling = AvgPool | SumPool | GlobalAvgPool | GlobalSumPool


@dataclass(frozen=True, eq=False)
class Reading:
    """The positions that one affine map reads.

    Attributes
    ----------
    taps
        T, of shape ``(tap, position behind, position before)``, pooling included.
    pooled
        What pooling alone makes of the positions before, ``(position, position before)``.
    """

    taps: np.ndarray
    pooled: np.ndarray

    @property
    def number(self) -> int:
        """How many matrices the map consists of."""
        return len(self.taps)

    @property
    def positions(self) -> int:
        """How many positions there are behind it."""
        return self.taps.shape[1]

    @property
    def plain(self) -> bool:
        """Whether it is the map of a dense layer between single positions."""
        return self.taps.shape == (1, 1, 1) and self.taps.item() == 1


@dataclass(frozen=True, eq=False)
class View:
    """What layers without weights have made of the positions since the last affine map.

    Attributes
    ----------
    space
        Lengths of the spatial axes now.
    pooled
        The positions now from those behind the affine map.
    flat
        Whether the positions have become channels.
    fresh
        Whether nothing was pooled.
    """

    space: tuple[int, ...]
    pooled: np.ndarray
    flat: bool = False
    fresh: bool = True

    @classmethod
    def of(cls, space: tuple[int, ...]) -> View:
        """Return the view directly behind an affine map."""
        return cls(space, np.eye(prod(space)))

    def pooled_by(self, layer: Pooling) -> View:
        """Return the view behind a pooling layer."""
        if isinstance(layer, (GlobalAvgPool, GlobalSumPool)):
            space, sums = (), np.ones((1, len(self.pooled)))
        else:
            space, shown = _shown(layer, self.space)
            sums = shown.sum(0)
        if isinstance(layer, (AvgPool, GlobalAvgPool)):
            sums = sums / sums.sum(1, keepdims=True)
        return replace(self, space=space, pooled=sums @ self.pooled, fresh=False)

    def flattened(self) -> View:
        """Return the view behind ``Flatten``."""
        return replace(self, space=(), flat=True)

    def read_by(self, layer: Affine) -> tuple[Reading, View]:
        """Return what an affine map reads, and the view behind it."""
        if isinstance(layer, Dense):
            space = self.space
            taps = self.pooled[:, None] if self.flat else self.pooled[None]
        else:
            space, shown = _shown(layer, self.space)
            taps = shown @ self.pooled
        return Reading(_independent(taps), self.pooled), View.of(space)


def _shown(layer: Any, space: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the space behind a window, and what its places show, (place, behind, before)."""
    found = slides(layer, space)
    axes = []
    for slide, length in zip(found, space, strict=True):
        extended = np.asarray(slide.extended(np.eye(length, dtype=np.float32), 0), float)
        axes.append(np.stack([slide.offset(extended, k, 0) for k in range(slide.window)]))
    # Kronecker products of (place, behind, before), the first axis slowest.
    return tuple(slide.positions for slide in found), reduce(np.kron, axes)


def _independent(taps: np.ndarray) -> np.ndarray:
    """Return no more taps than are linearly independent.

    Rotations of the matrices W_k among one another change neither their distribution nor gradient
    descent. Positions whose input is zero, or equal to that of others, are omitted.
    """
    taps = taps[np.abs(taps).max((1, 2)) > 0]
    _, s, vt = np.linalg.svd(taps.reshape(len(taps), -1), full_matrices=False)
    rank = int(np.sum(s > 1e-12 * s[0]))
    return taps if rank == len(taps) else (s[:, None] * vt)[:rank].reshape(rank, *taps.shape[1:])


def gathered(taps: Any, x: Any) -> Any:
    """Return patches ``(sample·behind, tap·n)`` of features ``(sample·before, n)``."""
    number, behind, before = taps.shape
    n = x.shape[-1]
    read = taps.reshape(number * behind, before) @ x.reshape(-1, before, n)
    return read.reshape(-1, number, behind, n).swapaxes(1, 2).reshape(-1, number * n)


def scattered(taps: Any, patches: Any) -> Any:
    """Return the transpose: from ``(sample·behind, tap·n)`` to ``(sample·before, n)``."""
    number, behind, before = taps.shape
    n = patches.shape[-1] // number
    read = patches.reshape(-1, behind, number, n).swapaxes(1, 2)
    back = taps.reshape(number * behind, before).T @ read.reshape(-1, number * behind, n)
    return back.reshape(-1, n)
