"""Inputs filled up to standard numbers of rows, so that other numbers compile nothing anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from largen.kernels.masked import Masked

_LARGEST = 1024  # from here on computing takes longer than compiling


def standard_size(rows: int) -> int:
    """Return the next number of rows that is standard: eight in each octave, from 16 on.

    Examples
    --------
    >>> [standard_size(n) for n in (1, 16, 17, 100, 1000, 5000)]
    [16, 16, 18, 104, 1024, 5000]
    """
    if rows > _LARGEST:
        return rows
    step = max(2 ** ((rows - 1).bit_length() - 4), 1)
    return max(-(-rows // step) * step, 16)


def fill_up(x: Float[np.ndarray, "sample *shape"]) -> Float[np.ndarray, "row *shape"]:
    """Append shrunken copies of rows, which are typical inputs and neither equal nor close."""
    extra = standard_size(len(x)) - len(x)
    k = np.arange(extra)
    factors = 0.9 - 0.4 * k / max(extra, 1)
    shrunken = x[k % len(x)] * factors.reshape(-1, *(1,) * (x.ndim - 1))
    return np.concatenate([x, shrunken.astype(x.dtype)])


def filled(samples: Masked, dtype: Any = None) -> Masked:
    """Return samples filled up with their masks, in their own precision or another."""
    x, mask = np.asarray(samples.x, dtype), samples.mask
    if mask is not None:
        mask = mask[np.arange(standard_size(len(x))) % len(x)]
    return Masked(fill_up(x), mask)
