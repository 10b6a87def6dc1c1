"""Runs of equal periods in a sequence of layers, so that a deep network becomes a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def fold(items: Sequence[Item]) -> tuple[tuple[tuple[Item, ...], int], ...]:
    """Write a sequence as blocks with repetitions.

    Scanning from the left, the longest run of a repeated period is taken, with the shortest period
    among runs of equal length; items that do not repeat form blocks with one repetition.

    Parameters
    ----------
    items
        Items that can be compared for equality.

    Returns
    -------
    tuple
        Pairs (block, times) that reproduce the sequence when expanded.

    Examples
    --------
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
