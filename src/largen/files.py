"""Files that are there whole or not at all, and the folders that they are in."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import InvalidInput


def made_folder(name: str, folder: str | PathLike[str]) -> Path:
    """Return a folder, which is made if need be.

    Parameters
    ----------
    name
        Of the argument that the folder was given by.
    folder
        Where.

    Raises
    ------
    InvalidInput
        If it cannot be made.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{name}: cannot make the folder {path}: {error.strerror}.") from None
    return path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a draft to write to, which then takes the file's name.

    Whoever reads the file finds all of it or what was there before, whenever a process is killed.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with written_whole(file) as draft:
    ...     _ = draft.write_text("1 2 3")
    ...     file.exists()
    False
    >>> file.read_text(), len(list(file.parent.iterdir()))
    ('1 2 3', 1)
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    for left in path.parent.glob(f".{path.name}.*.part"):
        left.unlink(missing_ok=True)  # of a process that was killed while it wrote


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by their names, all of them or none."""
    held: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    with written_whole(path) as draft, draft.open("wb") as file:
        np.savez(file, **held)


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of a file; None if it is not there, nothing if it was damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path) as file:
            return dict(file)
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}
