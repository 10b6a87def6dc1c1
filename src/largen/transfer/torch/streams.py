"""Residual sums of a recorded forward pass, and the residual streams to which they add.

A sum is residual if one of its terms, the branch, is computed with weights from the other, the
trunk: x + f(x). Trunks connect sums to streams, so that the depth can be counted in residual sums,
independently of the definition of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.walks import NORMS, PRODUCTS, Walk, end_at, through_views, walk

SUMS = frozenset({"add"})


@dataclass(frozen=True)
class Sum:
    """One residual sum."""

    # node, trunk, branch: indices of the nodes of the sum and of its terms.
    node: int
    trunk: int
    branch: int
    source: int  # the tensor, up to views, from which the branch is computed
    walk: Walk  # from the branch to the weights to which it is proportional
    stream: int = 0  # index of the stream to which the sum adds
    post_norm: bool = False  # whether a norm lies between the sum before and this one's trunk

    def between(self, record: Record) -> Iterator[Node]:
        """Yield the nodes that lie in the branch."""
        above = record.ancestors[self.branch] | 1 << self.branch
        for node in record.nodes[self.source + 1 : self.branch + 1]:
            if above >> node.index & 1 and record.before(self.source, node.index):
                yield node


def residual_sums(record: Record) -> list[Sum]:
    """Return every residual sum, in the order of the forward pass."""
    found: dict[int, tuple[int, int, int]] = {}
    candidates = []
    for node in record.nodes:
        terms = _terms(record, node)
        if terms is None:
            continue
        for trunk, branch in (terms, terms[::-1]):
            source = _source(record, trunk, branch, found)
            if source is not None:
                found[node.index] = (trunk, branch, source)
                break
        else:
            candidates.append((node.index, terms))
    if found:
        _add_affine_trunks(record, candidates, found)
    else:
        _add_trunks_with_gains(record, candidates, found)
    return _in_streams(record, found)


def _terms(record: Record, node: Node) -> tuple[int, int] | None:
    if node.op not in SUMS or len(node.inputs) != 2 or not node.is_data:
        return None
    a, b = (record.nodes[i] for i in node.inputs)
    same = a.shape == b.shape == node.shape and a.index != b.index
    return (a.index, b.index) if same and a.is_data and b.is_data and node.shape else None


def _source(record: Record, trunk: int, branch: int, found: dict) -> int | None:
    """Return the tensor on the trunk from which a branch is computed with weights."""
    source = through_views(record, trunk)
    while True:
        if record.before(source, branch) and _passes_a_weight(record, source, branch):
            return source
        if source not in found:
            return None
        source = through_views(record, found[source][0])  # the trunk of the preceding sum


def _passes_a_weight(record: Record, early: int, late: int) -> bool:
    above = record.ancestors[late] | 1 << late
    return any(
        above >> node.index & 1
        and node.op in PRODUCTS
        and record.before(early, node.index)
        and record.weights(node)
        for node in record.nodes[early + 1 : late + 1]
    )


def _add_affine_trunks(record: Record, candidates: list, found: dict) -> None:
    """Add sums on a known stream whose trunk is an affine map, as in the first blocks of ResNets.

    Exactly one term is affine in a signal from which the other is computed, too.
    """
    on_spine: set[int] = set()
    for trunk, _, _ in found.values():
        on_spine.update(_spine(record, trunk, found))

    def source(trunk: int, branch: int) -> int | None:
        both = _affine_source(record, branch, trunk) is not None
        return None if both else _affine_source(record, trunk, branch)

    _add_on_spine(record, candidates, found, on_spine, source)


def _add_trunks_with_gains(record: Record, candidates: list, found: dict) -> None:
    """Add sums whose trunk has a gain and a bias, on the stream that the output is computed from.

    All sums of a model are of this kind, g ⊙ (x + b) + f(x), or none is: within a block it may be
    no residual sum, such as y + D ⊙ u of a state-space layer.
    """
    on_spine = set() if record.output is None else set(_spine(record, record.output, {}))

    def source(trunk: int, branch: int) -> int | None:
        place = _through_gains(record, trunk)
        computed = record.before(place, branch) and _passes_a_weight(record, place, branch)
        return place if computed else None

    _add_on_spine(record, candidates, found, on_spine, source)


def _add_on_spine(
    record: Record,
    candidates: list,
    found: dict,
    on_spine: set[int],
    # The tensor on a trunk from which a branch is computed; None if it is no residual sum.
    source: Callable[[int, int], int | None],
) -> None:
    """Add the candidates that lie on a stream, from the last one back, and the stream before."""
    for place, terms in reversed(candidates):
        if place not in on_spine:
            continue
        for trunk, branch in (terms, terms[::-1]):
            begin = source(trunk, branch)
            if begin is not None:
                found[place] = (trunk, branch, begin)
                on_spine.update(_spine(record, trunk, found))
                break


def _through_gains(record: Record, place: int) -> int:
    """Return the tensor upstream of views, gains and biases."""
    while True:
        place = through_views(record, place)
        node = record.nodes[place]
        data = record.signals(node)
        if node.op not in SUMS | {"mul"} or len(data) != 1 or len(record.weights(node)) != 1:
            return place
        place = data[0]


def _affine_source(record: Record, place: int, other: int) -> int | None:
    """Return the signal in which a term is affine and from which the other one is computed."""
    while True:
        node = record.nodes[place]
        data = record.signals(node)
        affine = len(data) == 1 and (
            bool(walk(record, place).ends.keys() != {place}) or end_at(record, node).weights
        )
        if not affine:
            return None
        place = data[0]
        if record.before(place, other) and record.nodes[place].of_weights:
            return place


def _spine(record: Record, place: int, found: dict) -> Iterator[int]:
    """Yield the nodes upstream of a trunk, through residual sums and operations of one signal."""
    while True:
        yield place
        if place in found:
            place = found[place][0]
            continue
        node = record.nodes[place]
        data = list(dict.fromkeys(record.signals(node)))
        if len(data) > 1:
            data = _joint(record, data)
        if len(data) != 1:
            return
        place = data[0]


def _joint(record: Record, data: list[int]) -> list[int]:
    """Return the one signal of which all of these are parts or statistics."""
    last = max(data)
    for first in sorted(data, reverse=True):
        if all(first == i or record.before(first, i) for i in data):
            return [first]  # x · rsqrt(mean x²): from x
    roots = {through_views(record, i) for i in data}
    return [roots.pop()] if len(roots) == 1 and last not in roots else []


def _in_streams(record: Record, found: dict) -> list[Sum]:
    streams: dict[int, int] = {}
    sums = []
    for place in sorted(found):
        trunk, branch, source = found[place]
        stream, normed = None, False
        for before in _spine(record, trunk, {}):
            if before in streams:
                stream = streams[before]
                break
            normed = normed or _is_norm(record, before)
        streams[place] = len(set(streams.values())) if stream is None else stream
        post = normed and stream is not None
        sums.append(Sum(place, trunk, branch, source, walk(record, branch), streams[place], post))
    return sums


def _is_norm(record: Record, place: int) -> bool:
    node = record.nodes[place]
    if node.op in NORMS:
        return not node.op.count("batch")
    return node.op == "rsqrt"


def inner_sums(record: Record, sums: Sequence[Sum]) -> dict[int, list[int]]:
    """Return the sums whose branch has others inside → these, by their numbers."""
    found = {}
    for i, own in enumerate(sums):
        places = {node.index for node in own.between(record)}
        inner = [j for j, other in enumerate(sums) if j != i and other.node in places]
        if inner:
            found[i] = inner
    return found


def once_each(
    base: Record, sums: list[Sum], deep: Record, deep_sums: list[Sum]
) -> tuple[list[Sum], list[Sum], list[Sum]]:
    """Return the sums that add up with the depth, those of the deeper model, and those around them.

    Of a block inside the branch of another sum, as in h + g·(block(h) − h), one sum of both adds up
    over the blocks: the outer one, or if nothing multiplies its branch, which is 0 without the
    inner ones, these. The third list has the outer sums that are left out. Nothing is left out
    where more sums are inside in the deeper model, as those of a U-net are.
    """
    all_sums = sums, deep_sums
    inside = [inner_sums(base, sums), inner_sums(deep, deep_sums)]
    counts = [{len(inner) for inner in own.values()} for own in inside]
    if not inside[0] or counts[0] != counts[1] or len(inside[0]) >= len(inside[1]):
        return sums, deep_sums, []
    inner_adds = not all(_has_own_ends(base, sums[i]) for i in inside[0]) and all(
        _is_zero_without(base, sums, i, inner) for i, inner in inside[0].items()
    )
    if not inner_adds:
        kept = [
            _without(own, chain(*found.values()))
            for own, found in zip(all_sums, inside, strict=True)
        ]
        return kept[0], kept[1], []
    kept = []
    for own, found in zip(all_sums, inside, strict=True):
        streams = {j: own[i].stream for i, inner in found.items() for j in inner}
        moved = [replace(s, stream=streams.get(j, s.stream)) for j, s in enumerate(own)]
        kept.append(_without(moved, found))
    return kept[0], kept[1], [sums[i] for i in inside[0]]


def _without(sums: Sequence[Sum], left_out: Iterable[int]) -> list[Sum]:
    numbers = set(left_out)
    return [own for i, own in enumerate(sums) if i not in numbers]


def _has_own_ends(record: Record, own: Sum) -> bool:
    """Whether weights of the branch itself multiply it."""
    places = {node.index for node in own.between(record)}
    return own.walk.takes_a_factor and set(own.walk.ends) <= places


def _is_zero_without(record: Record, sums: Sequence[Sum], i: int, inner: Sequence[int]) -> bool:
    """Whether a branch has the difference of what inner sums make and the trunk of the outer."""
    ends = {sums[j].node for j in inner}
    trunk = {sums[i].source, through_views(record, sums[i].trunk)}
    for node in sums[i].between(record):
        sides = {through_views(record, j) for j in record.signals(node)}
        if node.op in ("sub", "rsub") and sides & ends and sides & trunk:
            return True
    return False
