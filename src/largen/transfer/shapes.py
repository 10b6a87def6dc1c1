"""The shapes at which a builder is called to find the axes that grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from largen.errors import InvalidInput, instance_of
from largen.scalars import integer
from largen.text import shown


@dataclass(frozen=True)
class Shapes:
    """The builder's arguments for each model that is compared."""

    # base, target: the user's two shapes.
    base: dict[str, int]
    target: dict[str, int]
    # wide, deep: a wider base, and a deeper base (None without a depth).
    wide: dict[str, int]
    deep: dict[str, int] | None
    tall: dict[str, int]  # the shape with the base's width and the target's depth
    # The shape with the base's width, and the target's depth and number of experts.
    crowded: dict[str, int]
    mixed: dict[str, int] | None = None  # a base with more experts (None without experts)

    @property
    def widening(self) -> float:
        """The largest ratio of a size of the wider base to the base's."""
        return max(self.wide[key] / size for key, size in self.base.items())

    def more(self, experts: str) -> float:
        """Return the ratio of the target's number of experts, by the name of it, to the base's."""
        return self.crowded.get(experts, 1) / self.tall.get(experts, 1)

    def by_name(self) -> dict[str, dict[str, int]]:
        """Return the shapes that are not None, by their attribute names."""
        shapes = {"base": self.base, "wide": self.wide, "tall": self.tall, "target": self.target}
        if self.crowded != self.tall:
            shapes["crowded"] = self.crowded
        return shapes if self.deep is None else {**shapes, "deep": self.deep}


def shapes(
    base: Mapping[str, Any],
    target: Mapping[str, Any],
    depth: str,
    delta: Mapping[str, Any] | None = None,
    experts: str | None = None,
) -> Shapes:
    """Return the shapes to be compared, from the user's shapes.

    Examples
    --------
    >>> shapes({"width": 8, "depth": 2}, {"width": 64, "depth": 2}, "depth").wide
    {'width': 16, 'depth': 2}
    """
    instance_of("depth", depth, str, "the name of the depth among the keys of base")
    if experts is not None:
        instance_of("experts", experts, str, "the name of the number of experts among base's keys")
    base, target = _sizes("base", base), _sizes("target", target, like=base)
    _at_least(base, target, depth, "")
    _at_least(base, target, experts, " experts")
    if delta is None:
        larger = _doubled(base, target, depth, experts)
    else:
        larger = _larger(base, _sizes("delta", delta, like=base), experts)
    wide = {**base, **{key: size for key, size in larger.items() if key != depth}}
    deep = _resized(base, depth, larger) if depth in larger else None
    tall = _resized(base, depth, target)
    crowded = _resized(tall, experts, target)
    mixed = {**base, experts: 2 * base[experts]} if experts in base else None
    return Shapes(base, target, wide, deep, tall, crowded, mixed)


def _resized(shape: dict[str, int], key: str | None, like: dict[str, int]) -> dict[str, int]:
    """Return a shape with one of its sizes, if it has this one, as in another shape."""
    return {**shape, key: like[key]} if key in shape else shape


def _doubled(
    base: dict[str, int], target: dict[str, int], depth: str, experts: str | None
) -> dict[str, int]:
    """Return twice the base's depth, and its widths which differ in the target (all if none)."""
    widths = [key for key in base if key not in (depth, experts)]
    growing = [key for key in widths if base[key] != target[key]] or widths
    return {key: 2 * base[key] for key in (*growing, depth) if key in base}


def _larger(base: dict[str, int], delta: dict[str, int], experts: str | None) -> dict[str, int]:
    """Return the sizes of delta that differ from the base's, all of which must be larger."""
    larger = {key: delta[key] for key in base if delta[key] != base[key] and key != experts}
    if not larger or any(delta[key] < base[key] for key in base):
        raise InvalidInput(f"delta: wanted a shape larger than the base, got {delta}.")
    return larger


def _at_least(base: dict[str, int], target: dict[str, int], key: str | None, what: str) -> None:
    """Refuse a target that is smaller than the base in its depth or number of experts."""
    if key in base and target[key] < base[key]:
        raise InvalidInput(
            f"target[{key!r}]: wanted at least the base's {base[key]}{what}, got {target[key]}; "
            "take the smaller shape as the base."
        )


def _sizes(name: str, value: Any, like: Mapping[str, Any] | None = None) -> dict[str, int]:
    """Return a shape as a dictionary of integers, with the keys of the base."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(k, str) for k in value):
        raise InvalidInput(
            f"{name}: wanted a dict such as dict(width=64, depth=4), got {shown(value)}."
        )
    if like is not None and set(value) != set(like):
        raise InvalidInput(f"{name}: wanted the keys of base, {sorted(like)}, got {sorted(value)}.")
    return {key: integer(f"{name}[{key!r}]", size, at_least=1) for key, size in value.items()}
