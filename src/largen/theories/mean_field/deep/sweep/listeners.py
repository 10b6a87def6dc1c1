"""Who follows a sweep on its way: what hears of its progress, and what keeps its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from largen.theories.mean_field.deep.sweep.kernel_records import Along
from largen.theories.mean_field.deep.sweep.state import State

Tell = Callable[[float], None]  # called with the fraction of steps that is done


def ignore_progress(fraction: float) -> None:
    """Report progress to nobody."""


@runtime_checkable
class Keeper(Protocol):
    """Where the state of one sweep is kept, and taken up from."""

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        ...

    def write(self, state: State, along: Along) -> None:
        """Keep the state before its next step, and what was recorded before."""

    def restore(self, state: State, along: Along, last: int) -> tuple[State, Along]:
        """Return what was kept, if it is of this sweep, or else what is given."""
        ...
