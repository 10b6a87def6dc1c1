"""Averages, sums and maxima over positions in finite networks."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from jax import lax

from largen.networks.rules.dispatch import rule
from largen.networks.windows import padded
from largen.programs import Maximum, Pool, Window, slides


@rule.register
def _(operation: Pool, constants: Any, values: tuple[Any, ...]) -> Any:
    (x,), window = values, operation.window
    if window is None:
        space = tuple(range(1, x.ndim - 1))
        return x.sum(axis=space) if operation.total else x.mean(axis=space)
    total = _over_windows(window, x, 0.0, lax.add)
    if operation.total:
        return total
    inside = [slide.counts() for slide in slides(window, x.shape[1:-1])]
    return total / reduce(np.multiply.outer, inside)[..., None].astype(x.dtype)


@rule.register
def _(operation: Maximum, constants: Any, values: tuple[Any, ...]) -> Any:
    return _over_windows(operation.window, values[0], -np.inf, lax.max)


def _over_windows(window: Window, x: Any, start: float, combine: Any) -> Any:
    """Combine the entries of each window; empty positions have the value ``start``."""
    x, (strides, dilation) = padded(window, x, start), ((1, *each, 1) for each in window.moves)
    return lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        combine,
        (1, *window.lengths, 1),
        strides,
        "VALID",
        window_dilation=dilation,
    )
