"""What is done of a solution, in a file: it is taken up where it stopped."""

from __future__ import annotations

import hashlib
from os import PathLike, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from largen.architectures import fingerprint
from largen.dmft.deep.advance import Swept
from largen.dmft.deep.records import Kernels
from largen.errors import InvalidInput
from largen.runs import Run


class Done(NamedTuple):
    """The replicates so far, and what was found out before them.

    Attributes
    ----------
    tolerance, left_out
        Of the directions, and the error that it leaves.
    stepping, longest
        The error of gradient flow, and the length of its steps.
    found
        The replicates.
    """

    tolerance: float
    left_out: np.ndarray
    stepping: np.ndarray
    longest: float
    found: list[Swept]


class Checkpoint:
    """A file for one run with one set of options.

    Parameters
    ----------
    path
        Of the file; written anew after each replicate.
    run, options
        What is solved, and how: a file of something else is refused.
    """

    def __init__(self, path: str | PathLike[str], run: Run, options: Any):
        self.path = Path(path)
        data = (run.data.x_train, run.data.y_train, run.data.x_test, run.data.y_test, run.times)
        digest = hashlib.sha256(repr((fingerprint(run.net), run, options)).encode())
        for array in data:
            digest.update(np.ascontiguousarray(array).tobytes())
        self._mark = digest.hexdigest()

    def load(self) -> Done | None:
        """Return what the file holds; None if there is none yet.

        Raises
        ------
        InvalidInput
            If it holds something else.
        """
        if not self.path.is_file():
            return None
        try:
            with np.load(self.path) as file:
                held = dict(file)
        except (OSError, ValueError):
            held = {}
        if str(held.get("mark")) != self._mark:
            raise InvalidInput(
                f"checkpoint: {str(self.path)!r} is not of this run with these options; remove it "
                "or name another file."
            )
        found = []
        for i in range(int(held["replicates"])):
            parts = [held[f"{i}/{name}"] for name in Kernels._fields]
            kernels = [Kernels(*record) for record in zip(*parts, strict=True)]
            outputs, frozen, ranks = (held[f"{i}/{name}"] for name in ("f", "frozen", "ranks"))
            found.append(Swept(outputs, kernels, frozen, ranks))
        return Done(
            float(held["tolerance"]),
            held["left_out"],
            held["stepping"],
            float(held["longest"]),
            found,
        )

    def save(self, done: Done) -> None:
        """Write what is done."""
        held: dict[str, Any] = {"mark": self._mark, "replicates": len(done.found)}
        held |= {name: getattr(done, name) for name in Done._fields[:-1]}
        for i, swept in enumerate(done.found):
            held |= {f"{i}/f": swept.outputs, f"{i}/frozen": swept.frozen_kernel}
            held[f"{i}/ranks"] = swept.ranks
            for name in Kernels._fields:
                held[f"{i}/{name}"] = np.array([getattr(k, name) for k in swept.kernels])
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as file:
            np.savez(file, **held)
        replace(fresh, self.path)
