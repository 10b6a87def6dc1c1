"""Half the mean squared distance of inputs, exact to relative precision also for near twins."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

# Below this share of the variances the difference of Gram entries has lost too many digits.
_CLOSE = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 1e-2}


class Points(NamedTuple):
    """Some rows out of many, and what the distances of all their pairs have in common.

    Attributes
    ----------
    centred
        The rows less a common centre, in the precision of distances.
    size
        Mean squares of the centred rows.
    everything, start
        All rows, in their own precision, and where these begin among them: they are read where
        rows are close, and only then.
    """

    centred: Float[Array, "n d"]
    size: Float[Array, " n"]
    everything: Float[Array, "all d"]
    start: Any = 0

    @property
    def rows(self) -> Float[Array, "n d"]:
        """The rows in the precision of distances."""
        rows = lax.dynamic_slice_in_dim(self.everything, self.start, len(self.centred))
        return rows.astype(self.centred.dtype)


def points(x: Float[Array, "n d"], centre: Float[Array, " d"]) -> Points:
    """Return rows about a centre, in whose precision distances are taken."""
    centred = x - centre
    return Points(centred, jnp.mean(centred**2, axis=1), x)


@jax.custom_jvp
def half_squared_distance(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], same: Bool[Array, "n1 n2"]
) -> Float[Array, "n1 n2"]:
    """Return |x1 − x2|²/2d for every pair of rows.

    Parameters
    ----------
    x1, x2
        Rows.
    same
        Pairs that are known to be one and the same row: their distance is 0.
    """
    centre = jnp.mean(x1, axis=0)
    return half_squared_distance_of(points(x1, centre), points(x2, centre), same)


def half_squared_distance_of(
    first: Points, second: Points, same: Bool[Array, "n1 n2"]
) -> Float[Array, "n1 n2"]:
    """Return the same for rows about a common centre; it is not differentiated.

    By matrix product, (|x1|² + |x2|²)/2 − x1·x2, about the centre; rows with a partner that is
    close, in comparison with the distance from the centre, are done again from the differences,
    since that subtraction cancels. One row far off moves the centre, and makes all the others
    close.
    """
    a, b = first.centred, second.centred
    scale = (first.size[:, None] + second.size[None, :]) / 2
    gap = jnp.where(same, 0, jnp.maximum(scale - a @ b.T / a.shape[1], 0))
    close = ~(gap >= _CLOSE.get(gap.dtype, 1e-2) * scale) & ~same  # NaN as well

    def exact_where_close():
        rows, others = first.rows, second.rows

        def exact_row(row):
            point, found, is_close = row
            return lax.cond(
                jnp.any(is_close),
                lambda: jnp.where(is_close, jnp.mean((point - others) ** 2, axis=1) / 2, found),
                lambda: found,
            )

        return lax.map(exact_row, (rows, gap, close))

    return lax.cond(jnp.any(close), exact_where_close, lambda: gap)


@half_squared_distance.defjvp
def _half_squared_distance_jvp(primals, tangents):
    x1, x2, same = primals
    dx1, dx2, _ = tangents
    centre = lax.stop_gradient(jnp.mean(x1, axis=0))
    a, b = x1 - centre, x2 - centre
    own = jnp.mean(a * dx1, axis=1)[:, None] + jnp.mean(b * dx2, axis=1)[None, :]
    cross = (a @ dx2.T + dx1 @ b.T) / a.shape[1]
    return half_squared_distance(x1, x2, same), jnp.where(same, 0, own - cross)
