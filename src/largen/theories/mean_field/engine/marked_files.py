"""Files with marks that identify the run and the options to which they belong."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from largen.architectures import fingerprint
from largen.errors import InvalidInput
from largen.files import load_arrays, save_arrays
from largen.runs import Run


def save_marked(path: Path, marks: dict[str, str], held: dict[str, Any]) -> None:
    """Write named arrays together with marks."""
    save_arrays(path, held | {f"mark/{name}": mark for name, mark in marks.items()})


def load_marked(path: Path, marks: dict[str, str]) -> dict[str, np.ndarray] | None:
    """Return the arrays of a file; None if it does not exist."""
    held = load_arrays(path)
    if held is None:
        return None
    if not any(name.startswith("mark/") for name in held):
        raise other(path, "it is not a checkpoint")
    differ = [name for name, mark in marks.items() if str(held.get(f"mark/{name}")) != mark]
    if "data set" in differ and "loss" in differ:
        differ.remove("loss")  # which is known by losses of the targets
    if differ:
        raise other(path, f"it has another {', another '.join(differ)}")
    return held


def other(path: Path, why: str) -> InvalidInput:
    """Return the error for a file that belongs to something else."""
    return InvalidInput(
        f"checkpoint: {str(path)!r} is not of this run with these options: {why}. Remove it (and "
        "the folder of its states) or name another file."
    )


def marks_of(run: Run, options: dict[str, Any]) -> dict[str, str]:
    """Return marks that identify a solution by its run and options, except for its duration."""
    data, optimizer = run.data, run.optimizer
    one = {"lr": 1.0} | ({} if optimizer.continuous else {"schedule": None})
    parts = {
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
