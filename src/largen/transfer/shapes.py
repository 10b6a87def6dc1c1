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

    Raises
    ------
    InvalidInput
        If base, target and delta have different keys, a size is not a positive integer, or delta
        is not larger than the base.

    Examples
    --------
    >>> shapes({"width": 8, "depth": 2}, {"width": 64, "depth": 2}, "depth").wide
    {'width': 16, 'depth': 2}
    """
    instance_of("depth", depth, str, "the name of the depth among the keys of base")
    if experts is not None:
        instance_of("experts", experts, str, "the name of the number of experts among base's keys")
    base, target = _sizes("base", base), _sizes("target", target)
    delta = None if delta is None else _sizes("delta", delta)
    for name, value in (("target", target), ("delta", delta)):
        if value is not None and set(value) != set(base):
            raise InvalidInput(
                f"{name}: wanted the keys of base, {sorted(base)}, got {sorted(value)}."
            )
    if depth in base and target[depth] < base[depth]:
        raise InvalidInput(
            f"target[{depth!r}]: wanted at least the base's {base[depth]}, got {target[depth]}; "
            "take the smaller shape as the base."
        )
    if experts in base and target[experts] < base[experts]:
        raise InvalidInput(
            f"target[{experts!r}]: wanted at least the base's {base[experts]} experts, got "
            f"{target[experts]}; take the smaller shape as the base."
        )
    widths = [key for key in base if key not in (depth, experts)]
    growing = [key for key in widths if base[key] != target[key]] or widths
    larger = {key: 2 * base[key] for key in (*growing, depth) if key in base}
    if delta is not None:
        larger = {key: delta[key] for key in base if delta[key] != base[key] and key != experts}
        small = sorted(key for key in base if delta[key] < base[key])
        if small or not larger:
            raise InvalidInput(f"delta: wanted a shape larger than the base, got {delta}.")
    wide = {**base, **{key: size for key, size in larger.items() if key != depth}}
    deep = {**base, depth: larger[depth]} if depth in larger else None
    tall = {**base, depth: target[depth]} if depth in base else base
    crowded = {**tall, experts: target[experts]} if experts in base else tall
    mixed = {**base, experts: 2 * base[experts]} if experts in base else None
    return Shapes(base, target, wide, deep, tall, crowded, mixed)


def _sizes(name: str, value: Any) -> dict[str, int]:
    """Return a shape as a dictionary of integers."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(k, str) for k in value):
        raise InvalidInput(
            f"{name}: wanted a dict such as dict(width=64, depth=4), got {shown(value)}."
        )
    return {key: integer(f"{name}[{key!r}]", size, at_least=1) for key, size in value.items()}
