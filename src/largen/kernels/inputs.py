"""The state before the first layer: second moments of the data, over channels."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from largen.kernels.distance import half_squared_distance
from largen.kernels.rules.scaling import hidden
from largen.kernels.state import Side, State, Wanted

_FEW = 32  # channels up to which differences are taken one by one, and not by matrix products


def state_of(
    x1: Float[Array, "n1 *space channels"],
    x2: Float[Array, "n2 *space channels"],
    present1: Any,
    present2: Any,
    same: Bool[Array, "n1 n2"],
    wanted: Wanted,
    with_ntk: bool,
) -> State:
    """Return the state of two sets of samples.

    Parameters
    ----------
    x1, x2
        Samples.
    present1, present2
        1 where positions are there and 0 where a mask hides them, (n, *space), or None.
    same
        Pairs that are one and the same sample.
    wanted
        What the network asks for.
    with_ntk
        Whether to carry Θ.
    """
    first, second = _side(x1, present1, wanted), _side(x2, present2, wanted)
    gap = _gaps(x1, x2, same, wanted.pairs)
    state = State(first, second, gap, jnp.zeros_like(gap) if with_ntk else None, same)
    return hidden(state)


def _side(x: Any, present: Any, wanted: Wanted) -> Side:
    within = None
    if wanted.pairs:
        one = jnp.ones((1, 1), bool)
        each = jax.vmap(lambda sample: _gaps(sample[None], sample[None], one, True)[..., 0, 0])
        within = jnp.moveaxis(each(x), 0, -1)
    return Side(
        jnp.moveaxis(jnp.mean(x**2, axis=-1), 0, -1),
        jnp.moveaxis(jnp.mean(x, axis=-1), 0, -1) if wanted.means else None,
        within,
        None if present is None else jnp.moveaxis(jnp.asarray(present, x.dtype), 0, -1),
    )


def _gaps(x1: Any, x2: Any, same: Any, pairs: bool) -> Any:
    """Return half the mean squared distances, (*positions, n1, n2)."""
    space, channels = x1.shape[1:-1], x1.shape[-1]
    if not space:
        return half_squared_distance(x1, x2, same)
    positions = prod(space)
    a, b = (jnp.moveaxis(x.reshape(len(x), positions, channels), 0, 1) for x in (x1, x2))
    if channels <= _FEW:
        found = _by_differences(a, b, pairs)
    elif pairs:
        rows, columns = a.shape[1], b.shape[1]
        twins = jnp.eye(positions, dtype=bool)[:, None, :, None] & same[None, :, None, :]
        found = half_squared_distance(
            a.reshape(-1, channels),
            b.reshape(-1, channels),
            twins.reshape(positions * rows, positions * columns),
        ).reshape(positions, rows, positions, columns)
        found = jnp.swapaxes(found, 1, 2)
    else:
        found = lax.map(lambda both: half_squared_distance(*both, same), (a, b))
    return found.reshape(*space, *space * pairs, *same.shape)


def _by_differences(a: Any, b: Any, pairs: bool) -> Any:
    total = 0.0
    for c in range(a.shape[-1]):
        one = a[:, None, :, None, c] if pairs else a[:, :, None, c]
        two = b[None, :, None, :, c] if pairs else b[:, None, :, c]
        total = total + (one - two) ** 2
    return total / (2 * a.shape[-1])
