"""Columns of numbers from frames, dicts and CSV files, as loops and trackers write them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from largen.arrays import as_array, known
from largen.errors import InvalidInput, instance_of
from largen.text import shown

# What a column is called, if the caller does not say so; the first that is there.
NAMES = {
    "size": ("size", "width", "n"),
    "lr": ("lr", "rate", "learning_rate"),
    "seed": ("seed",),
    "step": ("step", "steps", "time", "iteration", "trainer/global_step"),
    "loss": ("loss", "train_loss", "loss_train", "train/loss"),
}


def is_table(value: Any) -> bool:
    """Whether a value is a path, or has columns with names."""
    frame = hasattr(value, "columns") and not isinstance(value, type)
    return frame or isinstance(value, (str, PathLike, Mapping))


def columns_of(
    name: str, table: Any, wanted: tuple[str, ...], columns: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Return the wanted columns as numbers, without the rows that lack one.

    ``columns`` says what they are called in the table, where :data:`NAMES` does not know it.
    """
    if not is_table(table):
        raise InvalidInput(
            f"{name}: wanted a frame, a dict of columns or the path of a CSV file, got "
            f"{shown(table)}."
        )
    told = {} if columns is None else dict(instance_of("columns", columns, Mapping, "a dict"))
    if unknown := set(told) - set(wanted):
        raise InvalidInput(f"columns: wanted names of {', '.join(wanted)}, got {shown(unknown)}.")
    if isinstance(table, (str, PathLike)):
        table = _from_csv(name, table)
    there = [str(c) for c in getattr(table, "columns", table)]
    found = {}
    for each in wanted:
        known_as = (told[each],) if each in told else NAMES[each]
        called = next((c for c in known_as if c in there), None)
        if called is None:
            raise InvalidInput(
                f"{name}: has no column {' or '.join(map(repr, known_as))}, but "
                f"{', '.join(map(repr, there[:12]))}; columns={{{each!r}: …}} names it."
            )
        found[each] = _numbers(f"{name}[{called!r}]", table[called])
    if len({len(column) for column in found.values()}) > 1:
        raise InvalidInput(f"{name}: its columns have different lengths.")
    # Rows of evaluations have no training loss; a loss that is infinite is kept.
    whole = np.all([~np.isnan(column) for column in found.values()], axis=0)
    return {each: column[whole] for each, column in found.items()}


def _from_csv(name: str, path: Any) -> dict[str, list[str]]:
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"{name}: there is no file {str(file)!r}.")
    with file.open(newline="", encoding="utf-8-sig") as lines:
        try:
            rows = list(csv.DictReader(lines))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name}: {str(file)!r} is no CSV file: {error}.") from None
    if not rows:
        raise InvalidInput(f"{name}: {str(file)!r} has no rows.")
    return {str(column): [row[column] for row in rows] for column in rows[0] if column is not None}


def _numbers(name: str, values: Any) -> np.ndarray:
    if isinstance(values, list) and any(isinstance(v, str) or v is None for v in values):
        return np.array([_number(name, v) for v in values])
    known(name, values)
    array = np.asarray(as_array(name, values))
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise InvalidInput(f"{name}: wanted a column of numbers, got {shown(values)}.")
    return array.astype(float)


def _number(name: str, text: str | None) -> float:
    """Return the number of a cell; one that is empty is not there."""
    try:
        return float(text) if text else np.nan
    except ValueError:
        raise InvalidInput(f"{name}: {text!r} is no number.") from None
