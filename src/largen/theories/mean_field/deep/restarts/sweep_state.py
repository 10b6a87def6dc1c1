"""The state of a sweep in a file, from which it resumes.

A state at step s depends on the learning rates of the steps before s and on the records before s
(each record adds directions to the random matrices). Every sweep that agrees in these can resume
from it, whatever follows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.theories.mean_field.deep.matrices.by_directions import Matrices
from largen.theories.mean_field.deep.sweep.kernel_records import Along, Fields, RecordedKernels
from largen.theories.mean_field.deep.sweep.state import SweepState
from largen.theories.mean_field.engine.marked_files import load_marked, other, save_marked
from largen.theories.mean_field.record_times import Recorded

SECONDS = 60.0  # least time between two states that are written within a sweep
MATRICES = (("inputs", "basis"), ("inputs", "images"), ("outputs", "basis"), ("outputs", "images"))


class SavedState:
    """A file for the state of one sweep.

    ``marks``: the marks of the run and the options, by name; ``rates``: η₀ of each step, including
    one for the last time index; ``times``: steps at which kernels are recorded.
    """

    def __init__(self, path: Path, marks: dict[str, str], rates: np.ndarray, times: Recorded):
        self._path, self._marks, self._times = path, marks, times
        self._rates = np.asarray(rates, np.float64)
        self._written = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the next state should be written."""
        return time.monotonic() - self._written > SECONDS

    def write(self, state: SweepState, along: Along) -> None:
        """Write the state before its next step, and the records so far."""
        step = int(state.step)
        held: dict[str, Any] = {"step": step, "rates": self._rates[:step]}
        held |= {"outputs": state.outputs[:step]}
        held |= {f"state/{name}": leaf for name, leaf in _pack(state).items()}
        held |= _records(along)
        save_marked(self._path, self._marks, held)
        self._written = time.monotonic()

    def restore(self, state: SweepState, along: Along, last: int) -> tuple[SweepState, Along]:
        """Return the state and records of the file, or those at initialisation without a file.

        ``last``: the step of the last time index.
        """
        held = load_marked(self._path, self._marks)
        if held is None:
            return state, along
        step = int(held["step"])
        if step > last:
            raise other(self._path, f"it is before step {step}, and this run ends at {last}")
        differ = np.flatnonzero(held["rates"] != self._rates[:step])
        if len(differ):
            raise other(self._path, f"rates differ from step {differ[0]} on")
        found = _read(held)
        if not _suits(found, self._times, step):
            raise other(self._path, "kernels were recorded at other time indices")
        return _unpack(state, held, step), found


def _pack(state: SweepState) -> dict[str, np.ndarray]:
    """Return the leaves of a state by their names, without unfilled rows."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(state._replace(outputs=None)):  # type: ignore[arg-type]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        found[jax.tree_util.keystr(path)] = np.asarray(leaf)
    if isinstance(state.matrices, Matrices):
        features, gradients = (int(rank) for rank in state.matrices.ranks.max(0, initial=0))
        rows = {"inputs": features, "outputs": gradients}
        for side, part in MATRICES:
            name = f".matrices.{side}.{part}"
            found[f"{name}/rows"] = found[name].shape[1]
            found[name] = found[name][:, : rows[side]]
        for name in (".matrices.change", ".matrices.velocity"):
            if name in found:
                found[name] = found[name][:, :gradients, :features]
    return found


def _unpack(state: SweepState, held: dict[str, np.ndarray], step: int) -> SweepState:
    """Return a state with the leaves from a file; bases have the capacity that they had."""
    outputs = state.outputs.at[:step].set(held["outputs"])
    rows = {
        side: int(held[f"state/.matrices.{side}.basis/rows"])
        for side in ("inputs", "outputs")
        if isinstance(state.matrices, Matrices)
    }

    def leaf(path: Any, old: Any) -> Any:
        name = jax.tree_util.keystr(path)
        value = held[f"state/{name}"]
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.asarray(value))
        shape = list(old.shape)
        if rows and name in (".matrices.change", ".matrices.velocity"):
            shape[1:] = rows["outputs"], rows["inputs"]
        elif rows and name.endswith((".basis", ".images")):
            shape[1] = rows[name.split(".")[2]]
        full = np.zeros(shape, old.dtype)
        full[tuple(slice(size) for size in value.shape)] = value
        return jnp.asarray(full)

    bare = state._replace(outputs=None)  # type: ignore[arg-type]
    return jax.tree_util.tree_map_with_path(leaf, bare)._replace(outputs=outputs)


def _records(along: Along) -> dict[str, np.ndarray]:
    found = {}
    for kind, records in zip(Along._fields, along, strict=True):
        for at, record in records.items():
            name = " ".join(map(str, at)) if isinstance(at, tuple) else str(at)
            for part, value in record._asdict().items():
                found[f"{kind}/{name}/{part}"] = np.asarray(value)
    return found


def _read(held: dict[str, np.ndarray]) -> Along:
    along = Along.nothing()
    parts: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, value in held.items():
        kind, *rest = name.split("/")
        if kind in Along._fields:
            parts.setdefault((kind, rest[0]), {})[rest[1]] = value
    for (kind, name), values in parts.items():
        at = tuple(map(int, name.split()))
        match kind:
            case "kernels":
                along.kernels[at[0]] = RecordedKernels(**values)
            case "fields":
                along.fields[at[0]] = Fields(**values)
            case _:
                along.pairs[at[0], at[1]] = RecordedKernels(**values)
    return along


def _suits(along: Along, times: Recorded, step: int) -> bool:
    """Whether the records before a step are those that are requested before it."""
    past = times.before(step)
    return (
        along.kernels.keys() == past.single
        and along.pairs.keys() == {(t, s) for t, s in past.pairs.tolist()}
        and along.fields.keys() == times.waiting(step)
    )
