"""The interface of a sweep for storing its state."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from largen.theories.mean_field.deep.sweep.kernel_records import Along
from largen.theories.mean_field.deep.sweep.state import SweepState


@runtime_checkable
class Keeper(Protocol):
    """A place where the state of one sweep is stored, and from which the sweep resumes."""

    @property
    def due(self) -> bool:
        """Whether the next state should be written."""
        ...

    def write(self, state: SweepState, along: Along) -> None:
        """Write the state before its next step, and the records so far."""

    def restore(self, state: SweepState, along: Along, last: int) -> tuple[SweepState, Along]:
        """Return the stored state and records, or the given ones if none are stored."""
        ...
