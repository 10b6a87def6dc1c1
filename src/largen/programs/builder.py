"""Building of programs: what layers call to say which operations they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Protocol, runtime_checkable

from largen.errors import InvalidInput, NoRule
from largen.programs.operations import Data, Operation, Repeat
from largen.programs.program import Path, Program, Source, Weight
from largen.programs.signals import Signal, signal_of


@runtime_checkable
class Lowered(Protocol):
    """What a layer has to have in order to be read."""

    def lower(self, program: Any, value: int) -> int:
        """Append operations that read ``value`` and return the position of their result."""
        ...

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the shape behind the layer."""
        ...


@cache
def _check_class(kind: type[Operation]) -> None:
    """Refuse an operation that derives from another one than the base of all."""
    bases = (base for base in kind.__mro__[1:] if issubclass(base, Operation))
    base = next(bases, Operation)
    if base is not Operation:
        said = (
            f"net: the operation {kind.__name__} derives from {base.__name__} and would count as "
            "it, since rules are found by the class; derive it from Operation, and give it rules "
            "of its own. See 'How to add a layer' in CONTRIBUTING.md."
        )
        raise NoRule("a program", kind.__name__, said=said)


class Builder:
    """A program while it is being written.

    Parameters
    ----------
    signal
        The shape of the data.
    path, in_branch, copies
        The place of the program in the network: its path, whether it is in a residual branch, and
        how many copies surrounding repetitions make of it.
    """

    def __init__(self, signal: Signal, path: Path = (), in_branch: bool = False, copies: float = 1):
        self.path, self.in_branch, self.copies = path, in_branch, copies
        self._source, self.node = Source("the data"), ""
        self._operations: list[Operation] = [Data()]
        self._signals, self._sources = [signal], [self._source]
        self._weights: list[Weight] = []
        self._seeds: list[int] = []

    def signal(self, value: int) -> Signal:
        """Return the shape of a value."""
        return self._signals[value]

    def add(self, operation: Operation, signal: Signal | None = None) -> int:
        """Append an operation and return the position of its value.

        Without a signal the value has the shape of the first one that is read.

        Raises
        ------
        NoRule
            If the operation derives from another one: rules are found by the class, and those of
            its base are not its own.
        """
        _check_class(type(operation))
        self._operations.append(operation)
        self._signals.append(self._signals[operation.reads[0]] if signal is None else signal)
        self._sources.append(self._source._replace(node=self.node))
        return len(self._operations) - 1

    def weight(
        self, value: int, *, weight_std: float, bias_std: float, width_ratio: Any, patch: Any,
        gain: bool = False,
    ) -> int:  # fmt: skip
        """Return the index of the weight at the current place, which is applied to a value.

        It is a new one the first time; operations that are appended at the same place once more
        have the same weight.

        Parameters
        ----------
        value
            What the weight is applied to.
        weight_std, bias_std, width_ratio, gain
            As in :class:`Weight`.
        patch
            The number of positions that each output sums over, times its part of the channels.

        Raises
        ------
        InvalidInput
            If the weight at this place is applied to values of another size, or inside and outside
            of a repetition.
        """
        signal = self._signals[value]
        weight = Weight(
            self.path,
            weight_std,
            bias_std,
            width_ratio,
            signal.copies * patch,
            signal.from_data,
            self.in_branch,
            self.copies,
            gain=gain,
        )
        return self._known(weight)

    def _known(self, weight: Weight) -> int:
        """Return the index of a weight, known by its path."""
        for index, other in enumerate(self._weights):
            if other.path == weight.path:
                if other != weight and replace(other, copies=weight.copies) == weight:
                    raise InvalidInput(
                        f"net: the weights of {self._source} are used inside of a repetition, "
                        "whose copies have weights of their own, and outside of it. Write the "
                        "copies out, or give one of both places another layer."
                    )
                if other != weight:
                    raise InvalidInput(
                        f"net: the weights of {self._source} are used again on values of another "
                        "size, or on the data and on hidden values."
                    )
                return index
        self._weights.append(weight)
        return len(self._weights) - 1

    def seed(self, number: int) -> int:
        """Return the index of a number from which random draws begin."""
        self._seeds.append(number)
        return len(self._seeds) - 1

    def part(self, position: int, layer: Lowered, value: int, in_branch: bool | None = None) -> int:
        """Append the operations of a part of a layer, and return their value.

        Parameters
        ----------
        position
            The place of the part among those of the layer.
        layer
            The part.
        value
            What it reads.
        in_branch
            Whether it is in a residual branch; by default as the layer around it.
        """
        around = self.path, self.in_branch, self._source
        self.path = (*self.path, position)
        self.in_branch = self.in_branch if in_branch is None else in_branch
        behind = self._lower(layer, value)
        self.path, self.in_branch, self._source = around
        return behind

    def _lower(self, layer: Lowered, value: int) -> int:
        """Append the operations of a layer at the current place."""
        self._source = Source(repr(layer), self.path, self.node)
        behind, told = layer.lower(self, value), layer.signal_behind(self._signals[value])
        made = self._signals[behind]
        known = told.space is not None and made.space is not None
        if told != (made if known else replace(made, space=told.space)):
            raise InvalidInput(
                f"net: the operations of {layer!r} have the shape {made}, and its signal_behind "
                f"says {told}."
            )
        return behind

    def repeat(self, value: int, times: float, lower: Callable[[Builder, int], int]) -> int:
        """Append ``times`` copies of what a function appends, with weights of their own."""
        inner = Builder(self._signals[value], self.path, self.in_branch, self.copies * times)
        inner._source = self._source
        end = lower(inner, 0)
        body = inner.program(end)
        weights = tuple(map(self._known, body.weights))
        seeds = tuple(range(len(self._seeds), len(self._seeds) + len(body.seeds)))
        self._seeds += body.seeds
        copies = Repeat((value,), body, times, (weights,), (seeds,))
        return self.add(copies, inner.signal(end))

    def program(self, output: int) -> Program:
        """Return the program that ends in a value, without operations that it does not need."""
        whole = Program(
            tuple(self._operations),
            tuple(self._signals),
            tuple(self._sources),
            tuple(self._weights),
            tuple(self._seeds),
        )
        return whole.between(0, output)


