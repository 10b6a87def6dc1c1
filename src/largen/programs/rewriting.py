"""Rewriting of programs: other operations that compute the same, with the same weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from largen.errors import NoTheory
from largen.programs.operations import Data, Mask, Operation, Repeat
from largen.programs.program import Program, Source, Weight
from largen.programs.signals import Signal


class Rewriter:
    """A program while it is rewritten.

    Equal operations on equal values are one value, except for masks, which are drawn anew.
    """

    def __init__(self, program: Program):
        self._program = program
        self.operations: list[Operation] = [program.operations[0]]
        self.signals, self._sources = [program.signals[0]], [program.sources[0]]
        self._weights, self._known = list(program.weights), dict[Operation, int]()

    def weight(self, weight: Weight) -> int:
        """Return the index of another weight."""
        self._weights.append(weight)
        return len(self._weights) - 1

    def renewed(self, weights: tuple[int, ...]) -> tuple[int, ...]:
        """Return the indices of other weights with the same constants."""
        return tuple(self.weight(self._weights[old]) for old in weights)

    def add(self, operation: Operation, signal: Signal, source: Source) -> int:
        """Append an operation and return the position of its value."""
        if operation in self._known and not isinstance(operation, Mask):
            return self._known[operation]
        self.operations.append(operation)
        self.signals.append(signal)
        self._sources.append(source)
        place = self._known[operation] = len(self.operations) - 1
        return place

    def program(self, output: int) -> Program:
        """Return the program that ends in a value, without operations that it does not need."""
        whole = replace(
            self._program,
            operations=tuple(self.operations),
            signals=tuple(self.signals),
            sources=tuple(self._sources),
            weights=tuple(self._weights),
        )
        return whole.between(0, output)


Place = Callable[[Operation, Signal, Source], int]


def inline(copies: Repeat, found: Rewriter, place: Place) -> int:
    """Place the operations of all copies of a repetition one after the other."""
    body, (value,) = copies.body, copies.reads
    alike = len(copies.weights) == 1
    for number in range(copies_of(copies, str(body.sources[-1]))):
        weights = copies.weights[0 if alike else number]
        if alike and number > 0:
            weights = found.renewed(weights)
        seeds = copies.seeds[0 if len(copies.seeds) == 1 else number]
        own = weights, seeds
        value = replay(body, value, lambda op, *of, own=own: place(op.renumbered(*own), *of))
    return value


def replay(program: Program, value: int, place: Place) -> int:
    """Place the operations of a program, whose data are a value, and return that of the last one.

    ``value``: the position of the value that takes the place of the data; ``place``: appends an
    operation, with its signal and source, and returns its position.
    """
    new = [value]
    steps = zip(program.operations, program.signals, program.sources, strict=True)
    for operation, signal, source in list(steps)[1:]:
        reads = tuple(new[read] for read in operation.reads)
        new.append(place(replace(operation, reads=reads), signal, source))
    return new[-1]


def copies_of(copies: Repeat, shown: str) -> int:
    """Return the number of copies, for computations that need a finite number."""
    if copies.times == math.inf:
        raise NoTheory(
            f"{shown}: wanted a finite number of blocks, got infinitely many. Kernels and mean "
            "fields have the limit of infinite depth: lg.kernel, lg.theories.InfiniteDepth."
        )
    return int(copies.times)


def unrolled(program: Program) -> Program:
    """Return the program with the copies of all finite repetitions one after the other."""
    found = Rewriter(program)

    def place(operation: Operation, signal: Signal, source: Source) -> int:
        if isinstance(operation, Repeat) and operation.times != math.inf:
            return inline(operation, found, place)
        return found.add(operation, signal, source)

    return found.program(replay(program, 0, place))


def map_operations(program: Program, change: Callable[[Operation], Operation]) -> Program:
    """Return a program with each operation replaced by one of the same reads, bodies included."""

    def changed(operation: Operation) -> Operation:
        if isinstance(operation, Repeat):
            operation = replace(operation, body=map_operations(operation.body, change))
        return operation if isinstance(operation, Data) else change(operation)

    return replace(program, operations=tuple(map(changed, program.operations)))
