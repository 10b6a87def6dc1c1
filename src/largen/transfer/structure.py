"""The structure of models, and the correspondence between parts of a deep and a shallow one.

A model of any framework is a tree of named parts with the shapes of their weights. Parts with equal
names correspond; where a numbered sequence (a ``Sequential``, ``h_0, h_1, …``) has grown, shapes
tell the repeated blocks, and indices behind them are shifted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile

from largen.errors import InvalidInput

Shape = tuple[int, ...]
NUMBERED = re.compile(r"\d+(?=(_reverse)?$)")  # at the end of a name, as in bias_hh_l1_reverse


@dataclass(frozen=True)
class Part:
    """One part of a model: its kind, the weights it holds itself, and its own parts."""

    kind: str
    weights: Mapping[str, Shape] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)

    def all_weights(self, prefix: str = "") -> dict[str, Shape]:
        """Return every weight's shape by its full name."""
        found = {prefix + name: shape for name, shape in self.weights.items()}
        for name, part in self.parts.items():
            found |= part.all_weights(f"{prefix}{name}.")
        return found

    def signature(self) -> tuple:
        """Return the structure that all copies of one block share: its parts that hold weights."""
        inner = ((name, part.signature()) for name, part in self.parts.items())
        inside = tuple((name, own) for name, own in inner if own)
        return (self.kind, tuple(self.weights.items()), inside) if self.weights or inside else ()


@dataclass(frozen=True)
class Repetition:
    """A sequence that is longer in the deeper model."""

    # Path of the part that holds the sequence, with the common stem of its members' names.
    path: str
    unit: int  # the number of consecutive members in one repetition
    # shallow, deep: the numbers of repetitions in the two models.
    shallow: int
    deep: int
    first: int  # index of the shallow model's member at which the repetitions begin
    # The shallow model's blocks of the same kinds before the last repetition.
    early: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correspondence:
    """The part of the shallow model that corresponds to each part of the deep one."""

    parts: dict[str, str]  # names of parts and weights of the deep model → names in the shallow one
    repetitions: tuple[Repetition, ...]  # the sequences that grew
    blocks: tuple[str, ...]  # names of the deep model's repeated parts
    # Weights that stack the blocks in one array, along an axis that grew: name → axis.
    stacked: dict[str, int]

    def early_blocks(self) -> set[str]:
        """Return the shallow model's blocks before the last repetition.

        In the deep model they are at a smaller fraction of the depth. Blocks with other weights,
        such as a first block with a table of positions, count as well.
        """
        return {name for r in self.repetitions for name in r.early}

    def depth_ratio(self, shallow: Part, deep: Part) -> float:
        """Return L/L₀: repetitions counted over all sequences that grew."""
        if self.repetitions:
            after = sum(r.deep * r.unit for r in self.repetitions)
            return after / sum(r.shallow * r.unit for r in self.repetitions)
        if self.stacked:
            name, axis = next(iter(self.stacked.items()))
            return deep.all_weights()[name][axis] / shallow.all_weights()[self.parts[name]][axis]
        return 1.0


def names_in_first(*steps: Correspondence) -> dict[str, str]:
    """Return parts of the last of several models → their names in the first.

    ``steps``: the correspondences between each model and the next.
    """
    names = {path: path for path in steps[0].parts.values()}
    for step in steps:
        names = {path: names[source] for path, source in step.parts.items()}
    return names


def last_of_each(names: Mapping[str, str]) -> dict[str, str]:
    """Return names with the last one only, of several blocks that correspond to one."""
    last = {source: path for path, source in names.items()}
    return {path: source for source, path in last.items()}


def correspondence(shallow: Part, deep: Part) -> Correspondence:
    """Return the correspondence between two models of equal width."""
    parts: dict[str, str] = {}
    repetitions: list[Repetition] = []
    blocks: list[str] = []
    stacked: dict[str, int] = {}
    _match("", shallow, "", deep, parts, repetitions, blocks, stacked)
    return Correspondence(parts, tuple(repetitions), tuple(blocks), stacked)


def _match(a_path, a: Part, b_path, b: Part, parts, repetitions, blocks, stacked) -> None:
    parts[b_path] = a_path
    _match_weights(a_path, a, b_path, b, parts, repetitions, stacked)
    groups = _groups(a), _groups(b)
    for stem, members in groups[1].items():
        others = groups[0].get(stem) or groups[0].get(f"{stem.removesuffix('_')}.", [])
        pairs, repeated = _pairs(b_path, stem, a, others, b, members)
        for repetition, first in repeated:
            start = 0 if len(repeated) == 1 else repetition.first
            last = repetition.first + (repetition.shallow - 1) * repetition.unit
            unit = {_kind(a.parts[name]) for name in others[last : last + repetition.unit]}
            same = (name for name in others[start:last] if _kind(a.parts[name]) in unit)
            early = tuple(_join(a_path, name) for name in same)
            repetitions.append(replace(repetition, early=early))
            span = range(first, first + repetition.deep * repetition.unit)
            blocks.extend(_join(b_path, members[i]) for i in span)
        for theirs, ours in pairs:
            _match(
                _join(a_path, theirs), a.parts[theirs], _join(b_path, ours), b.parts[ours],
                parts, repetitions, blocks, stacked,
            )  # fmt: skip


