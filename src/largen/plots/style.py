"""The style of all figures: sizes, colours and line styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

LIMIT = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.4, "zorder": 5}
CHARACTER = 0.028  # the width of a digit, as a fraction of a panel's width
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "savefig.bbox": "tight",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the library's style, and restore the user's settings afterwards."""
    with mpl.rc_context(STYLE):
        yield


def panels(rows: int, columns: int) -> tuple[Figure, Any]:
    """Return a figure that opens no window, and its axes as an array ``(rows, columns)``."""
    figure = Figure(figsize=(3.6 * columns, 3.0 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def shades(count: int) -> np.ndarray:
    """Return ``count`` colours from light to dark, for increasing sizes."""
    return mpl.colormaps["viridis_r"](np.linspace(0.12, 0.95, count))


def size_axis(ax: Any, sizes: Sequence[int] | np.ndarray, label: str = "width N") -> None:
    """Make x a logarithmic axis with a tick at each size, and labels where there is room."""
    ax.set(xscale="log", xlabel=label)
    place = np.log(np.asarray(sizes, float))
    place = (place - place.min()) / (np.ptp(place) or 1.0)
    labels, taken = [], -1.0
    for x, size in zip(place, map(str, sizes), strict=True):
        half = 0.5 * len(size) * CHARACTER
        fits = x - half > taken
        labels.append(size if fits else "")
        taken = x + half + CHARACTER if fits else taken
    ax.set_xticks(sizes, labels)
    ax.set_xticks([], minor=True)
