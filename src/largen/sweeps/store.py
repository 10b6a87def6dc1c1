"""Finished cells on disk, in one atomically written file each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from largen.errors import DamagedFile
from largen.files import load_arrays, make_folder, save_arrays


@dataclass(frozen=True)
class Store:
    """A folder of finished cells, identified by all their settings."""

    folder: Path | None  # the folder; None stores nothing

    @classmethod
    def at(cls, folder: Any) -> Store:
        """Open a folder, creating it if necessary."""
        return cls(None if folder is None else make_folder("checkpoint", folder))

    def load(self, settings: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """Return a finished cell's arrays, or None if it is not stored."""
        path = self._path(settings)
        try:
            held = None if path is None else load_arrays(path)
        except DamagedFile:
            return None  # its cell is done again
        return {name: held[name] for name in held if name != "settings"} if held else None

    def save(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Store a finished cell."""
        path = self._path(settings)
        if path is not None:
            save_arrays(path, {"settings": json.dumps(settings), **arrays})

    def _path(self, settings: dict[str, Any]) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps(settings, sort_keys=True)
        return self.folder / f"cell-{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"
