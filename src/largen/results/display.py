"""Display of results, as a few lines of text and as tables in notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

import jax
import numpy as np

MOST_LINES = 15


def brief(self: Any) -> str:
    """Return a record's fields as its ``__repr__``, arrays by their shape and range."""
    names = self._fields
    width = max(map(len, names))
    rows = [f"  {name:<{width}}  {_describe(getattr(self, name))}" for name in names]
    return "\n".join([f"{type(self).__name__}:", *rows[:MOST_LINES]])


def _describe(value: Any) -> str:
    """Return a description of a field in one line."""
    if isinstance(value, (np.ndarray, jax.Array)):
        return _array(value)
    if isinstance(value, (tuple, list)) and any(np.ndim(entry) for entry in value):
        return f"{len(value)} of {_describe(value[0])}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _array(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        try:
            array = np.asarray(array)
        except jax.errors.TracerArrayConversionError:
            return f"{array.shape}, traced"
    if array.dtype.kind not in "fiu":
        return f"{array.shape} {array.dtype}"
    if not array.ndim:
        return f"{array[()]:.6g}"
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not finite.size:
        return f"{array.shape}"
    lost = array.size - finite.size
    words = f"{array.shape}, from {finite.min():.4g} to {finite.max():.4g}"
    return f"{words}, {lost} not finite" if lost else words


def in_notebooks(self: Any) -> str:
    """Return a result's text, and its variables with their axes, as HTML for ``_repr_html_``."""
    text = f"<pre>{escape(str(self))}</pre>"
    if hasattr(self, "to_xarray"):
        return text + self.to_xarray()._repr_html_()
    return text
