"""Text output: rows of cells with aligned columns, and short descriptions of values."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import Repr
from typing import Any


class _Short(Repr):
    """Short descriptions, in which NumPy's numbers look like Python's."""

    def repr1(self, x: Any, level: int) -> str:
        plain = x.item() if type(x).__module__ == "numpy" and getattr(x, "shape", None) == () else x
        return super().repr1(plain, level)


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 60, 40, 80


def aligned(cells: Sequence[Sequence[str]], *, ruled: bool = True) -> list[str]:
    """Return rows of text with aligned columns, with a line under the first if ``ruled``."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]
    if ruled:
        lines.insert(1, "  ".join("-" * w for w in widths))
    return lines


def shown(value: Any) -> str:
    """Return a short description of a value for error messages, however large the value is.

    >>> shown([1.5] * 1000), shown(range), shown(10**400)[:12]
    ('[1.5, 1.5, 1.5, 1.5, 1.5, 1.5, ...]', "<class 'range'>", '100000000000')
    >>> import numpy as np
    >>> shown(np.zeros((300, 2))), shown(np.float64(1.5))
    ('an array of shape (300, 2), dtype float64', '1.5')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and shape and dtype is not None:
        return f"an array of shape {tuple(shape)}, dtype {dtype}"
    try:
        return _SHORT.repr(value)
    except Exception:  # the value's own repr fails, or has more digits than Python prints
        return f"a value of type {type(value).__name__}"


def duration(seconds: float) -> str:
    """Return a duration in words, with one or two digits.

    >>> duration(12.3), duration(170.0), duration(8000.0)
    ('12 s', '2.8 min', '2.2 h')
    """
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 1.5 * unit:
            count = seconds / unit
            return f"{count:.1f} {name}" if count < 10 else f"{count:.0f} {name}"
    return f"{seconds:.0f} s"
