"""Shapes of programs that readers ask for: operations in sequence, and blocks of several parts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from largen.errors import NoTheory
from largen.programs.elementwise import join_elementwise
from largen.programs.operations import BRANCH, Affine, Factor, Function, Operation, Repeat, Sum
from largen.programs.program import Program, Source, Weight
from largen.programs.refusals import at, in_words, no_rule
from largen.programs.rewriting import copies_of, unrolled
from largen.programs.signals import Signal


class ResidualBlock(NamedTuple):
    """A block y = skip(x) + β·branch(x)."""

    skip: Program
    branch: Program
    factor: Factor  # β

    def beta(self, of_parameterization: float) -> float:
        """Return β as a number, given the parameterization's factor."""
        return of_parameterization if self.factor == BRANCH else float(self.factor)


def _length(way: tuple[Program, Factor]) -> int:
    return len(way[0].operations)


@dataclass(frozen=True)
class Step:
    """The way from one value to the next one on which everything behind depends.

    Attributes
    ----------
    program
        The program.
    start, end
        The two values.
    """

    program: Program
    start: int
    end: int

    @property
    def operation(self) -> Operation:
        """The last operation of the step, which makes its value."""
        return self.program.operations[self.end]

    @property
    def source(self) -> Source:
        """The layer of this operation."""
        return self.program.sources[self.end]

    @property
    def signal(self) -> Signal:
        """The shape of the value."""
        return self.program.signals[self.end]

    @property
    def weight(self) -> Weight:
        """The weight of an affine map."""
        assert isinstance(self.operation, Affine)
        return self.program.weights[self.operation.weight]

    @property
    def plain(self) -> bool:
        """Whether the step is a single operation."""
        return self.end == self.start + 1

    @property
    def ways(self) -> tuple[Program, ...]:
        """The programs from the start to each value that the operation reads."""
        return tuple(self.program.between(self.start, read) for read in self.operation.reads)

    @property
    def residual(self) -> ResidualBlock | None:
        """The parts of a residual block, None for other operations."""
        if not isinstance(self.operation, Sum) or len(self.operation.reads) != 2:
            return None
        ways = sorted(zip(self.ways, self.operation.factors, strict=True), key=_length)
        if ways[0][1] == BRANCH:
            ways.reverse()
        (skip, kept), (branch, factor) = ways
        return ResidualBlock(skip, branch, factor) if kept == 1 else None


def blocks(program: Program, reading: str) -> tuple[Step, ...]:
    """Return the steps of a program in which parts that are added or multiplied are separate.

    Parameters
    ----------
    program
        The program.
    reading
        Who asks, for the message of the error.

    Raises
    ------
    NoTheory
        If parts that an operation reads have operations in common.

    Examples
    --------
    >>> import largen as lg
    >>> from largen.programs import program_of
    >>> block = lg.Residual(lg.serial(lg.Activation("tanh"), lg.Dense()))
    >>> first, second, third = blocks(program_of(lg.serial(lg.Dense(), block, lg.Dense())), "here")
    >>> [len(way.operations) for way in second.ways]
    [1, 3]
    """
    steps = tuple(Step(program, *ends) for ends in pairwise(program.cuts))
    for step in steps:
        if not step.plain:
            parts = sum(len(way.operations) - 1 for way in step.ways)
            if parts != step.end - step.start - 1:
                raise NoTheory(
                    f"{reading}: {in_words(step.operation)} ({at(step.source)}) reads values that "
                    "have operations in common; there is a rule for separate parts only."
                )
    return steps


def dense_chain(program: Program, reading: str) -> tuple[Step, ...]:
    """Return affine maps of all features, and elementwise functions, one behind a map at most.

    Raises
    ------
    NoRule
        For any other operation, and where the program branches.

    Examples
    --------
    >>> import largen as lg
    >>> from largen.programs import program_of
    >>> net = lg.serial(lg.Dense(), lg.Activation("erf"), lg.Activation("relu"), lg.Dense())
    >>> [type(step.operation).__name__ for step in dense_chain(program_of(net, 3), "here")]
    ['Affine', 'Function', 'Affine']
    """
    steps = blocks(join_elementwise(program), reading)
    for step in steps:
        if not step.plain or len(step.operation.reads) > 1:
            raise no_rule(reading, step.operation, step.source)
        dense = isinstance(step.operation, Affine) and step.operation.dense
        if not dense and not isinstance(step.operation, Function):
            raise no_rule(reading, step.operation, step.source, [Affine, Function])
    return steps


def written_out(program: Program) -> Program:
    """Return a program with the copies of all repetitions one after the other.

    Raises
    ------
    NoTheory
        If there are infinitely many.

    Examples
    --------
    >>> import largen as lg
    >>> from largen.programs import program_of
    >>> program = written_out(program_of(lg.residual_mlp(3, "tanh")))
    >>> [type(operation).__name__ for operation in program.operations][1:8]
    ['Affine', 'Function', 'Affine', 'Sum', 'Function', 'Affine', 'Sum']
    >>> len(program.weights)
    5
    """
    program = unrolled(program)
    for operation, source in zip(program.operations, program.sources, strict=True):
        if isinstance(operation, Repeat):
            copies_of(operation, at(source))
    return program


def check_independent(program: Program, reading: str) -> None:
    """Check that no weight is applied at two places.

    Raises
    ------
    NoTheory
        If one is.
    """
    first: dict[int, Source] = {}
    for operation, source in zip(program.operations, program.sources, strict=True):
        if not isinstance(operation, Affine):
            continue
        if operation.weight in first:
            raise NoTheory(
                f"{reading}: no rule for a weight at two places ({at(first[operation.weight])}, "
                f"{at(source)}); networks of finite width have one: lg.train."
            )
        first[operation.weight] = source