def program_of(net: Any, inputs: int | tuple[int, ...] | None = None) -> Program:
    """Return the program of a network.

    Parameters
    ----------
    net
        The network.
    inputs
        Shape of a sample, (*space, channels), or D; None if it is not known.

    Raises
    ------
    NoRule
        If a layer does not say which operations it is.
    InvalidInput
        If a layer does not fit its input, or one of its fields is not hashable.

    Examples
    --------
    >>> import largen as lg
    >>> [type(operation).__name__ for operation in program_of(lg.mlp(1, "tanh"), 3).operations]
    ['Data', 'Affine', 'Function', 'Affine']
    """
    try:
        return _program_of(net, inputs)
    except TypeError:
        _check_hashable(net)
        raise


def _check_hashable(net: Any) -> None:
    """Refuse a network with fields such as lists, which cannot be compared in a dictionary."""
    try:
        hash(net)
    except TypeError as why:
        raise InvalidInput(
            f"net: {net!r} is not hashable ({why}): fields of layers are numbers, texts, "
            "functions, layers and tuples of them."
        ) from None


@lru_cache(maxsize=1024)
def _program_of(net: Any, inputs: int | tuple[int, ...] | None) -> Program:
    builder = Builder(signal_of(inputs))
    program = builder.program(builder._lower(net, 0))
    matrices = [index for index, weight in enumerate(program.weights) if not weight.gain]
    last = set(matrices[-1:])
    weights = enumerate(program.weights)
    return replace(program, weights=tuple(replace(w, last=i in last) for i, w in weights))
