"""The state before the first layer: second moments of the data, over channels."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from largen.kernels.distance import Points, half_squared_distance, half_squared_distance_of, points
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.state import KernelState, Side, Wanted, displaced

_FEW = 32  # largest number of channels for explicit differences instead of matrix products


class Samples(NamedTuple):
    """One of two sets of samples, prepared for the state before the first layer."""

    # The samples or, if a centre is given, points about it.
    x: Float[Array, "n *space channels"] | Points
    side: Side  # moments of the samples
    # For networks that are computed by planes of displacement, the average of the gaps between the
    # positions of each sample before the global pool, (n,); otherwise None.
    own_gap: Float[Array, " n"] | None = None

    @property
    def number(self) -> int:
        """Number of samples."""
        return self.side.q.shape[-1]


def samples_of(x: Float[Array, "n *space channels"], present: Any, wanted: Wanted) -> Samples:
    """Return samples with moments; ``present`` is 1 at present positions, (n, *space), or None."""
    return Samples(x, _side(x, present, wanted))


def samples_about(
    x: Float[Array, "n channels"], centre: Any, wanted: Wanted, products: Any = None
) -> Samples:
    """Return samples without positions, prepared for distances, in the centre's precision."""
    return Samples(points(x, centre, products), _side(x.astype(centre.dtype), None, wanted))


def cut(samples: Samples, start: Any, length: int) -> Samples:
    """Return a range of the samples prepared for distances."""

    def part(x: Any) -> Any:
        return lax.dynamic_slice_in_dim(x, start, length)

    x = cast(Points, samples.x)
    rows = Points(part(x.direction), part(x.length), part(x.size), x.everything, start)
    return Samples(rows, jax.tree.map(part, samples.side))


def state_of(
    first: Samples, second: Samples, same: Bool[Array, "n1 n2"], wanted: Wanted, with_ntk: bool
) -> KernelState:
    """Return the state of two sets of samples, both about the same centre or both without."""
    if isinstance(first.x, Points) and isinstance(second.x, Points):
        gap = half_squared_distance_of(first.x, second.x, same)
    else:
        gap = _gaps(first.x, second.x, same, wanted.pairs)
    ntk = jnp.zeros_like(gap) if with_ntk else None
    return apply_masks(KernelState(first.side, second.side, gap, ntk, same))


def plane_of(
    first: Samples, second: Samples, same: Bool[Array, "n1 n2"], displacement: Any, with_ntk: bool
) -> KernelState:
    """Return the plane of one displacement of two sets of samples; see :func:`state_of`."""
    x1, x2 = first.x, cast(Any, second.x)
    x2 = jnp.moveaxis(displaced(jnp.moveaxis(x2, 0, -1), displacement), -1, 0)
    same = same & jnp.all(displacement == 0)
    gap = _gaps(x1, x2, same, False)
    ntk = jnp.zeros_like(gap) if with_ntk else None
    return apply_masks(KernelState(first.side, second.side, gap, ntk, same, displacement))


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
