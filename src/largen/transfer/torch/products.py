"""Products of two signals that are summed over an axis that grows, besides softmaxes and read-outs.

Scores of attention that no softmax reads (those of a sigmoid, of linear attention, of retention),
what is read from a memory of keys and values, q·(Σ k vᵀ), and numbers made of two vectors of
weights, such as exp(λ_q·λ_k): once training has aligned the two sides, the sum has as many terms of
one sign as the axis has entries, so that its factor is to be 1/d as that of attention logits is.

Products of one signal with itself are parts of norms. A product with a matrix that a layer makes
from the inputs acts like a layer: see :mod:`largen.transfer.repair`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isclose, log

from largen.transfer.torch.logits import BATCHED, Logits, Product, users
from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.walks import (
    MULTIPLIES,
    NORMS,
    PRODUCTS,
    VIEWS,
    constant_factor,
    through_views,
    walk,
)

CONTRACTIONS = BATCHED | {"mv", "dot"}
# Operations behind a product that keep its scores apart, as masks do.
MASKS = frozenset({"where", "masked_fill", "tril", "triu"})
SAME = 1e-3  # relative distance below which lengths are equal


@dataclass(frozen=True)
class Scores:
    """Products of two signals, or of two weights, with a common side."""

    base: Logits
    wide: Logits
    built: Fraction | None  # the power of d that they have beyond the sum; None if they differ
    of_weights: bool = False  # whether both sides are weights


@dataclass(frozen=True)
class _Sum:
    """One sum over a growing axis, in the base and in the wider model."""

    small: Product
    large: Product
    power: Fraction  # of the number of terms, beyond the sum
    seen: tuple[int, ...]  # nodes whose constant factors are counted in it
    of_weights: bool

    @property
    def grown(self) -> float:
        """The ratio of the numbers of terms."""
        return self.large.head / self.small.head


def grown_scores(base: Record, wide: Record, known: Collection[int] = ()) -> list[Scores]:
    """Return the products that a plan has to multiply; ``known``: nodes that have their factor."""
    if len(base.nodes) != len(wide.nodes) or base.output is None:
        return []
    consumers = users(base)
    sums = [
        found
        for node in base.nodes
        if node.index not in known and base.before(node.index, base.output)
        for found in _sums(base, wide, node, consumers)
        if found.small.node not in known
    ]
    return [_scores(group) for group in _with_common_sides(base, sums)]


def _scores(group: list[_Sum]) -> Scores:
    powers = {own.power for own in group}
    seen = tuple(sorted({i for own in group for i in own.seen}))
    small, large = (
        Logits(products[0].node, tuple(products), None, seen)
        for products in ([own.small for own in group], [own.large for own in group])
    )
    return Scores(small, large, powers.pop() if len(powers) == 1 else None, group[0].of_weights)


def _sums(
    base: Record, wide: Record, node: Node, consumers: dict[int, list[int]]
) -> Iterator[_Sum]:
    """Yield the sum over a growing axis that a node computes, if it computes one."""
    place = _product_of(base, node)
    if place is None:
        return
    product, behind = base.nodes[place], wide.nodes[node.index]
    sides = product.inputs[-2:]
    terms = [_terms(r, n) for r, n in ((base, node), (wide, behind))]
    of_weights = all(base.nodes[i].is_weight for i in sides)
    signals = all(base.nodes[i].is_data and base.nodes[i].of_weights for i in sides)
    if terms[0] == terms[1] or not (signals or of_weights):
        return
    if place != node.index and through_views(base, sides[0]) == through_views(base, sides[1]):
        return
    if of_weights and (node.shape != behind.shape or node.op not in ("sum", "dot")):
        return  # a weight that is a product of two, or a layer of weights
    if signals and _acts_as_a_layer(base, wide, sides):
        return
    grown = log(terms[1] / terms[0])
    power, seen = _constants_behind(base, wide, node.index, consumers)
    for side in sides:
        more, nodes = _size_of(base, wide, side)
        power, seen = power + more, seen | nodes
    exponent = Fraction(round(4 * power / grown), 4)
    small, large = (Product(place, sides[0], sides[1], 1.0, count) for count in terms)
    yield _Sum(small, large, exponent, tuple(seen), of_weights)


def _product_of(record: Record, node: Node) -> int | None:
    """Return the product that a node sums up: its own of two matrices, or one entry by entry."""
    if node.op in CONTRACTIONS:
        return node.index
    if node.op != "sum" or not node.inputs:
        return None
    place = node.inputs[0]
    while record.nodes[place].op in VIEWS and len(record.nodes[place].inputs) == 1:
        place = record.nodes[place].inputs[0]
    inner = record.nodes[place]
    return place if inner.op == "mul" and len(inner.inputs) == 2 else None


def _terms(record: Record, node: Node) -> int:
    """Return the number of terms of each entry of a sum."""
    if node.op == "sum":
        return record.nodes[node.inputs[0]].value.numel() // max(1, node.value.numel())
    return record.nodes[node.inputs[-2]].shape[-1]


def _acts_as_a_layer(base: Record, wide: Record, sides: tuple[int, ...]) -> bool:
    """Whether one side is a matrix that a layer makes: it grows more than the other side."""

    def grown(place: int) -> float:
        return wide.nodes[place].value.numel() / base.nodes[place].value.numel()

    small, large = sorted(sides, key=grown)
    if grown(small) == 1.0:
        return True  # one number for all terms
    if isclose(grown(small), grown(large)):
        return False
    made = (end for end in walk(base, large).ends.values() if end.kind != "other")
    return any(isclose(grown(end.node), grown(large)) for end in made)


def _constants_behind(
    base: Record, wide: Record, place: int, consumers: dict[int, list[int]]
) -> tuple[float, set[int]]:
    """Return the logarithm of the ratio of constants that multiply scores, and their nodes."""
    ratio, seen = 0.0, {place}
    while True:
        onward = [base.nodes[i] for i in consumers.get(place, ())]
        onward = [n for n in onward if n.op in MULTIPLIES | VIEWS | MASKS]
        if len(onward) != 1 or len(base.signals(onward[0])) > 1:
            return ratio, seen
        place = onward[0].index
        seen.add(place)
        ratio += _ratio_at(base, wide, place)


def _size_of(base: Record, wide: Record, side: int) -> tuple[float, set[int]]:
    """Return the logarithm of the ratio of the sizes of entries, and the nodes that set it.

    Signals behind layers and norms have entries of order one; constant factors after these, lengths
    of 1 and sums of 1 make them smaller.
    """
    small, large = base.nodes[side], wide.nodes[side]
    for order, power in ((1, 1.0), (2, 0.5)):
        ratio = _norm_is_fixed(small, large, order)
        if ratio:
            return -power * log(ratio), set()
    total, seen, stack = 0.0, set[int](), [side]
    while stack:
        place = stack.pop()
        node = base.nodes[place]
        if place in seen or not node.of_weights or node.parameter is not None:
            continue
        if node.op in NORMS or (node.op in PRODUCTS and base.weights(node)):
            continue
        seen.add(place)
        total += _ratio_at(base, wide, place)
        stack += node.inputs
    return total, seen


def _norm_is_fixed(small: Node, large: Node, order: int) -> float:
    """Return the ratio of the lengths of an axis along which all vectors have one norm; else 0."""
    for axis, (before, after) in enumerate(zip(small.shape, large.shape, strict=True)):
        if before == after:
            continue
        values = [n.value.detach().double() for n in (small, large)]
        norms = [value.norm(p=order, dim=axis).flatten() for value in values]
        least = min(float(own.min()) for own in norms)
        most = max(float(own.max()) for own in norms)
        if most > 0 and most - least < SAME * most:
            return after / before
    return 0.0


def _ratio_at(base: Record, wide: Record, place: int) -> float:
    was, now = (constant_factor(r, r.nodes[place]) for r in (base, wide))
    return log(abs(now / was)) if was and now else 0.0


def _with_common_sides(record: Record, sums: list[_Sum]) -> list[list[_Sum]]:
    """Return the sums in groups whose members have a side in common."""
    groups: list[tuple[set[int], list[_Sum]]] = []
    for own in sums:
        sides = {_origin(record, i) for i in (own.small.queries, own.small.keys)}
        joined = [group for group in groups if group[0] & sides]
        members = [member for group in joined for member in group[1]]
        groups = [group for group in groups if group not in joined]
        groups.append((sides.union(*(group[0] for group in joined)), [*members, own]))
    return [sorted(members, key=lambda own: own.small.node) for _, members in groups]


def _origin(record: Record, place: int) -> int:
    """Return the tensor upstream of views and constant factors, of weights as well."""
    while True:
        node = record.nodes[place]
        passes = node.op in VIEWS or (node.op in MULTIPLIES and len(node.inputs) == 1)
        if not passes or node.parameter is not None:
            return place
        place = node.inputs[0]
