"""Products of derivatives from the factors of affine maps; for any library with an ``einsum``.

A parameter array W that is used in affine maps alone has the derivative ∂f_o/∂W = Σ_t a_t ⊗ δ_ot,
with the inputs a and the cotangents δ of these maps at positions t. Its part of the kernel is

    Σ_{t, t'} (a_t · a'_t') (δ_ot · δ'_pt'),

summed over pairs of uses, which for one position is a product of two small kernels. With many
positions, the derivative itself can be cheaper. Which one is, follows from the shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

Labels = tuple[Hashable, ...]
Sizes = Mapping[Hashable, int]
Einsum = Callable[..., Any]


class Site(NamedTuple):
    """One use of a parameter array: its number among all uses, and labels of its factors."""

    number: int
    of_input: Labels
    of_output: Labels
    part: Hashable = None  # of an array that is a stack; derivatives by different parts are apart


class Factored(NamedTuple):
    """A parameter array whose part of the kernel comes from products of factors."""

    sites: tuple[Site, ...]


class Derived(NamedTuple):
    """A parameter array whose derivative is formed, from factors if it has any."""

    sites: tuple[Site, ...]
    labels: Labels


def way_of(
    sites: Sequence[Site],  # its uses
    positions: Sequence[int],
    sizes: Sizes,  # the size of each labelled axis of the array
    # outputs, samples: numbers of outputs of a sample, and of samples on both sides.
    outputs: int,
    samples: tuple[int, int],
) -> Factored | Derived:
    """Return the cheaper way of an array."""
    pairs, of_part = prod(samples), outputs * prod(sizes.values())
    forming = sum(positions) * of_part * sum(samples)
    derived = of_part * len({site.part for site in sites})
    products, _ = cost_of_products(sites, positions, sizes, outputs)
    if products * pairs <= forming + derived * outputs * pairs:
        return Factored(tuple(sites))
    return Derived(tuple(sites), tuple(sizes))


def numbers_kept(way: Factored | Derived, positions: Sequence[int], sizes: Sizes, outputs: int):
    """Return how many numbers are kept of a sample."""
    if isinstance(way, Derived):
        return outputs * prod(sizes.values()) * len({site.part for site in way.sites})
    return sum(
        t * (_size(site.of_input, sizes) + outputs * _size(site.of_output, sizes))
        for site, t in zip(way.sites, positions, strict=True)
    )


def _size(labels: Labels, sizes: Sizes) -> int:
    return prod(sizes[label] for label in labels)


def _pairing(one: Site, two: Site) -> bool:
    """Whether inputs go with inputs: an array and its transpose share those with outputs."""
    return len({*one.of_input} & {*two.of_input}) + len({*one.of_output} & {*two.of_output}) >= len(
        {*one.of_input} & {*two.of_output}
    ) + len({*one.of_output} & {*two.of_input})


def cost_of_products(sites, positions, sizes, outputs) -> tuple[int, int]:
    """Return the multiplications of a pair of samples, and the numbers that these hold."""
    operations = numbers = 0
    for one, t in zip(sites, positions, strict=True):
        for two, s in zip(sites, positions, strict=True):
            if one.part != two.part:
                continue
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


def derivative(einsum: Einsum, entry: Derived, pairs: Any) -> list[Any]:
    """Return Σ_t a_t ⊗ δ_ot for each part of an array.

    Each is (output, ...), with the axes in order of their labels.
    """
    names = {label: 3 + i for i, label in enumerate(entry.labels)}
    parts: dict[Hashable, Any] = {}
    for site, (a, d) in zip(entry.sites, pairs, strict=True):
        made = einsum(
            a, [0, *(names[label] for label in site.of_input)],
            d, [1, 0, *(names[label] for label in site.of_output)],
            [1, *names.values()],
        )  # fmt: skip
        parts[site.part] = parts[site.part] + made if site.part in parts else made
    return list(parts.values())


# Numbers of the axes of factors in einsum: samples, outputs and positions of both sides.
_N, _O, _T, _M, _P, _S = range(6)


def product_of_factors(einsum: Einsum, one: Site, two: Site, left: Any, right: Any) -> Any:
    """Return Σ_{t, t'} of products of two uses' derivatives, (n1, output, n2, output)."""
    names = (*one.of_input, *one.of_output, *two.of_input, *two.of_output)
    labels = {label: 6 + i for i, label in enumerate(dict.fromkeys(names))}
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
        halves.append((einsum(*first, *second, out), out))
    return einsum(*halves[0], *halves[1], [_N, _O, _M, _P])
