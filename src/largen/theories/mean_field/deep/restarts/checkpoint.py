"""What is done of a solution, in files: it is taken up where it stopped.

A file ``limit.npz`` has the replicates that are done, the folder ``limit.npz.states`` the states
of the sweeps that they are made of, each where it got to. A state holds for every run that is the
same up to its step: for the run that was interrupted, for a longer one, for one whose rates change
later.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from largen.architectures import fingerprint
from largen.files import as_file, made_folder
from largen.parameterizations import Stepped
from largen.runs import Run
from largen.theories.mean_field.deep.restarts.marked_files import load_marked, other, save_marked
from largen.theories.mean_field.deep.restarts.sweep_state import Place
from largen.theories.mean_field.deep.sweep.advance import Swept
from largen.theories.mean_field.deep.sweep.kernel_records import Kernels
from largen.theories.mean_field.deep.sweep.schedule import Schedule, course
from largen.theories.mean_field.record_times import Recorded

FORMAT = 4  # of the files; counted up when what they hold changes
NUMBERS = "tolerance", "stepping", "longest"
ARRAYS = "outputs", "linear", "linear_kernels", "ranks"  # of a replicate


class Done(NamedTuple):
    """The replicates so far, and what was found out before them.

    Attributes
    ----------
    tolerance, left_out
        The tolerance of directions, and its truncation error.
    stepping, longest
        The error of gradient flow, and the length of its steps.
    found
        The replicates.
    """

    tolerance: float
    left_out: dict[str, np.ndarray]
    stepping: np.ndarray
    longest: float
    found: list[Swept]


class Checkpoint:
    """A file, and a folder beside it, for one run with one set of options.

    Parameters
    ----------
    path
        The path of the file, which is rewritten after each replicate.
    run, options
        What is solved, and how, by name: files of something else are refused, with the names of
        what differs.
    recorded
        Entries at which kernels are kept.

    Raises
    ------
    InvalidInput
        If it is no path of a file, or the folder cannot be made.
    """

    def __init__(
        self, path: str | PathLike[str], run: Run, options: dict[str, Any], recorded: Recorded
    ):
        self.path = as_file("checkpoint", path)
        self._folder = made_folder("checkpoint", self.path.with_name(self.path.name + ".states"))
        self._marks = _marks(run, options)
        self._course, self._recorded = course(run), recorded

    def load(self) -> Done | None:
        """Return what the file holds of this run; None if there is none, or of a shorter run.

        Raises
        ------
        InvalidInput
            If it holds something else.
        """
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
        """Whether this run is longer than the one that a file is of, and agrees with it."""
        before, now = held["course"], self._course
        common = min(len(before), len(now))
        differ = np.flatnonzero(before[:common] != now[:common])
        if len(differ):
            raise other(self.path, f"its rates or times are others from entry {differ[0]} on")
        if len(before) > len(now):
            raise other(self.path, f"it has {len(before)} entries, and this run {len(now)}")
        recorded = Recorded(held["alone"], held["pairs"])
        longer = len(before) < len(now)
        # Kernels at the last entry are recorded after the state that is kept.
        until = len(before) if longer else len(now) + 1
        if not all(map(np.array_equal, recorded.before(until), self._recorded.before(until))):
            raise other(self.path, "kernels were recorded at other entries")
        return longer

    def save(self, done: Done) -> None:
        """Write what is done, and forget the states that only led there."""
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
                for name in Kernels._fields:
                    held[f"{i}/{kind}/{name}"] = np.array([getattr(k, name) for k in kernels])
        save_marked(self.path, self._marks, held)
        for passing in self._folder.glob("again-*.npz"):
            passing.unlink()

    def place(
        self, seed: int, settings: tuple[Any, ...], schedule: Schedule, times: Recorded, fresh: bool
    ) -> Place:
        """Return where the state of a sweep is kept.

        Parameters
        ----------
        seed, settings
            The seed and the numerical settings of the replicate.
        schedule, times
            Its steps, and those at which kernels are kept.
        fresh
            Whether it starts with matrices that have not been asked before; only then a longer
            run can begin with it.
        """
        what: list[Any] = [seed, settings, float(schedule.rates[0])]
        if not fresh:
            what += [array.tobytes() for array in (*schedule, *times)]
        name = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
        path = self._folder / f"{'sweep' if fresh else 'again'}-{name}.npz"
        return Place(path, self._marks, schedule.rates, times)


def _kernels(held: dict[str, np.ndarray], prefix: str) -> list[Kernels]:
    parts = [held[f"{prefix}/{name}"] for name in Kernels._fields]
    return [Kernels(*(part[i] for part in parts)) for i in range(int(held[prefix]))]


def _marks(run: Run, options: dict[str, Any]) -> dict[str, str]:
    """Return what tells one solution from another, but for how long it goes on."""
    data, optimizer = run.data, run.optimizer
    one = {"lr": 1.0} | ({"schedule": None} if isinstance(optimizer, Stepped) else {})
    parts = {
        "format": FORMAT,
        "network": fingerprint(run.net),
        "parameterization": run.param,
        "data set": [
            (array.shape, np.ascontiguousarray(array).tobytes())
            for array in (data.x_train, data.y_train, data.x_test, data.y_test)
        ],
        "loss": run.loss.fingerprint(data.y_train, run.output_shape),
        "optimizer": replace(optimizer, **one),
        **options,
    }
    return {
        name: hashlib.sha256(repr(part).encode()).hexdigest()[:16] for name, part in parts.items()
    }