def _match_weights(a_path, a: Part, b_path, b: Part, parts, repetitions, stacked) -> None:
    sources = {name: name for name in b.weights if name in a.weights}
    if set(a.weights) != set(b.weights):
        sources |= _numbered(a, b_path, b, repetitions)
    odd = sorted((set(b.weights) - set(sources)) | (set(a.weights) - set(sources.values())))
    if odd:
        raise InvalidInput(
            f"make_model: at {b_path or 'the root'} the weights {odd} exist at one depth only; "
            "blocks that repeat with depth must be parts of a sequence."
        )
    for name, shape in b.weights.items():
        was = a.weights[sources[name]]
        full = _join(b_path, name)
        parts[full] = _join(a_path, sources[name])
        grown = [i for i, (x, y) in enumerate(zip(was, shape, strict=False)) if x != y]
        if len(was) != len(shape) or len(grown) > 1:
            raise InvalidInput(
                f"make_model: the weight {full} has the shape {was} at one depth and {shape} at "
                "another; wanted at most one axis that grows with the depth."
            )
        if grown:
            stacked[full] = grown[0]


def _numbered(a: Part, b_path, b: Part, repetitions) -> dict[str, str]:
    """Return numbered weights of a part as a sequence: a ParameterList, layers of an nn.LSTM."""
    groups: tuple[dict[str, list[str]], ...] = ({}, {})
    alone = []
    for part, found in zip((a, b), groups, strict=True):
        for name in sorted((n for n in part.weights if NUMBERED.search(n)), key=_number):
            found.setdefault(NUMBERED.sub("", name, count=1), []).append(name)
        weights = {n: Part("", {"": shape}) for n, shape in part.weights.items()}
        alone.append(Part(part.kind, parts=weights))
    sources: dict[str, str] = {}
    longest: list[Repetition] = []
    for stem, members in groups[1].items():
        others = groups[0].get(stem, [])
        if others == members or not others:
            continue
        pairs, repeated = _pairs(b_path, f".{stem}", alone[0], others, alone[1], members)
        sources |= {name: source for source, name in pairs}
        longest += [r for r, _ in repeated]
    if longest:  # all are of the same layers
        most = max(longest, key=lambda r: r.shallow)
        repetitions.append(replace(most, path=_join(b_path, "…")))
    return sources


def _kind(part: Part) -> tuple:
    """Return what blocks of one kind have in common; for those without parts, their shapes."""
    return (part.kind,) if part.parts else part.signature()


def _pairs(path, stem, a: Part, others, b: Part, members):
    """Return pairs of members of a sequence, and the repetitions that extend it."""
    if len(others) == len(members):
        return list(zip(others, members, strict=True)), []
    was = [a.parts[name].signature() for name in others]
    now = [b.parts[name].signature() for name in members]
    extra, head = len(now) - len(was), _in_common(was, now)
    tail = _in_common(was[head:][::-1], now[::-1])
    if extra < 0 or head == 0 or head + tail < len(was):
        runs = _runs(was), _runs(now)
        if extra > 0 and [own for own, _ in runs[0]] == [own for own, _ in runs[1]]:
            return _in_runs(_join(path, stem + "…"), runs, others, members)
        raise InvalidInput(
            f"make_model: the sequence {_join(path, stem + '…')} has {len(was)} members at one "
            f"depth and {len(now)} at another, and no block of it is simply repeated; make a "
            "sequence of its own of each kind of block, or keep the depth fixed."
        )
    unit, first = _repetition(now, head, extra)
    copies_now = (head + extra - first) // unit
    repetition = Repetition(
        _join(path, stem + "…"), unit, (head - first) // unit, copies_now, first
    )
    sources = [*range(head), *(head - unit + i % unit for i in range(extra))]
    sources += range(head, len(was))
    pairs = [(others[source], name) for source, name in zip(sources, members, strict=True)]
    return pairs, [(repetition, first)]


def _in_common(one: list[tuple], two: list[tuple]) -> int:
    """Return the number of members with which both sequences begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def _runs(signatures: list[tuple]) -> list[tuple[tuple, int]]:
    """Return each stretch of equal members with its length."""
    return [(own, len(list(members))) for own, members in groupby(signatures)]


def _in_runs(path, runs, others, members):
    """Return the same for several stretches that have grown, as the stages of an EfficientNet."""
    pairs, repeated, a, b = [], [], 0, 0
    for (_, shallow), (_, deep) in zip(*runs, strict=True):
        pairs.extend((others[a + min(i, shallow - 1)], members[b + i]) for i in range(deep))
        if deep > shallow:
            repeated.append((Repetition(path, 1, shallow, deep, a), b))
        elif deep < shallow:
            raise InvalidInput(
                f"make_model: of the sequence {path} one stretch of equal members is longer, and "
                "another one shorter, in the deeper model."
            )
        a, b = a + shallow, b + deep
    return pairs, repeated


def _repetition(now: list[tuple], head: int, extra: int) -> tuple[int, int]:
    """Return the length of the repeated unit and where its first copy begins."""
    end = head + extra
    for unit in range(1, min(head, extra) + 1):
        if extra % unit:
            continue
        first = end
        while first - unit >= 0 and now[first - unit : first] == now[end - unit : end]:
            first -= unit
        if first + unit <= head:
            return unit, first
    raise InvalidInput(
        "make_model: what a larger depth adds is no repetition of blocks that were there before; "
        "take a base that has every kind of block, and depths that are multiples of its period."
    )


def _groups(part: Part) -> dict[str, list[str]]:
    """Return the names of a sequence's parts by stem: ``block, block_1`` is one, as in Haiku."""
    groups: dict[str, list[str]] = {}
    for name in part.parts:
        stem = re.sub(r"\d+$", "", name)
        groups.setdefault(stem if stem != name else f"{name}.", []).append(name)
    for name in part.parts:
        if f"{name}_" in groups and f"{name}_0" not in part.parts:
            groups[f"{name}_"].extend(groups.pop(f"{name}."))
    for stem, members in groups.items():
        if not stem.endswith("."):
            members.sort(key=_number)
    return groups


def _number(name: str) -> int:
    number = NUMBERED.search(name)
    return int(number.group()) if number else 0


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
