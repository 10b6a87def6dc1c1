"""Layers that are made of layers: what they are made of, and the same ones with other parts."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields
from typing import Any

from largen.architectures.layers import Layer

Path = tuple[int, ...]


def parts_of(layer: Layer) -> tuple[Layer, ...]:
    """Return the layers that a layer is made of, in the order of its fields.

    Examples
    --------
    >>> import largen as lg
    >>> parts_of(lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense())))
    (serial(Activation('relu'), Dense()),)
    """
    return tuple(part for group in _groups(layer).values() for part in group)


def mapped(net: Layer, change: Callable[[Layer, Path], Layer], path: Path = ()) -> Layer:
    """Return a network with every layer exchanged for ``change(layer, path)``, parts first.

    Paths are those of :class:`largen.architectures.WeightSite`.

    Examples
    --------
    >>> import largen as lg
    >>> mapped(lg.mlp(1, "relu"), lambda layer, path: lg.Dense(2.0) if path == (0,) else layer)
    serial(Dense(weight_std=2.0), Activation('relu'), Dense())
    """
    place, groups = 0, _groups(net)
    new = copy(net) if groups else net
    for name, group in groups.items():
        found = tuple(mapped(part, change, (*path, place + i)) for i, part in enumerate(group))
        place += len(group)
        alone = isinstance(getattr(net, name), Layer)
        object.__setattr__(new, name, found[0] if alone else found)  # the records are frozen
    return change(new, path)


def _groups(layer: Layer) -> dict[str, tuple[Layer, ...]]:
    """Return the fields that hold layers, one or a tuple of them."""
    groups: dict[str, tuple[Layer, ...]] = {}
    for field in fields(layer):
        value: Any = getattr(layer, field.name)
        if isinstance(value, Layer):
            groups[field.name] = (value,)
        elif isinstance(value, tuple) and value and all(isinstance(v, Layer) for v in value):
            groups[field.name] = value
    return groups
