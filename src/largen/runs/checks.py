"""Checks of the parts of a trajectory against its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from largen.arrays import as_array, known
from largen.errors import InvalidInput, instance_of
from largen.runs.run import Run
from largen.scalars import integer, sequence


def checked_outputs(
    run: Run, f_train: Any, f_test: Any, seeds: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs on training and test data, which may be NaN or infinite, as NumPy arrays."""
    instance_of("run", run, Run, "an lg.Run")
    lead = () if seeds is None else (integer("seeds", seeds, at_least=1),)
    outputs = []
    for name, value, x in (
        ("f_train", f_train, run.data.x_train),
        ("f_test", f_test, run.data.x_test),
    ):
        known(name, value)
        array = np.asarray(as_array(name, value))
        wanted = (*lead, len(run.times), len(x), *run.output_shape)
        if array.shape != wanted or array.dtype not in (np.float32, np.float64):
            raise InvalidInput(
                f"{name}: wanted floats ([seed,] step, sample[, output]) of shape {wanted}, got "
                f"shape {array.shape} and dtype {array.dtype}."
            )
        outputs.append(array)
    return outputs[0], outputs[1]


def check_words(
    theory: Any, reason: Any, notes: Any, width: Any, extra: Any, reserved: tuple[str, ...]
) -> None:
    """Check the texts and the further variables of a trajectory."""
    for name, value in (("theory", theory), ("reason", reason)):
        instance_of(name, value, str, "a text")
    for note in sequence("notes", notes, "texts"):
        instance_of("notes", note, str, "texts")
    if width is not None:
        integer("width", width, at_least=1)
    wanted = "variables by name, such as {'entropy': (('step',), values)}"
    variables = {} if extra is None else instance_of("extra", extra, Mapping, wanted)
    for name, value in variables.items():
        if name in reserved or not isinstance(value, tuple) or len(value) != 2:
            raise InvalidInput(f"extra: wanted {wanted}, got {name!r}.")


def arrays_on_axes(
    variables: Mapping[str, tuple[Any, Any]], coordinates: Mapping[str, Any]
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Return variables as arrays, after a check that axes of one name have one length."""
    lengths = {name: len(its) for name, its in coordinates.items() if not isinstance(its, tuple)}
    found = {}
    for name, (axes, value) in variables.items():
        axes, array = (axes,) if isinstance(axes, str) else tuple(axes), np.asarray(value)
        sizes = [lengths.setdefault(*each) for each in zip(axes, array.shape, strict=False)]
        if array.shape != tuple(sizes) or len(axes) != array.ndim:
            raise InvalidInput(
                f"extra: {name!r} has the shape {array.shape}, and the axes {axes} of the "
                f"trajectory {tuple(lengths.get(axis) for axis in axes)}."
            )
        found[name] = axes, array
    return found
