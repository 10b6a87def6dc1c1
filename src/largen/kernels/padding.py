"""Padding of inputs to standard numbers of rows, so that fewer programs are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from largen.kernels.masked import Masked

Rows = np.ndarray | Array

_SMALL, _LARGEST = 128, 1024  # above the latter computing takes longer than compiling


def standard_size(rows: int, small: int = _SMALL) -> int:
    """Return the smallest standard number of rows that is not below ``rows``.

    These are powers of 2 from 16 to ``small``, below which cost is negligible, then eight an
    octave.

    >>> [standard_size(n) for n in (1, 16, 17, 100, 150, 1000, 5000)]
    [16, 16, 32, 128, 160, 1024, 5000]
    """
    if rows > _LARGEST:
        return rows
    octave = 2 ** (rows - 1).bit_length()
    step = octave if rows <= small else octave // 16
    return max(-(-rows // step) * step, 16)


def fill_up(x: Float[Rows, "sample *shape"]) -> Float[Rows, "row *shape"]:
    """Append scaled-down copies of rows: typical inputs, neither equal nor close."""
    extra = standard_size(len(x), _SMALL if x.ndim == 2 else 16) - len(x)
    if not extra:
        return x
    x = np.asarray(x)
    k = np.arange(extra)
    factors = 0.9 - 0.4 * k / max(extra, 1)
    shrunken = x[k % len(x)] * factors.reshape(-1, *(1,) * (x.ndim - 1))
    return np.concatenate([x, shrunken.astype(x.dtype)])


def fill(samples: Masked, dtype: Any = None) -> Masked:
    """Return samples and their masks padded with further rows, in their own or a given dtype."""
    x, mask = np.asarray(samples.x, dtype), samples.mask
    full = fill_up(x)
    if mask is not None:
        mask = mask[np.arange(len(full)) % len(x)]
    return Masked(full, mask)
