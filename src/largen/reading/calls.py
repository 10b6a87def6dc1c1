"""A forward pass as calls of functions on values, parameters and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Ref(NamedTuple):
    """An argument that is a tensor computed before: the place of its call."""

    place: int


class Param(NamedTuple):
    """An argument that is a parameter, as it is or in another order of axes and times a number."""

    name: str
    # The parameter's axes in the order of the argument's, None for axes that were put in; None for
    # a parameter as it is.
    axes: tuple[int | None, ...] | None = None
    factor: float = 1.0

    def seen(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the argument for that of the parameter."""
        if self.axes is None:
            return shape
        return tuple(1 if axis is None else shape[axis] for axis in self.axes)


@dataclass(eq=False)
class Call:
    """One call of a function on arrays that depend on the input or on parameters."""

    index: int  # its place among the calls
    op: str  # the function's name, without the underscore of in-place variants
    # args, kwargs: its arguments, with Ref and Param in the place of tensors.
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]  # the shape of its result
    module: str  # the path of the innermost module that called it
    of_input: bool  # whether the result depends on the input, and not on parameters alone
    line: str = ""  # the line of the user's code, if it is known and no module is
    origin: int = 0  # its place before calls were joined

    @property
    def place(self) -> str:
        """The module or line and the function, for messages."""
        return f"{self.module or self.line or 'forward'} ({self.op})"

    def refs(self) -> list[int]:
        """Return the calls whose results are arguments."""
        return [a.place for a in leaves_of((self.args, self.kwargs)) if isinstance(a, Ref)]


@dataclass(eq=False)
class Record:
    """The calls of a forward pass, of which the first is the input; and the output's place."""

    calls: list[Call] = field(default_factory=list)
    output: int = 0

    def of_input(self, arguments: Iterable[Any]) -> bool:
        """Whether any of a call's arguments depends on the input."""
        return any(isinstance(a, Ref) and self.calls[a.place].of_input for a in arguments)


def leaves_of(value: Any) -> Iterator[Ref | Param]:
    """Yield the calls and parameters that are arguments."""
    if isinstance(value, (Ref, Param)):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from leaves_of(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves_of(item)


def registering(rules: dict[str, Any]) -> Callable[..., Callable[[Any], Any]]:
    """Return the decorator ``rule(*names)``, which puts a function into a table of rules."""

    def rule(*names: str) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            rules.update(dict.fromkeys(names, function))
            return function

        return register

    return rule
