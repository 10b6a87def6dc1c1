"""Runs of equal operations written as repetitions, so that a deep network becomes a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from largen.programs.operations import Data, Operation, Repeat
from largen.programs.program import Program, Source
from largen.programs.signals import Signal

Item = TypeVar("Item")


@dataclass(frozen=True)
class _Segment:
    """The operations between two values on which all later ones depend only through them.

    They read the first of these values as value 0, and their weights and seeds are counted within
    the segment.
    """

    operations: tuple[Operation, ...]
    keeps_space: bool
    signals: tuple[Signal, ...] = field(compare=False)
    sources: tuple[Source, ...] = field(compare=False)
    weights: tuple[int, ...] = field(compare=False)
    seeds: tuple[int, ...] = field(compare=False)


def folded(program: Program) -> Program:
    """Return an equal program in which runs of equal segments are repetitions.

    >>> import largen as lg
    >>> from largen.programs import program_of
    >>> deep = folded(program_of(lg.mlp(20, "tanh"), 3))
    >>> [type(operation).__name__ for operation in deep.operations], deep.operations[1].times
    (['Data', 'Repeat', 'Affine'], 20)
    """
    operations, signals = [program.operations[0]], [program.signals[0]]
    sources, position = [program.sources[0]], 0
    segments = _segments(program)
    for block, times in fold(segments):
        copies = [
            segments[start : start + len(block)]
            for start in range(position, position + times * len(block), len(block))
        ]
        position += times * len(block)
        if times > 1 and all(segment.keeps_space for segment in block):
            operations.append(_repetition(program, copies, len(operations) - 1))
            signals.append(copies[-1][-1].signals[-1])
            sources.append(block[-1].sources[-1])
            continue
        for segment in (each for copy in copies for each in copy):
            moved = _moved(segment, segment.weights, segment.seeds, len(operations) - 1)
            operations += moved
            signals += segment.signals
            sources += segment.sources
    return replace(
        program, operations=tuple(operations), signals=tuple(signals), sources=tuple(sources)
    )


def _segments(program: Program) -> list[_Segment]:
    found = []
    for start, end in pairwise(program.cuts):
        inner, weights, seeds = _counted(program.operations[start + 1 : end + 1])
        found.append(
            _Segment(
                tuple(
                    replace(operation, reads=tuple(read - start for read in operation.reads))
                    for operation in inner
                ),
                program.signals[start].space == program.signals[end].space,
                program.signals[start + 1 : end + 1],
                program.sources[start + 1 : end + 1],
                weights,
                seeds,
            )
        )
    return found


def relabelled(program: Program) -> Program:
    """Return the program with only those weights and seeds that it uses, counted from 0."""
    operations, weights, seeds = _counted(program.operations)
    return replace(
        program,
        operations=operations,
        weights=tuple(program.weights[i] for i in weights),
        seeds=tuple(program.seeds[i] for i in seeds),
    )


def _counted(
    operations: tuple[Operation, ...],
) -> tuple[tuple[Operation, ...], tuple[int, ...], tuple[int, ...]]:
    """Return operations with weights and seeds counted by first use, and the indices they had."""
    weights, seeds = (
        tuple(dict.fromkeys(index for each in used for index in each))
        for used in (
            [operation.weights_used() for operation in operations],
            [operation.seeds_used() for operation in operations],
        )
    )
    new = [{old: place for place, old in enumerate(kind)} for kind in (weights, seeds)]
    return tuple(operation.renumbered(*new) for operation in operations), weights, seeds


def _moved(
    segment: _Segment, weights: tuple[int, ...], seeds: tuple[int, ...], start: int
) -> list[Operation]:
    """Return the operations of a segment behind the value ``start``, with other weights."""
    return [
        replace(
            operation.renumbered(weights, seeds),
            reads=tuple(start + read for read in operation.reads),
        )
        for operation in segment.operations
    ]


def _repetition(program: Program, copies: list[list[_Segment]], value: int) -> Repeat:
    """Return the repetition of equal copies of some segments, which reads a value."""
    operations: list[Operation] = [Data()]
    weights, seeds = 0, 0
    for segment in copies[0]:
        of = range(weights, weights + len(segment.weights))
        drawn = range(seeds, seeds + len(segment.seeds))
        operations += _moved(segment, tuple(of), tuple(drawn), len(operations) - 1)
        weights, seeds = weights + len(of), seeds + len(drawn)
    rows = [tuple(w for segment in copy for w in segment.weights) for copy in copies]
    seed_rows = [tuple(s for segment in copy for s in segment.seeds) for copy in copies]
    first = copies[0]
    body = Program(
        tuple(operations),
        (first[-1].signals[-1], *(signal for segment in first for signal in segment.signals)),
        (program.sources[0], *(source for segment in first for source in segment.sources)),
        tuple(program.weights[w] for w in rows[0]),
        tuple(program.seeds[s] for s in seed_rows[0]),
    )
    return Repeat((value,), body, len(copies), tuple(rows), tuple(seed_rows))


def fold(items: Sequence[Item]) -> tuple[tuple[tuple[Item, ...], int], ...]:
    """Write a sequence as blocks with repetitions.

    Scanning from the left, the longest run of a repeated period is taken, with the shortest period
    among runs of equal length; items that do not repeat form blocks with one repetition.

    >>> fold("dadadad")
    ((('d', 'a'), 3), (('d',), 1))
    """
    folded: list[tuple[tuple[Item, ...], int]] = []
    position = 0
    while position < len(items):
        period, times = _longest_run(items, position)
        folded.append((tuple(items[position : position + period]), times))
        position += period * times
    return tuple(folded)


def _longest_run(items: Sequence[Item], start: int) -> tuple[int, int]:
    best, covered = (1, 1), 1
    for period in range(1, (len(items) - start) // 2 + 1):
        end = start + period
        while end < len(items) and items[end] == items[end - period]:
            end += 1
        times = (end - start) // period
        if times > 1 and period * times > covered:
            best, covered = (period, times), period * times
        if covered > (len(items) - start) // 2:
            break  # no longer period can repeat and cover more than this one's first two copies
    return best
