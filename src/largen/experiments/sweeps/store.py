"""Finished cells on disk: one file each, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import InvalidInput


@dataclass(frozen=True)
class Store:
    """A folder of finished cells, found again by everything that was set for them.

    Attributes
    ----------
    folder
        Where; None keeps nothing.
    """

    folder: Path | None

    @classmethod
    def at(cls, folder: Any) -> Store:
        """Open a folder, which is made if need be.

        Raises
        ------
        InvalidInput
            If it cannot be made.
        """
        if folder is None:
            return cls(None)
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"folder: cannot make {path}: {error.strerror}.") from None
        return cls(path)

    def load(self, settings: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """Return a finished cell's arrays, or None if it is not there."""
        path = self._path(settings)
        if path is None or not path.exists():
            return None
        try:
            with np.load(path) as kept:
                return {name: kept[name] for name in kept.files if name != "settings"}
        except (OSError, ValueError, zipfile.BadZipFile):  # damaged by other means: do it again
            return None

    def save(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Put a finished cell on disk: under another name first, which is then changed."""
        path = self._path(settings)
        if path is None:
            return
        draft = path.with_name(f".{path.stem}.{os.getpid()}.part")
        with draft.open("wb") as file:
            contents: dict[str, Any] = {"settings": np.array(json.dumps(settings)), **arrays}
            np.savez_compressed(file, **contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        for left in path.parent.glob(f".{path.stem}.*.part"):
            left.unlink(missing_ok=True)  # of a process that was killed while it wrote

    def _path(self, settings: dict[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps(settings, sort_keys=True)
        return self.folder / f"cell-{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"
