"""The tangent kernel from the affine maps of a function, without its Jacobian where that is slow.

A parameter array W that is used in affine maps alone has the derivative ∂f_o/∂W = Σ_t a_t ⊗ δ_ot,
with the inputs a and the cotangents δ of these maps at positions t. Its part of the kernel is

    Σ_{t, t'} (a_t · a'_t') (δ_ot · δ'_pt'),

summed over pairs of uses, which for one position is a product of two small kernels. With many
positions, the derivative itself can be cheaper. Which one is, follows from the shapes. Arrays that
are used in any other way contribute by their derivatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largen.networks.tangents.affine_uses import Labels, Pass, Use


class Site(NamedTuple):
    """One use of a parameter array: its number among all uses, and labels of its factors."""

    number: int
    of_input: Labels
    of_output: Labels


class Factored(NamedTuple):
    """A parameter array whose part of the kernel comes from products of factors."""

    sites: tuple[Site, ...]


class Derived(NamedTuple):
    """A parameter array whose derivative is formed, from factors if it has any."""

    sites: tuple[Site, ...]
    labels: Labels


class Plan(NamedTuple):
    """How each parameter array contributes, and what that takes.

    Attributes
    ----------
    arrays
        An entry for each array; None for one that is not used.
    per_sample, per_pair
        Numbers that are held at a time, for each sample of a tile and each pair of samples.
    factors
        Numbers that are kept of a sample.
    outputs
        The number of outputs of a sample.
    """

    arrays: tuple[Factored | Derived | None, ...]
    per_sample: int
    per_pair: int
    factors: int
    outputs: int


def plan_of(
    f: Any,
    params: Any,
    x: Any,
    samples: tuple[int, int],
    *,
    factored: bool,
    by_entry: frozenset[int] = frozenset(),
) -> Plan:
    """Return how to compute the kernel of a number of samples with another number.

    Parameters
    ----------
    f, params, x
        The function and its arguments, or their shapes.
    samples
        The numbers of samples, on which it depends what is cheapest.
    factored
        Whether to use factors at all; otherwise all derivatives are formed by JAX.
    by_entry
        Indices of arrays whose entries have different rates, of which derivatives are formed.
    """
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
            sizes = _sizes(used, shapes)
            sites = tuple(Site(n, use.of_input, use.of_output) for n, use in used)
            of_positions = [shapes[n][0] for n, _ in used]
            products, numbers = _cost_of_products(sites, of_positions, sizes, outputs)
            derived = outputs * leaf.size
            forming = sum(of_positions) * derived * sum(samples)
            if products * prod(samples) <= forming + derived * outputs * prod(samples):
                arrays.append(Factored(sites))
                pairs += numbers
                kept += sum(
                    t * (_size(s.of_input, sizes) + outputs * _size(s.of_output, sizes))
                    for s, t in zip(sites, of_positions, strict=True)
                )
            else:
                arrays.append(Derived(sites, tuple(sizes)))
                kept += derived
    return Plan(tuple(arrays), held + 2 * kept, pairs, kept, outputs)


def _sizes(used: Sequence[tuple[int, Use]], shapes: Sequence[Any]) -> dict[Any, int]:
    """Return the size of each labelled axis of a parameter array."""
    sizes: dict[Any, int] = {}
    for number, use in used:
        cotangent = jax.ShapeDtypeStruct(use.shape, use.dtype)
        sizes.update(zip(use.of_input, shapes[number][1:], strict=True))
        arranged = jax.eval_shape(use.arrange, cotangent)
        sizes.update(zip(use.of_output, arranged.shape[1:], strict=True))
    return sizes


def _size(labels: Labels, sizes: dict[Any, int]) -> int:
    return prod(sizes[label] for label in labels)


def _pairing(one: Site, two: Site) -> bool:
    """Whether inputs go with inputs: an array and its transpose share those with outputs."""
    return len({*one.of_input} & {*two.of_input}) + len({*one.of_output} & {*two.of_output}) >= len(
        {*one.of_input} & {*two.of_output}
    ) + len({*one.of_output} & {*two.of_input})


def _cost_of_products(sites, positions, sizes, outputs) -> tuple[int, int]:
    """Return the multiplications of a pair of samples, and the numbers that these hold."""
    operations = numbers = 0
    for one, t in zip(sites, positions, strict=True):
        for two, s in zip(sites, positions, strict=True):
            if _pairing(one, two):
                pairs = (one.of_input, two.of_input, 1), (one.of_output, two.of_output, outputs**2)
            else:
                pairs = (
                    (one.of_input, two.of_output, outputs),
                    (one.of_output, two.of_input, outputs),
                )
            shared = {*one.of_input} & {*one.of_output} | {*two.of_input} & {*two.of_output}
            for a, b, times in pairs:
                labels = {*a, *b}
                operations += t * s * times * _size(tuple(labels), sizes)
                left = ({*a} ^ {*b}) | (labels & shared)
                numbers += t * s * times * _size(tuple(left), sizes)
            operations += t * s * outputs**2 * _size(tuple(shared), sizes)
    return operations, numbers


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
        found: list[Any] = []
        for index, entry in enumerate(arrays):
            if entry is None:
                found.append(())
                continue
            pairs = [
                (inputs[s.number], jax.vmap(trial.uses[s.number].arrange)(cotangents[s.number]))
                for s in entry.sites
            ]
            if isinstance(entry, Factored):
                found.append(pairs)
            elif entry.sites:
                found.append(_derivative(entry, pairs))
            else:
                found.append(derivatives[index].reshape(out.size, -1))
        return found

    return jax.vmap(of_sample)(x)


def _derivative(entry: Derived, pairs) -> Any:
    """Return Σ_t a_t ⊗ δ_ot, (output, entry), summed over uses."""
    names = {label: 3 + i for i, label in enumerate(entry.labels)}
    parts = [
        jnp.einsum(
            a, [0, *(names[label] for label in site.of_input)],
            d, [1, 0, *(names[label] for label in site.of_output)],
            [1, *names.values()],
        )
        for site, (a, d) in zip(entry.sites, pairs, strict=True)
    ]  # fmt: skip
    return sum(part.reshape(len(part), -1) for part in parts)


@partial(jax.jit, static_argnums=0)
def kernel_of(arrays: tuple[Any, ...], rates: Sequence[Any], one: Any, two: Any) -> Any:
    """Return the kernel between two sets of samples, (n1, output, n2, output), from factors."""
    total: Any = 0.0
    for entry, rate, a, b in zip(arrays, rates, one, two, strict=True):
        if isinstance(entry, Factored):
            parts = [
                _product_of_factors(s, t, left, right)
                for s, left in zip(entry.sites, a, strict=True)
                for t, right in zip(entry.sites, b, strict=True)
            ]
            total = total + sum(parts) * rate.reshape(())
        elif entry is not None:
            weighted = a if rate.size == 1 else a * rate.ravel()
            part = jnp.tensordot(weighted, b, (-1, -1))
            total = total + (part * rate.reshape(()) if rate.size == 1 else part)
    return total


# Numbers of the axes of factors in einsum: samples, outputs and positions of both sides.
_N, _O, _T, _M, _P, _S = range(6)


def _product_of_factors(one: Site, two: Site, left, right) -> Any:
    """Return Σ_{t, t'} of products of two uses' derivatives, (n1, output, n2, output)."""
    labels = {label: 6 + i for i, label in enumerate(_all_labels((one, two)))}
    a = left[0], [_N, _T, *(labels[label] for label in one.of_input)]
    d = left[1], [_N, _O, _T, *(labels[label] for label in one.of_output)]
    a2 = right[0], [_M, _S, *(labels[label] for label in two.of_input)]
    d2 = right[1], [_M, _P, _S, *(labels[label] for label in two.of_output)]
    pairs = ((a, a2), (d, d2)) if _pairing(one, two) else ((a, d2), (d, a2))
    shared = {*one.of_input} & {*one.of_output} | {*two.of_input} & {*two.of_output}
    kept = {_N, _M, _O, _P, _T, _S} | {labels[label] for label in shared}
    halves = []
    for first, second in pairs:
        axes = {*first[1], *second[1]}
        # Labels in one factor only are summed with the other half.
        apart = {*first[1]} ^ {*second[1]}
        out = sorted((axes & kept) | apart)
        halves.append((jnp.einsum(*first, *second, out), out))
    return jnp.einsum(*halves[0], *halves[1], [_N, _O, _M, _P])


def _all_labels(sites: Sequence[Site]) -> Iterator[Any]:
    return iter(dict.fromkeys(label for s in sites for label in (*s.of_input, *s.of_output)))
