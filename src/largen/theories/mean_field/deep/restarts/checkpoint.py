"""Checkpoints of a solution in files, from which it resumes.

A file ``limit.npz`` contains the finished replicates, and the folder ``limit.npz.states`` the
latest state of each sweep. A state is valid for every run that agrees up to its step: for the
interrupted run, for a longer run, and for a run whose learning rates differ only later.
"""

from __future__ import annotations

import hashlib
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from largen.files import make_folder
from largen.runs import Run
from largen.theories.mean_field.deep.restarts.sweep_state import SavedState
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.schedule import Schedule, course
from largen.theories.mean_field.engine.checkpoint import Checkpoint, Found
from largen.theories.mean_field.engine.marked_files import other
from largen.theories.mean_field.record_times import Recorded


class Common(NamedTuple):
    """What replicates have in common."""

    tolerance: float  # the tolerance of directions
    longest: float  # the longest step of gradient flow; 0 for gradient descent


class Shown(NamedTuple):
    """The errors that the first replicate has shown."""

    left_out: dict[str, np.ndarray]  # the truncation error
    stepping: np.ndarray  # the error of gradient flow by finite steps


class SweepCheckpoint(Checkpoint):
    """A file of replicates, and a folder beside it for the states of their sweeps."""

    def __init__(
        self, path: str | PathLike[str], run: Run, options: dict[str, Any], recorded: Recorded
    ):
        super().__init__(path, run, options, (Common, Shown, Swept))
        self._folder = make_folder("checkpoint", self.path.with_name(self.path.name + ".states"))
        self._course, self._recorded = course(run), recorded

    def more(self) -> dict[str, Any]:
        """Return the rates and times, by which a longer run is known."""
        return {"course": self._course} | self._recorded._asdict()

    def serves(self, held: dict[str, np.ndarray]) -> bool:
        """Whether the replicates are of this run, and not of a shorter one that it continues."""
        before, now = held["course"], self._course
        common = min(len(before), len(now))
        differ = np.flatnonzero(before[:common] != now[:common])
        if len(differ):
            raise other(self.path, f"its rates or times differ from time index {differ[0]} on")
        if len(before) > len(now):
            raise other(self.path, f"it has {len(before)} time indices, and this run {len(now)}")
        recorded = Recorded(held["alone"], held["pairs"])
        longer = len(before) < len(now)
        # Kernels at the last time index are recorded after the state that is written.
        until = len(before) if longer else len(now) + 1
        if not all(map(np.array_equal, recorded.before(until), self._recorded.before(until))):
            raise other(self.path, "kernels were recorded at other time indices")
        return not longer

    def save(self, found: Found) -> None:
        """Write the finished replicates, and delete states that are no longer needed."""
        super().save(found)
        for passing in self._folder.glob("again-*.npz"):
            passing.unlink()

    def place(
        self, seed: int, settings: tuple[Any, ...], schedule: Schedule, times: Recorded, fresh: bool
    ) -> SavedState:
        """Return the place of the state of a sweep.

        ``seed``, ``settings``: the seed and the numerical settings of the replicate. ``schedule``,
        ``times``: the steps of the sweep, and those at which kernels are recorded. ``fresh``:
        whether the sweep starts without products of an earlier sweep; only then can a longer run
        resume from its state.
        """
        what: list[Any] = [seed, settings, float(schedule.rates[0])]
        if not fresh:
            what += [array.tobytes() for array in (*schedule, *times)]
        name = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
        path = self._folder / f"{'sweep' if fresh else 'again'}-{name}.npz"
        return SavedState(path, self.marks, schedule.rates, times)
