"""Finished cells on disk: one file each, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import DamagedFile
from largen.files import load_arrays, made_folder, save_arrays


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
        return cls(None if folder is None else made_folder("folder", folder))

    def load(self, settings: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """Return a finished cell's arrays, or None if it is not there."""
        path = self._path(settings)
        try:
            held = None if path is None else load_arrays(path)
        except DamagedFile:
            return None  # its cell is done again
        return {name: held[name] for name in held if name != "settings"} if held else None

    def save(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Put a finished cell on disk."""
        path = self._path(settings)
        if path is not None:
            save_arrays(path, {"settings": json.dumps(settings), **arrays})

    def _path(self, settings: dict[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps(settings, sort_keys=True)
        return self.folder / f"cell-{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"
