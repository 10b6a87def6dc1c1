"""Kernels of convolutional networks with global pooling, by planes of displacement.

Behind convolutions of stride 1 and elementwise layers, the covariance of the positions p and p' of
two samples depends on layers before only through pairs (p + k, p' + k) with the same displacement
d = p' − p. Every displacement is a plane of its own, and a global pool takes the mean over all of
them,

    K ← ⟨K_d(p)⟩ over d and p.

Planes are computed one after the other through all layers: a pair of samples of P positions takes
the memory of P numbers, not of P². For a sample paired with itself, and for a pair and its mirror
image, the planes d and −d have the same mean, so that half of them suffice.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.compilation import SHORT, Compiled
from largen.interrupts import check
from largen.kernels.inputs import Samples, plane_of, samples_of
from largen.kernels.rules import plan_of, run, wanted, wanted_of_data
from largen.kernels.rules.averages import coincident
from largen.kernels.rules.pooling import pooled_of_averages
from largen.kernels.state import KernelState, Wanted
from largen.programs import (
    Affine,
    Concatenate,
    Function,
    Gain,
    Mask,
    Normalise,
    Operation,
    Pool,
    Product,
    Program,
    Repeat,
    Sum,
)

# Entries of the planes of a tile: smaller ones are slower, though they fit into caches.
PLANE = 2**16
PAIRS = 2**24  # pairs of positions in a tile, which cannot be interrupted


class AtPool(NamedTuple):
    """A program cut at its global pool."""

    # before, pool, behind: the operations before the pool, which keep planes apart, the pool, and
    # those behind it.
    before: Program
    pool: Pool
    behind: Program

    @property
    def wanted(self) -> Wanted:
        """The moments that the pool requires of each plane."""
        return Wanted(means=wanted(self.pool, wanted_of_data(self.behind)).means)


@lru_cache(maxsize=256)
def at_pool(program: Program) -> AtPool | None:
    """Return a program cut at its global pool, or None if its planes depend on one another."""
    if plan_of(program, Wanted()).crossed:
        return None
    for place, operation in enumerate(program.operations[1:], start=1):
        if isinstance(operation, Pool) and operation.window is None:
            if place == 1 or place - 1 not in program.cuts:
                return None
            behind = program.between(place, program.output)
            return AtPool(program.between(0, place - 1), operation, behind)
        if not _keeps_planes_apart(operation):
            return None
    return None


def _keeps_planes_apart(operation: Operation) -> bool:
    """Whether an operation takes each plane to itself; quadrature would be done once a plane."""
    match operation:
        case Affine(window=window, tied=tied):
            return tied and (window is None or window.around_each)
        case Function(phi=phi, gains=gains):
            return phi.closed_form is not None and not gains
        case Normalise(over=over):
            return over == "channels"
        case Repeat(body=body):
            return all(map(_keeps_planes_apart, body.operations[1:]))
    return isinstance(operation, Gain | Mask | Sum | Product | Concatenate)


def needs(program: Program) -> Wanted:
    """Return the moments of samples that the first operation requires."""
    cut = at_pool(program)
    return wanted_of_data(program) if cut is None else wanted_of_data(cut.before, cut.wanted)


def evaluate_planes(
    cut: AtPool,
    with_ntk: bool,  # whether to carry Θ
    constants: Any,
    # first, second: the sets of samples, with their own gaps.
    first: Samples,
    second: Samples,
    same: Any,  # pairs that are one and the same sample
    alike: Any = False,  # whether both sets are the same; may be traced
) -> KernelState:
    """Return the state after the last layer for all pairs of samples."""
    here = len(cut.before.operations)
    state, gap, ntk, equal = _averages(cut, with_ntk, constants[:here], first, second, same, alike)
    gaps = (first.own_gap, second.own_gap, gap)
    pooled = pooled_of_averages(cut.pool, state, gaps, ntk, equal)
    return run(cut.behind, ((), *constants[here + 1 :]), pooled, Wanted())


def _averages(cut, with_ntk, constants, first, second, same, alike):
    """Return the sides before the pool, averages over positions, and which pairs coincide."""
    space = first.side.q.shape[:-1]
    order, weights, half = displacements(space)

    def plane(d: Any) -> KernelState:
        state = plane_of(first, second, same, d, with_ntk)
        return run(cut.before, constants, state, cut.wanted)

    dtype = first.side.q.dtype
    factors = jnp.where(alike, weights, 1).astype(dtype) / prod(space) ** 2
    order = jnp.asarray(order)

    @jax.checkpoint
    def add(n: Any, totals: Any) -> Any:
        gap, ntk, equal = totals
        state = plane(order[n])
        equal = lax.cond(n == 0, lambda: coincident(state), lambda: equal)  # d = 0 is the first
        over = tuple(range(len(space)))
        gap = gap + factors[n] * jnp.sum(state.gap, axis=over)
        if state.ntk is not None:
            ntk = ntk + factors[n] * jnp.sum(state.ntk, axis=over)
        return gap, ntk, equal

    empty = jnp.zeros(same.shape, dtype)
    count = jnp.where(alike, half, len(order)) if isinstance(alike, jax.Array) else None
    if count is None:
        count = half if alike else len(order)
    totals = (empty, empty if with_ntk else None, jnp.zeros(same.shape, bool))
    gap, ntk, equal = lax.fori_loop(0, count, add, totals)
    if alike is not False:
        gap, ntk = jax.tree.map(lambda k: jnp.where(alike, (k + k.T) / 2, k), (gap, ntk))
    sides = plane(jnp.zeros(len(space), order.dtype))  # the same in every plane
    return sides, gap, ntk, equal


@lru_cache(maxsize=256)
def displacements(space: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, int]:
    """Return all displacements d, the multiplicities of the first of ±d, and their number.

    Of d and −d, modulo the lengths of the axes, one is among the first, d = 0 at the head, and the
    other at the end, with multiplicity 0: (4,) has 0, 1, 2, 3 with 1, 2, 1, 0, and three.
    """
    every = list(product(*map(range, space)))
    mirrored = {d: tuple(-i % n for i, n in zip(d, space, strict=True)) for d in every}
    first = [d for d in every if d <= mirrored[d]]
    last = [d for d in every if d > mirrored[d]]
    counts = [1 + (d != mirrored[d]) for d in first] + [0] * len(last)
    return np.array(first + last), np.array(counts), len(first)


def with_own_gaps(program: Program, constants: Any, samples: Samples, masks: Any) -> Samples:
    """Return samples with the averages of the gaps within each of them, if the pool needs them."""
    cut = at_pool(program)
    if cut is None:
        return samples
    return samples._replace(own_gap=_own_gaps(cut, constants, samples.x, masks))


def _own_gaps(cut: AtPool, constants: Any, x: Any, mask: Any) -> Any:
    """Return ⟨gap⟩ over all pairs of positions of each sample before the pool, (n,)."""
    here = len(cut.before.operations)
    before = jax.tree.map(lambda c: jnp.asarray(c, x.dtype), constants[:here])
    one = jnp.ones((1, 1), bool)

    def of_sample(x: Any, mask: Any) -> Any:
        x, mask = jax.tree.map(lambda each: each[None], (x, mask))
        sample = samples_of(x, mask, wanted_of_data(cut.before, cut.wanted))
        return _averages(cut, False, before, sample, sample, one, True)[1][0, 0]

    return jax.vmap(of_sample)(x, mask)


_compiled_own_gaps = Compiled(_own_gaps, static_argnums=0)


def own_gaps_of(program: Program, constants: Any, x: Any, mask: Any, at_most: int) -> Any:
    """Return gaps of samples with themselves in float64, by blocks of at most so many, or None."""
    cut = at_pool(program)
    if cut is None or x is None:
        return None
    size = max(min(PLANE // prod(x.shape[1:-1]), at_most, len(x)), 1)
    short = len(x) * prod(x.shape[1:-1]) ** 2 <= SHORT
    compiled, found = _compiled_own_gaps.quickly if short else _compiled_own_gaps, []
    for start in range(0, len(x), size):
        chosen = np.minimum(np.arange(start, start + size), len(x) - 1)
        rows = jnp.asarray(x[chosen], jnp.float64)
        found.append(compiled(cut, constants, rows, None if mask is None else mask[chosen]))
        jax.block_until_ready(found[-1])
        check()
    return jnp.concatenate(found)[: len(x)] if found else jnp.zeros(0)


def largest_tile(space: tuple[int, ...]) -> int:
    """Return the number of rows and columns of a tile, by the entries of its planes."""
    positions = prod(space)
    return max(int(min(PLANE / positions, PAIRS / positions**2) ** 0.5), 1)
