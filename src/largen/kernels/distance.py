"""Half the mean squared distance of inputs, to relative precision even for nearly equal ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from largen.expectations.closed_form import determinant_of

# Below this fraction of the variances a difference of Gram entries has lost too many digits.
_CLOSE = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 3e-2}


class Points(NamedTuple):
    """A subset of rows, with the quantities shared by the distances of all their pairs."""

    # The rows minus a common centre, scaled to a mean square of 1, in the precision of products.
    direction: Float[Array, "n d"]
    # Root mean squares of the centred rows, in the precision of distances.
    length: Float[Array, " n"]
    size: Float[Array, " n"]  # mean squares of the original rows
    # everything, start: all rows, in their own precision, and the position of this subset among
    # them; used only where rows are close.
    everything: Float[Array, "all d"]
    start: Any = 0

    @property
    def rows(self) -> Float[Array, "n d"]:
        """The rows in the precision of distances."""
        rows = lax.dynamic_slice_in_dim(self.everything, self.start, len(self.direction))
        return rows.astype(self.length.dtype)


def centre_of(x: Float[Array, "n d"]) -> Float[Array, " d"]:
    """Return the c that minimises Σ |x − c|²/|x|²; the minimum is at most n.

    With this centre the distances of small rows keep their digits in the presence of large rows.
    """
    size = jnp.mean(x**2, axis=1)
    smallest = jnp.min(jnp.where(size > 0, size, jnp.inf))
    weight = jnp.where(size > 0, smallest / size, 0)
    total = jnp.sum(weight)
    return weight @ x / jnp.where(total > 0, total, 1)


def points(x: Float[Array, "n d"], centre: Float[Array, " d"], products: Any = None) -> Points:
    """Return rows about a centre, whose dtype is the distances'; products may have another."""
    size, centred = jnp.mean(x.astype(centre.dtype) ** 2, axis=1), x - centre
    length = jnp.sqrt(jnp.mean(centred**2, axis=1))
    direction = centred / jnp.where(length > 0, length, 1)[:, None]
    return Points(direction.astype(products or centred.dtype), length, size, x)


@jax.custom_jvp
def half_squared_distance(
    x1: Float[Array, "n1 d"], x2: Float[Array, "n2 d"], same: Bool[Array, "n1 n2"]
) -> Float[Array, "n1 n2"]:
    """Return |x1 − x2|²/2d for every pair of rows; 0 where they are the ``same``."""
    centre = centre_of(x1)
    return half_squared_distance_of(points(x1, centre), points(x2, centre), same)


def half_squared_distance_of(
    first: Points, second: Points, same: Bool[Array, "n1 n2"]
) -> Float[Array, "n1 n2"]:
    """Return |x1 − x2|²/2d for rows about a common centre; it is not differentiated.

    By matrix products, (|x1|² + |x2|²)/2 − x1·x2. This cancels for pairs that are close compared
    with their distance from the centre; rows with such a partner are recomputed from the
    differences, and rows with a nearly parallel one as well, since behind a relu without a bias
    only the angle matters, which is the root of a difference.
    """
    a, b = first.direction, second.direction
    one, two = first.length[:, None], second.length[None, :]
    scale, product = (one**2 + two**2) / 2, jnp.matmul(a, b.T, precision="highest")
    cosine = product.astype(scale.dtype) / a.shape[1]
    gap = jnp.where(same, 0, jnp.maximum(scale - one * two * cosine, 0))
    least = _CLOSE.get(product.dtype, 1e-2) * scale
    far = gap >= least  # False for NaN
    q1, q2 = first.size[:, None], second.size[None, :]
    far &= determinant_of(q1, q2, gap) >= least * jnp.sqrt(q1) * jnp.sqrt(q2)
    close = ~far & ~same

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
    centre = lax.stop_gradient(centre_of(x1))
    a, b = x1 - centre, x2 - centre
    own = jnp.mean(a * dx1, axis=1)[:, None] + jnp.mean(b * dx2, axis=1)[None, :]
    cross = (a @ dx2.T + dx1 @ b.T) / a.shape[1]
    return half_squared_distance(x1, x2, same), jnp.where(same, 0, own - cross)
