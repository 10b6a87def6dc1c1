"""Finished replicates in a file, from which an interrupted solution resumes.

Records are written by the names of their fields, and read by the annotations of these: numbers,
texts, lists, dictionaries of arrays, further records, and arrays otherwise. Of a list the parts of
all items are stacked, which have the same shapes: ``replicates/outputs`` has a leading axis.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from largen.files import as_file
from largen.runs import Run
from largen.theories.mean_field.engine.marked_files import load_marked, marks_of, save_marked

FORMAT = 7  # version of the file format
LENGTH = "length"  # the name of the number of items of a list


class Found(NamedTuple):
    """Finished replicates."""

    common: Any  # what they have in common, such as tolerances
    shown: Any  # what the first one has shown beside that
    replicates: list[Any]


class Checkpoint:
    """A file of the replicates of one run with one set of options.

    ``path``: the path of the file, which is rewritten after each replicate. ``run``, ``options``:
    the run, and the options of the theory by name. A file of others is rejected with an error that
    names the differences. ``kinds``: the types of what replicates have in common, of what the first
    one has shown, and of a replicate.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        run: Run,
        options: dict[str, Any],
        kinds: tuple[Any, Any, Any],
    ):
        self.path: Path = as_file("checkpoint", path)
        self.marks = marks_of(run, options | {"format": FORMAT})
        self._kinds = Found(*kinds[:2], list[kinds[2]])  # type: ignore[valid-type]

    def load(self) -> Found | None:
        """Return what is in the file; None if there is no file, or if it does not serve."""
        held = load_marked(self.path, self.marks)
        if held is None or not self.serves(held):
            return None
        kinds = self._kinds._asdict().items()
        return Found(*(unpacked(kind, held, name) for name, kind in kinds))

    def save(self, found: Found) -> None:
        """Write finished replicates."""
        parts = found._asdict().items()
        held = {k: each for name, part in parts for k, each in packed(part, name).items()}
        save_marked(self.path, self.marks, held | self.more())

    def serves(self, held: dict[str, np.ndarray]) -> bool:
        """Whether this run takes the replicates of a file; raises if the file is not of it."""
        return True

    def more(self) -> dict[str, Any]:
        """Return what else is written."""
        return {}


def packed(value: Any, name: str) -> dict[str, Any]:
    """Return the parts of a value by name; of None there are none."""
    if isinstance(value, list):
        items = [packed(each, name) for each in value]
        stacked = {part: np.stack([item[part] for item in items]) for part in (items or [{}])[0]}
        return stacked | {f"{name}/{LENGTH}": len(value)}
    if isinstance(value, dict) or hasattr(value, "_fields"):
        parts = value if isinstance(value, dict) else value._asdict()
        named = (packed(each, f"{name}/{part}") for part, each in parts.items())
        return {part: each for one in named for part, each in one.items()}
    return {} if value is None else {name: value}


def unpacked(kind: Any, held: dict[str, Any], name: str) -> Any:
    """Return the value of a type whose parts :func:`packed` has named."""
    held = {part: each for part, each in held.items() if f"{part}/".startswith(f"{name}/")}
    if get_origin(kind) in (Union, UnionType):
        if not held:
            return None
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is list:
        length = int(held.pop(f"{name}/{LENGTH}"))
        items = ({part: each[i] for part, each in held.items()} for i in range(length))
        return [unpacked(get_args(kind)[0], item, name) for item in items]
    if get_origin(kind) is dict:
        return {part.removeprefix(f"{name}/"): each for part, each in held.items()}
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return kind(*(unpacked(hints[part], held, f"{name}/{part}") for part in kind._fields))
    return kind(held[name].item()) if kind in (int, float, str) else held[name]
