"""Layers that consist of layers: in sequence, or in parallel on the same input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs.builder import Builder
from largen.programs.signals import Signal, difference


@dataclass(frozen=True, repr=False)
class Container(Layer):
    """Base of the layers that consist of layers; not for use by itself.

    Its parts are the fields that hold a layer or a tuple of layers, in their order. Positions
    among them make up paths, such as those of :class:`largen.programs.Weight`.
    """

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The layers that the container consists of."""
        return tuple(part for group in self._groups().values() for part in group)

    def with_parts(self, parts: Iterable[Layer]) -> Container:
        """Return the same container with other layers, equal in number."""
        groups, given, new = self._groups(), tuple(parts), copy(self)
        if sum(map(len, groups.values())) != len(given):
            raise InvalidInput(
                f"net: the parts of {type(self).__name__} are not the layers in its fields, so "
                "that others cannot take their place; it lacks with_parts."
            )
        old = iter(given)
        for name, group in groups.items():
            alone = isinstance(getattr(self, name), Layer)
            layers = tuple(next(old) for _ in group)
            object.__setattr__(new, name, layers[0] if alone else layers)  # records are frozen
        return new

    def tree(self, trees: tuple[Any, ...]) -> Any:
        """Return the tree of the container's parameters, given those of its parts: their tuple."""
        return trees

    def _groups(self) -> dict[str, tuple[Layer, ...]]:
        """Return the fields that contain layers, each as a tuple of layers."""
        groups: dict[str, tuple[Layer, ...]] = {}
        for each in fields(self):
            value: Any = getattr(self, each.name)
            if isinstance(value, Layer):
                groups[each.name] = (value,)
            elif isinstance(value, tuple) and value and all(isinstance(v, Layer) for v in value):
                groups[each.name] = value
            elif _holds_layers(value):
                raise InvalidInput(
                    f"net: the field {each.name} of {type(self).__name__} holds layers, and is "
                    "neither a layer nor a tuple of layers, which its parts are taken from."
                )
        if not groups:
            raise InvalidInput(
                f"net: {type(self).__name__} has no layers: its parts are the fields that hold a "
                "layer or a tuple of layers, and it has none. Declare them as fields, such as "
                "`layers: tuple[Layer, ...]`, or say its `parts`."
            )
        return groups


@dataclass(frozen=True, repr=False)
class Sequence(Container):
    """The composition of layers, repeated ``times`` times with independent weights.

    All theories apply their rules to it part by part: such a container needs no rule of its own.
    """

    times = 1

    def lower(self, program: Builder, value: int) -> int:
        """Append all parts one after the other, or a repetition of them."""

        def once(program: Builder, value: int) -> int:
            for position, part in enumerate(self.parts):
                value = program.part(position, part, value)
            return value

        return once(program, value) if self.times == 1 else program.repeat(value, self.times, once)

    def residual_depth(self) -> float:
        """Return the sum over the parts, times the number of copies."""
        total = sum(part.residual_depth() for part in self.parts)
        return self.times * total if total else 0  # of an infinite number as well

    def tree(self, trees: tuple[Any, ...]) -> Any:
        """Return the tuple of the parts' parameters; for copies of a single part, those of it."""
        return trees[0] if self.times > 1 and len(trees) == 1 else trees

    @property
    def keeps_shape(self) -> bool:
        """Whether all parts keep the shape."""
        return all(part.keeps_shape for part in self.parts)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the last part; repeated parts must keep the signal's shape."""
        behind = signal
        for part in self.parts:
            behind = part.signal_behind(behind)
        if self.times > 1 and behind != signal:
            once = self.parts[0] if len(self.parts) == 1 else self
            raise InvalidInput(
                f"net: {once!r} is repeated but does not keep the shape of its input; "
                f"{difference(signal, behind)}."
            )
        return behind


@dataclass(frozen=True, repr=False)
class Parallel(Container):
    """A container whose parts read the same input, and which joins their outputs to one signal.

    How outputs are joined is said by ``lower``, and the shape of the joined signal by
    ``signal_behind``.
    """

    def lower_parts(self, program: Builder, value: int) -> tuple[int, ...]:
        """Append the operations of all parts, which read the same value; return their values."""
        parts = enumerate(self.parts)
        return tuple(program.part(position, part, value) for position, part in parts)

    def residual_depth(self) -> float:
        """Return the largest number in one of the parts."""
        return max((part.residual_depth() for part in self.parts), default=0)

    @property
    def keeps_shape(self) -> bool:
        """False unless overridden."""
        return False

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the container; every subclass defines it."""
        raise InvalidInput(f"net: {type(self).__name__} lacks signal_behind, its output's shape.")


def _holds_layers(value: Any) -> bool:
    """Whether a value is a collection with a layer in it."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return False
    return any(isinstance(each, Layer) for each in value)


def parts_of(layer: Layer) -> tuple[Layer, ...]:
    """Return the layers that a layer consists of, none if it is not a container.

    The identity on a skip connection is an empty ``serial``.

    Examples
    --------
    >>> import largen as lg
    >>> parts_of(lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense())))
    (serial(Activation('relu'), Dense()), serial())
    """
    return layer.parts if isinstance(layer, Container) else ()


def tree_of(
    layer: Layer, leaf: Callable[[tuple[int, ...]], Any], path: tuple[int, ...] = ()
) -> Any:
    """Return a tree shaped as a network's parameters.

    ``leaf``: returns the tree of a layer that contains no others, given its path; ``path``: the
    path of the network itself.
    """
    if not isinstance(layer, Container):
        return leaf(path)
    parts = enumerate(layer.parts)
    return layer.tree(tuple(tree_of(part, leaf, (*path, i)) for i, part in parts))
