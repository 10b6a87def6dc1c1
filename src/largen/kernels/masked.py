"""Samples with a mask of their present positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import Layer
from largen.arrays import booleans, is_traced
from largen.errors import InvalidInput
from largen.parameterizations import Parameterization

_ROWS = 128  # rows of a block whose diagonal gives the variances of single samples


class Masked(NamedTuple):
    """Samples, with the mask of their present positions."""

    x: Any  # (sample, input) or (sample, *space, channel)
    # True at present positions, (sample, *space), or None if all are present.
    mask: np.ndarray | None

    def rows(self, chosen: Any) -> Masked:
        """Return some of the samples."""
        return Masked(self.x[chosen], None if self.mask is None else self.mask[chosen])


def masked(name: str, mask: Any, x: Any) -> Masked:
    """Check a mask argument, except for its positions, which depend on the network."""
    if mask is None:
        return Masked(x, None)
    if x is None:
        raise InvalidInput(f"{name}: belongs to x2, which is not given.")
    mask = booleans(name, mask)
    if mask.ndim == 0 or len(mask) != len(x):
        raise InvalidInput(f"{name}: wanted a row for each of {len(x)} samples, got {mask.shape}.")
    return Masked(x, mask)


def kernel_of(
    kernel: Callable[..., Any],
    net: Layer,
    first: Masked,
    second: Masked | None = None,
    *,
    param: Parameterization | None,
) -> Any:
    """Return the result of :func:`largen.kernel`, or a similar function, for masked samples."""
    x2, mask2 = (None, None) if second is None else second
    return kernel(net, first.x, x2, mask1=first.mask, mask2=mask2, param=param)


def diagonal_of(prior: Callable[[Masked], Any], samples: Masked) -> Any:
    """Return prior(x, x) for every row x, as the diagonals of square blocks of few rows."""
    count = len(samples.x)
    if is_traced(samples.x):
        if samples.mask is None:
            return jax.vmap(lambda row: prior(Masked(row[None], None))[0, 0])(samples.x)
        return jnp.stack([prior(samples.rows(slice(i, i + 1)))[0, 0] for i in range(count)])
    size = min(_ROWS, count)
    last = np.minimum(np.arange(count + -count % size), count - 1)  # padded with the last row
    blocks = [samples.rows(block) for block in last.reshape(-1, size)]
    return np.concatenate([np.diagonal(prior(block)) for block in blocks])[:count]
