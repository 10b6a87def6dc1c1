"""Factors of the tangent kernel of a JAX function, and the kernel from them.

Parameter arrays that are used in affine maps alone have factors; the others contribute by their
derivatives. Which arrays these are is read from the jaxpr of the function of one sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largen.networks.tangents.affine_uses import Pass, Use
from largen.networks.tangents.contraction import (
    Derived,
    Factored,
    Site,
    cost_of_products,
    derivative,
    numbers_kept,
    product_of_factors,
    way_of,
)


class Plan(NamedTuple):
    """How each parameter array contributes, and what that takes."""

    arrays: tuple[Factored | Derived | None, ...]  # None for an array that is not used
    # per_sample, per_pair: numbers held at a time for each sample of a tile, and each pair.
    per_sample: int
    per_pair: int
    factors: int  # numbers that are kept of a sample
    outputs: int  # of a sample


def plan_of(
    # f, params, x: the function and its arguments, or their shapes.
    f: Any,
    params: Any,
    x: Any,
    samples: tuple[int, int],  # the numbers of samples, on which it depends what is cheapest
    *,
    factored: bool,  # whether to use factors at all; otherwise all derivatives are formed by JAX
    # Indices of arrays whose entries have different rates, of which derivatives are formed.
    by_entry: frozenset[int] = frozenset(),
) -> Plan:
    """Return how to compute the kernel of a number of samples with another number."""
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    closed, out = jax.make_jaxpr(f, return_shape=True)(params, row)
    leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(params)]
    one_pass, shapes = Pass(), []

    def run(leaves, row):
        one_pass.outputs(closed, leaves, row)
        shapes[:] = [operand.shape for operand in one_pass.inputs]
        return ()

    jax.eval_shape(run, leaves, row)
    outputs = prod(out.shape[1:])
    held = (outputs + 1) * sum(
        prod(getattr(v.aval, "shape", ())) for e in closed.jaxpr.eqns for v in e.outvars
    )
    arrays: list[Factored | Derived | None] = []
    pairs, kept = outputs**2, 0
    for index, leaf in enumerate(leaves):
        used = [(n, use) for n, use in enumerate(one_pass.uses) if use.leaf == index]
        one_base = len({use.base for _, use in used}) == 1
        if not used and index not in one_pass.plain:
            arrays.append(None)
        elif not factored or index in one_pass.plain | by_entry or not one_base:
            arrays.append(Derived((), ()))
            kept += outputs * leaf.size
        else:
            way, its_kept, its_pairs = _of_uses(used, shapes, outputs, samples)
            arrays.append(way)
            kept, pairs = kept + its_kept, pairs + its_pairs
    return Plan(tuple(arrays), held + kept, pairs, kept, outputs)


def _of_uses(
    used: Sequence[tuple[int, Use]], shapes: Sequence[Any], outputs: int, samples: tuple[int, int]
) -> tuple[Factored | Derived, int, int]:
    """Return the cheapest way for an array, with the numbers kept of a sample and of a pair."""
    sizes = _sizes(used, shapes)
    sites = tuple(Site(n, use.of_input, use.of_output, use.part) for n, use in used)
    of_positions = [shapes[n][0] for n, _ in used]
    way = way_of(sites, of_positions, sizes, outputs, samples)
    kept = numbers_kept(way, of_positions, sizes, outputs)
    if isinstance(way, Derived):
        return way, kept, 0
    return way, kept, cost_of_products(sites, of_positions, sizes, outputs)[1]


def _sizes(used: Sequence[tuple[int, Use]], shapes: Sequence[Any]) -> dict[Any, int]:
    """Return the size of each labelled axis of a parameter array."""
    sizes: dict[Any, int] = {}
    for number, use in used:
        cotangent = jax.ShapeDtypeStruct(use.shape, use.dtype)
        sizes.update(zip(use.of_input, shapes[number][1:], strict=True))
        arranged = jax.eval_shape(use.arrange, cotangent)
        sizes.update(zip(use.of_output, arranged.shape[1:], strict=True))
    return sizes


@partial(jax.jit, static_argnums=(0, 1))
def factors(f: Any, arrays: tuple[Any, ...], params: Any, x: Any) -> list[Any]:
    """Return for each parameter array its factors, or its derivative, of all samples.

    Factors are pairs of a, (sample, position, ...), and δ, (sample, output, position, ...), one for
    each use; derivatives have the shape (sample, output, entry).
    """
    leaves = jax.tree.leaves(params)
    wanted = [i for i, entry in enumerate(arrays) if isinstance(entry, Derived) and not entry.sites]
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    closed = jax.make_jaxpr(f)(params, row)
    trial = Pass()
    jax.eval_shape(lambda *inputs: trial.outputs(closed, *inputs)[0], leaves, row)
    needed = {s.number for entry in arrays if entry is not None for s in entry.sites}

    def of_sample(row):
        def forward(taps, some):
            mine = list(leaves)
            for index, leaf in zip(wanted, some, strict=True):
                mine[index] = leaf
            one_pass = Pass([taps.get(n, 0) for n in range(len(trial.uses))])
            (out,) = one_pass.outputs(closed, mine, row[None])
            return out.reshape(-1), one_pass.inputs

        taps = {n: jnp.zeros(trial.uses[n].shape, trial.uses[n].dtype) for n in needed}
        out, back, inputs = jax.vjp(forward, taps, [leaves[i] for i in wanted], has_aux=True)
        cotangents, grads = jax.vmap(back)(jnp.eye(out.size, dtype=out.dtype))
        derivatives = dict(zip(wanted, grads, strict=True))
        factors_of: list[Any] = []
        for index, entry in enumerate(arrays):
            if entry is None:
                factors_of.append(())
                continue
            pairs = [
                (inputs[s.number], jax.vmap(trial.uses[s.number].arrange)(cotangents[s.number]))
                for s in entry.sites
            ]
            if isinstance(entry, Factored):
                factors_of.append(pairs)
            elif entry.sites:
                parts = derivative(jnp.einsum, entry, pairs)
                factors_of.append(jnp.stack(parts, 1).reshape(out.size, -1))
            else:
                factors_of.append(derivatives[index].reshape(out.size, -1))
        return factors_of

    return jax.vmap(of_sample)(x)


def kernel_of(arrays: tuple[Any, ...], rates: Sequence[Any], one: Any, two: Any, of: Any) -> Any:
    """Return the kernel, (n1, output, n2, output), from factors; ``of``: jax.numpy or numpy."""
    einsum = partial(of.einsum, optimize=True)
    total: Any = 0.0
    for entry, rate, a, b in zip(arrays, rates, one, two, strict=True):
        if isinstance(entry, Factored):
            parts = [
                product_of_factors(einsum, s, t, left, right)
                for s, left in zip(entry.sites, a, strict=True)
                for t, right in zip(entry.sites, b, strict=True)
                if s.part == t.part
            ]
            total = total + sum(parts) * rate.reshape(())
        elif entry is not None:
            weighted = a if rate.size == 1 else a * rate.ravel()
            part = of.tensordot(weighted, b, (-1, -1))
            total = total + (part * rate.reshape(()) if rate.size == 1 else part)
    return total


@partial(jax.jit, static_argnums=0)
def compiled_kernel_of(arrays: tuple[Any, ...], rates: Sequence[Any], one: Any, two: Any) -> Any:
    """Return the same, compiled by JAX."""
    return kernel_of(arrays, rates, one, two, jnp)
