"""A file of finished replicates, from which an interrupted solution resumes."""

from __future__ import annotations

from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from largen.files import as_file
from largen.runs import Run
from largen.theories.mean_field.engine.marked_files import (
    load_marked,
    marks_of,
    save_marked,
)
from largen.theories.mean_field.transformer.dynamics import Solved

FORMAT = 2  # version of the file format
KERNELS = "kernels/"  # before the names of kernels


class Kept(NamedTuple):
    """Replicates that have finished, and what was determined before them."""

    particles: int  # the number of neurons of a sampled population
    dtype: np.dtype  # the precision of fields
    tolerance: float  # the tolerance of directions
    # rough, found: the first replicate with three times the tolerance, and all replicates with it.
    rough: Solved
    found: list[Solved]


class SavedReplicates:
    """A file of the replicates of one run with one set of options.

    ``path``: the path of the file, which is rewritten after each replicate. ``run``, ``options``:
    the run, and the options of the theory by name. A file of others is rejected with an error that
    names the differences.
    """

    def __init__(self, path: str | PathLike[str], run: Run, options: dict[str, Any]):
        self._path = as_file("checkpoint", path)
        steps = run.rates, None if run.batches is None else np.asarray(run.batches)
        self._marks = marks_of(
            run, options | {"number of steps, or other rates": steps, "format": FORMAT}
        )

    def load(self) -> Kept | None:
        """Return the replicates of the file; None if there is no file."""
        held = load_marked(self._path, self._marks)
        if held is None:
            return None
        found = [_solved(held, f"{i}/") for i in range(int(held["replicates"]))]
        numbers = int(held["particles"]), np.dtype(str(held["dtype"])), float(held["tolerance"])
        return Kept(*numbers, _solved(held, "rough/"), found)

    def save(self, kept: Kept) -> None:
        """Write finished replicates."""
        held: dict[str, Any] = {"replicates": len(kept.found)}
        held |= {"particles": kept.particles, "tolerance": kept.tolerance}
        held["dtype"] = str(kept.dtype)
        named = {"rough": kept.rough} | {str(i): each for i, each in enumerate(kept.found)}
        for name, each in named.items():
            held[f"{name}/f"], held[f"{name}/patterns"] = each.f, each.patterns
            held[f"{name}/directions"] = each.directions
            held |= {f"{name}/{KERNELS}{kind}": kernel for kind, kernel in each.kernels.items()}
        save_marked(self._path, self._marks, held)


def _solved(held: dict[str, np.ndarray], prefix: str) -> Solved:
    f, patterns, directions = (held[prefix + name] for name in ("f", "patterns", "directions"))
    start = prefix + KERNELS
    kernels = {name.removeprefix(start): held[name] for name in held if name.startswith(start)}
    return Solved(f, patterns, kernels, int(directions), None)
