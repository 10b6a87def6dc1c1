"""Figures and their panels: all of a picture, or one of its panels in axes of the user's.

Figures of results draw themselves in notebooks, by what IPython asks of any object
(``_repr_png_``), with every backend and with none. Where pyplot shows figures behind their cells,
theirs are handed to it, so that ``result.plot();`` shows the picture as well.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largen.errors import InvalidInput, instance_of

PANEL = 3.6, 3.0  # inches
DOTS_IN_FILES = 200  # per inch, where the user has set nothing


def chosen(setting: Any) -> bool:
    """Return whether the user has changed one of matplotlib's settings."""
    return mpl.rcParams[setting] != mpl.rcParamsDefault[setting]


class Picture(Figure):
    """A figure that is its picture in a notebook, whichever backend matplotlib has there."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        super().savefig(file, format="png", dpi=self.dpi, bbox_inches="tight")
        return file.getvalue()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Add nothing to the picture; behind this cell pyplot does not show it a second time."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close(self)
        return {}

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write the figure, finer than on the screen."""
        if not (chosen("savefig.dpi") or chosen("figure.dpi")):
            options.setdefault("dpi", DOTS_IN_FILES)
        super().savefig(fname, **options)


def hand_over(figure: Figure) -> None:
    """Let pyplot show a figure behind its cell, where it does so: in notebooks' inline backend."""
    # A kernel has named its backend, so that to ask for it loads none.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel") or "inline" not in mpl.get_backend():
        return
    from matplotlib import pyplot

    made: Any = lambda *_, **__: figure  # noqa: E731  # what pyplot calls to make a figure
    pyplot.figure(FigureClass=made)


class NoPanel(InvalidInput):
    """A picture has no panel of the name that is wanted; it has ``names``."""

    def __init__(self, what: str, names: Sequence[str]):
        super().__init__(f"what: {what!r} is not a panel; panels: {', '.join(names)}.")
        self.names = names


class _Place(NamedTuple):
    """Where the next figure is drawn, and which panel of it; of None, all in a new figure."""

    ax: Axes | None = None
    what: str | None = None


_ALL = _Place()
_PLACE: ContextVar[_Place] = ContextVar("place", default=_ALL)


@contextmanager
def placed_in(ax: Any, what: str | None = None) -> Iterator[None]:
    """Draw one panel of the figures of this context, in given axes or alone.

    Parameters
    ----------
    ax
        matplotlib axes, or None for new figures.
    what
        The name of the panel; by default the first in ``ax``, and all in a new figure.

    Raises
    ------
    InvalidInput
        If the axes are none of matplotlib's, or the name is no text.
    """
    if ax is not None:
        instance_of("ax", ax, Axes, "matplotlib axes")
    if what is not None:
        instance_of("what", what, str, "the name of a panel or of a variable")
    before = _PLACE.set(_Place(ax, what))
    try:
        yield
    finally:
        _PLACE.reset(before)


def alone() -> bool:
    """Return whether one panel is drawn instead of all."""
    return _PLACE.get() != _ALL


def panels(rows: int, columns: int, names: Sequence[str] = ()) -> tuple[Any, Any]:
    """Return a figure that opens no window, and its axes as an array ``(rows, columns)``.

    Within :func:`placed_in`, the figure has one of them, and the others are drawn nowhere. The last
    panels may have no names.
    """
    place = _PLACE.get()
    if not alone():
        figure = _figure(rows, columns)
        return figure, figure.subplots(rows, columns, squeeze=False)
    if place.what is not None and place.what not in names:
        raise NoPanel(place.what, list(dict.fromkeys(names)))
    axes = Figure().subplots(rows, columns, squeeze=False)
    only: Any = _figure(1, 1).subplots() if place.ax is None else place.ax
    axes.flat[0 if place.what is None else list(names).index(place.what)] = only
    return only.get_figure(root=True), axes


def _figure(rows: int, columns: int) -> Picture:
    size = None if chosen("figure.figsize") else (PANEL[0] * columns, PANEL[1] * rows)
    return Picture(figsize=size, layout="constrained")


def resize(figure: Figure, width: float, height: float) -> None:
    """Set the size of a figure in inches, unless the user has a say in it."""
    if _PLACE.get().ax is None and not chosen("figure.figsize"):
        figure.set_size_inches(width, height)


def headline(figure: Figure, text: str) -> None:
    """Write a title above all panels."""
    if not alone():
        figure.suptitle(text)


def for_all(figure: Figure, axes: Any, usual: Any) -> Any:
    """Return the panel for what is said once for all: the usual, or the only that is drawn."""
    drawn = [ax for ax in np.ravel(axes) if ax.get_figure(root=True) is figure]
    return usual if usual in drawn else drawn[0]


def colour_bar(figure: Figure, images: Sequence[tuple[Any, Any]], **options: Any) -> None:
    """Draw the scale of images, pairs (panel, image), next to the panels that are drawn."""
    drawn = [pair for pair in images if pair[0].get_figure(root=True) is figure]
    if drawn:
        figure.colorbar(drawn[0][1], ax=[ax for ax, _ in drawn], **options)
