"""Copies of a block, whose weights get equal corrections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from largen.transfer.corrections import Correction
from largen.transfer.plan_entries import ScaledWeight


def equal_copies(weights: Iterable[ScaledWeight]) -> dict[str, str]:
    """Return the weights of blocks that occur several times → their names without numbers.

    Blocks are equal if they are members of one sequence, with the same weights of the same shapes
    and roles, one of which is a part's.
    """
    blocks: dict[tuple[str, str], list[tuple[str, ScaledWeight]]] = {}
    for weight in weights:
        parts = weight.name.split(".")
        for i, part in enumerate(parts[:-1]):
            if part.isdigit():
                place = ".".join(parts[:i]), part
                blocks.setdefault(place, []).append((".".join(parts[i + 1 :]), weight))
    kinds: dict[tuple, list[list[tuple[str, ScaledWeight]]]] = {}
    for (sequence, _), own in blocks.items():
        if any("." in name for name, _ in own):
            kind = frozenset((name, w.base_shape, w.role) for name, w in own)
            kinds.setdefault((sequence, kind), []).append(own)
    found: dict[str, str] = {}
    for (sequence, _), members in kinds.items():
        if len(members) == 1:
            continue
        first = members[0][0][1].name  # of blocks that differ in one sequence, each has its own
        for block in members:
            for name, weight in block:
                # Of blocks in blocks the outer sequence comes first.
                found.setdefault(weight.name, f"{sequence}.{first}.*.{name}")
    return found


def of_all_copies(found: Sequence[Correction], copies: Mapping[str, str]) -> list[Correction]:
    """Give the copies of a block the mean of the powers found for some of them."""
    equal: dict[str, list[str]] = {}
    for name, shared in copies.items():
        equal.setdefault(shared, []).append(name)
    powers: dict[tuple[str, str], list[float]] = {}
    for each in found:
        powers.setdefault((each.what, copies.get(each.where, each.where)), []).append(each.power)
    changed: dict[tuple[str, str], Correction] = {}
    for each in found:
        shared = copies.get(each.where, each.where)
        own = powers[each.what, shared]
        power = round(2 * sum(own) / len(own)) / 2
        for name in equal.get(shared, [each.where]):
            changed.setdefault((each.what, name), replace(each, where=name, power=power))
    return [each for each in changed.values() if each.power]
