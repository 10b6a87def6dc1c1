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

from largen.files import as_file, make_folder
from largen.runs import Run
from largen.theories.mean_field.deep.restarts.sweep_state import SavedState
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.kernel_records import RecordedKernels
from largen.theories.mean_field.deep.sweep.schedule import Schedule, course
from largen.theories.mean_field.engine.marked_files import (
    load_marked,
    marks_of,
    other,
    save_marked,
)
from largen.theories.mean_field.record_times import Recorded

FORMAT = 4  # version of the file format
NUMBERS = "tolerance", "stepping", "longest"
ARRAYS = "outputs", "linear", "linear_kernels", "ranks"  # of a replicate


class Done(NamedTuple):
    """The finished replicates, and the numerical parameters that were determined before them."""

    # tolerance, left_out: the tolerance of directions, and its truncation error.
    tolerance: float
    left_out: dict[str, np.ndarray]
    # stepping, longest: the error of gradient flow by finite steps, and the length of its steps.
    stepping: np.ndarray
    longest: float
    found: list[Swept]


class Checkpoint:
    """A file, and a folder beside it, for one run with one set of options.

    ``path``: the path of the file, which is rewritten after each replicate. ``run``, ``options``:
    the run and the options of the theory by name. Files of other runs or options are rejected with
    an error that names the differences. ``recorded``: time indices at which kernels are recorded.
    """

    def __init__(
        self, path: str | PathLike[str], run: Run, options: dict[str, Any], recorded: Recorded
    ):
        self.path = as_file("checkpoint", path)
        self._folder = make_folder("checkpoint", self.path.with_name(self.path.name + ".states"))
        self._marks = marks_of(run, options | {"format": FORMAT})
        self._course, self._recorded = course(run), recorded

    def load(self) -> Done | None:
        """Return the replicates in the file; None if there is none, or of a shorter run."""
        held = load_marked(self.path, self._marks)
        if held is None or self._is_longer(held):
            return None
        found = []
        for i in range(int(held["replicates"])):
            kernels, pairs = (_kernels(held, f"{i}/{kind}") for kind in ("kernels", "pairs"))
            f, linear, linear_kernels, ranks = (held[f"{i}/{name}"] for name in ARRAYS)
            rougher = held.get(f"{i}/rougher")
            found.append(Swept(f, kernels, pairs, linear, linear_kernels, ranks, rougher=rougher))
        inside = {name.partition("left_out/")[2]: change for name, change in held.items()}
        left = {name: change for name, change in inside.items() if name}
        tolerance, stepping, longest = (held[name] for name in NUMBERS)
        return Done(float(tolerance), left, stepping, float(longest), found)

    def _is_longer(self, held: dict[str, np.ndarray]) -> bool:
        """Whether this run continues the shorter run of a file."""
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
        return longer

    def save(self, done: Done) -> None:
        """Write the finished replicates, and delete states that are no longer needed."""
        held: dict[str, Any] = {"course": self._course} | self._recorded._asdict()
        held |= {name: getattr(done, name) for name in NUMBERS}
        held |= {f"left_out/{name}": change for name, change in done.left_out.items()}
        held["replicates"] = len(done.found)
        for i, swept in enumerate(done.found):
            held |= {f"{i}/{name}": getattr(swept, name) for name in ARRAYS}
            if swept.rougher is not None:
                held[f"{i}/rougher"] = swept.rougher
            for kind, kernels in (("kernels", swept.kernels), ("pairs", swept.pairs)):
                held[f"{i}/{kind}"] = len(kernels)
                for name in RecordedKernels._fields:
                    held[f"{i}/{kind}/{name}"] = np.array([getattr(k, name) for k in kernels])
        save_marked(self.path, self._marks, held)
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
        return SavedState(path, self._marks, schedule.rates, times)


def _kernels(held: dict[str, np.ndarray], prefix: str) -> list[RecordedKernels]:
    parts = [held[f"{prefix}/{name}"] for name in RecordedKernels._fields]
    return [RecordedKernels(*(part[i] for part in parts)) for i in range(int(held[prefix]))]
