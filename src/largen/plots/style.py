"""The style of all figures: sizes, colours and line styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largen.errors import instance_of

LIMIT = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.4, "zorder": 5}
CHARACTER = 0.028  # the width of a digit, as a fraction of a panel's width
# Okabe and Ito's colours, which the colour-blind tell apart.
CYCLE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7F7F7F")
TITLES = {
    "standard": "standard parameterization",
    "ntk": "NTK parameterization",
    "mean_field": "mean-field parameterization",
    "mup": "μP",
    "depth_mup": "depth-μP",
    "complete_p": "CompleteP",
}
FAILED = "#D55E00"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=CYCLE),
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "figure.dpi": 200,
}


# Axes of the user's in whose place the next figure is drawn.
_PLACE: ContextVar[Axes | None] = ContextVar("place", default=None)


@contextmanager
def placed_in(ax: Any) -> Iterator[None]:
    """Draw the figures of this context in the place of given axes, in their figure.

    Parameters
    ----------
    ax
        matplotlib axes, or None for figures of their own.

    Raises
    ------
    InvalidInput
        If they are none of matplotlib's.
    """
    if ax is not None:
        instance_of("ax", ax, Axes, "matplotlib axes")
    before = _PLACE.set(ax)
    try:
        yield
    finally:
        _PLACE.reset(before)


@contextmanager
def style() -> Iterator[None]:
    """Draw in the library's style, and restore the user's settings afterwards."""
    with mpl.rc_context(STYLE):
        yield


def panels(rows: int, columns: int) -> tuple[Any, Any]:
    """Return a figure that opens no window, and its axes as an array ``(rows, columns)``.

    Within :func:`placed_in`, the axes divide the place of those of the user, in their figure.
    """
    place = _PLACE.get()
    if place is None:
        figure = Figure(figsize=(3.6 * columns, 3.0 * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)
    figure: Any = place.get_figure(root=True)
    if rows == columns == 1:
        return figure, np.array([[place]])
    place.set_axis_off()
    within, box = place.get_subplotspec(), place.get_position()
    if within is not None:
        grid = within.subgridspec(rows, columns)
    else:
        grid = figure.add_gridspec(
            rows, columns, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1
        )
    axes = [[figure.add_subplot(grid[i, j]) for j in range(columns)] for i in range(rows)]
    return figure, np.array(axes)


def resize(figure: Figure, width: float, height: float) -> None:
    """Set the size of a figure in inches, unless it is one of the user's."""
    if _PLACE.get() is None:
        figure.set_size_inches(width, height)


def headline(figure: Figure, text: str) -> None:
    """Write a title above all panels; above the place of the user's axes if there are any."""
    place = _PLACE.get()
    if place is None:
        figure.suptitle(text)
    else:
        place.set_title(text, pad=16)


def scheme_title(name: str) -> str:
    """Return the name of a parameterization for people.

    Examples
    --------
    >>> scheme_title("ntk"), scheme_title("mean_field(gamma=2)"), scheme_title("own")
    ('NTK parameterization', 'mean-field parameterization, $\\\\gamma_0 = 2$', 'own')
    """
    scheme, _, options = name.partition("(")
    words = TITLES.get(scheme)
    if words is None:
        return name
    gamma = options.removesuffix(")").removeprefix("gamma=")
    return rf"{words}, $\gamma_0 = {gamma}$" if gamma else words


def distinct(number: int) -> str:
    """Return a colour by its number, for curves that have no order."""
    return CYCLE[number % len(CYCLE)]


def legend_below(ax: Any, columns: int = 3, **options: Any) -> None:
    """Write the legend under a panel, outside of its data."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=columns, **options)


def legend_beside(ax: Any, **options: Any) -> None:
    """Write the legend at the right of a panel, outside of its data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **options)


def shades(count: int) -> np.ndarray:
    """Return ``count`` colours from light to dark, for increasing sizes."""
    return mpl.colormaps["viridis_r"](np.linspace(0.12, 0.95, count))


def size_axis(ax: Any, sizes: Sequence[float] | np.ndarray, label: str = "width N") -> None:
    """Make x a logarithmic axis with a tick at each size, and labels where there is room."""
    ax.set(xscale="log", xlabel=label)
    place = np.log(np.asarray(sizes, float))
    place = (place - place.min()) / (np.ptp(place) or 1.0)
    labels, taken = [], -1.0
    for x, size in zip(place, (f"{size:g}" for size in sizes), strict=True):
        half = 0.5 * len(size) * CHARACTER
        fits = x - half > taken
        labels.append(size if fits else "")
        taken = x + half + CHARACTER if fits else taken
    ax.set_xticks(sizes, labels)
    ax.set_xticks([], minor=True)
