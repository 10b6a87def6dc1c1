"""The picture of any result, by its class; by its data set if there is no picture of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from largen.errors import InvalidInput
from largen.plots.coordinates import coordinate_figure
from largen.plots.criticality import edge_figure, network_figure, phase_figure, propagation_figure
from largen.plots.layer_exponents import layer_exponents_figure
from largen.plots.panels import NoPanel, colour_bar, hand_over, headline, panels, placed_in
from largen.plots.style import shades, style
from largen.plots.theory import posterior_figure, response_figure
from largen.plots.trajectory import trajectory_figure

if TYPE_CHECKING:
    import xarray

# Pictures by the name of the class, which this room, below most classes, does not import.
PICTURES: dict[str, Callable[[Any], Figure]] = {
    "Classification": lambda found: layer_exponents_figure(found.to_xarray()),
    "CoordinateCheck": lambda check: coordinate_figure(check.to_xarray()),
    "EdgeOfChaos": edge_figure,
    "NetworkDiagram": network_figure,
    "PhaseDiagram": phase_figure,
    "Prediction": lambda found: posterior_figure(found.to_xarray()),
    "Propagation": propagation_figure,
    "ResponseFunctions": lambda found: response_figure(found.to_xarray()),
    "Trajectory": lambda trajectory: trajectory_figure(trajectory.to_xarray()),
}
MOST_PANELS, MOST_COLUMNS, MOST_LINES, MOST_MARKS = 6, 3, 8, 30
NAMES = {"nngp": "NNGP kernel", "ntk": "NTK", "tau": r"depth $\tau$"}


def draw(
    result: Any,
    picture_of_class: Callable[[], Figure] | None,
    ax: Any,
    what: str | None,
    name: str = "what",
) -> Figure:
    """Return the picture of a result, or one of its panels, or one of its variables.

    Parameters
    ----------
    result
        The result.
    picture_of_class
        A function that draws its picture, if it does so itself.
    ax
        matplotlib axes to draw one panel in, or None for a new figure.
    what
        The name of a panel, or of a variable; None for all panels, or the first in ``ax``.
    name
        The argument by which users give ``what``.

    Raises
    ------
    InvalidInput
        If there is neither a panel nor a variable of this name, or nothing to draw.
    """
    try:
        with placed_in(ax, what):
            figure = figure_of(result) if picture_of_class is None else picture_of_class()
    except NoPanel as missing:
        data = result.to_xarray()
        if what not in data.data_vars:
            file = f", nor a file such as {what}.png" if name == "path" else ""
            named = f"panels: {', '.join(missing.names)}; " if missing.names else ""
            raise InvalidInput(
                f"{name}: {what!r} is neither a panel nor a variable of this result{file}; "
                f"{named}variables: {', '.join(map(str, data.data_vars))}."
            ) from None
        with placed_in(ax):
            figure = variable_figure(data, str(what))
    if ax is None:
        hand_over(figure)
    return figure


def figure_of(result: Any) -> Figure:
    """Return the picture of a result.

    Raises
    ------
    InvalidInput
        If it has only single numbers, of which there is nothing to draw.
    """
    kind = type(result).__name__
    if kind == "SavedResult":
        kind = result.kind
    picture = PICTURES.get(kind)
    if picture is not None:
        return picture(result)
    return dataset_figure(result.to_xarray(), _spaced(kind))


def _spaced(kind: str) -> str:
    """Return the name of a class as words: WidthCorrections is "width corrections"."""
    return re.sub(r"(?<!^)([A-Z])", r" \1", kind).lower()


def dataset_figure(data: xarray.Dataset, title: str) -> Figure:
    """Draw the variables of a data set: lines over one axis, colours over two.

    Of variables with more axes, the last entry along the first ones is drawn. Standard errors are
    drawn as bars of two of them.

    Raises
    ------
    InvalidInput
        If no variable has an axis of more than one entry.
    """
    shown = [
        str(name)
        for name, variable in data.data_vars.items()
        if variable.dtype.kind in "fiu"
        and not str(name).endswith(("_error", "_margin"))
        and variable.dims[-2:]
        and max(variable.sizes[axis] for axis in variable.dims[-2:]) > 1
    ][:MOST_PANELS]
    if not shown:
        raise InvalidInput(f"there is nothing to draw of {title}: it has only single numbers.")
    columns = min(len(shown), MOST_COLUMNS)
    rows = -(-len(shown) // columns)
    with style():
        figure, axes = panels(rows, columns, shown)
        for ax, name in zip(axes.flat, shown, strict=False):
            _variable(figure, ax, data, name)
        for ax in axes.flat[len(shown) :]:
            ax.remove()
        headline(figure, title)
    return figure


def variable_figure(data: xarray.Dataset, name: str) -> Figure:
    """Draw one variable of a data set.

    Raises
    ------
    InvalidInput
        If it is a single number, or no number.
    """
    if not data[name].ndim or data[name].dtype.kind not in "biuf":
        raise InvalidInput(f"there is nothing to draw of {name!r}: it has no axes of numbers.")
    with style():
        figure, axes = panels(1, 1)
        _variable(figure, axes[0, 0], data, name)
    return figure


def _variable(figure: Any, ax: Any, data: xarray.Dataset, name: str) -> None:
    values = data[name]
    left_out = values.dims[:-2]
    values = values.isel(dict.fromkeys(left_out, -1))
    title = NAMES.get(name, name.replace("_", " ").replace("ntk", "NTK"))
    if left_out:
        title += f"\n(last {', '.join(map(str, left_out))})"
    ax.set_title(title)
    if values.ndim == 1:
        error = data.get(f"{name}_error")
        bars = None if error is None else 2 * error.isel(dict.fromkeys(left_out, -1)).values
        x, label = _along(data, str(values.dims[0]))
        marks = "o-" if len(x) <= MOST_MARKS else "-"
        ax.errorbar(x, values.values, bars, fmt=marks, markersize=3)
        ax.set(xlabel=label)
        return
    first, second = map(str, values.dims)
    if second == f"{first}_2" or values.sizes[first] > MOST_LINES:
        _colours(figure, ax, values.values, first, second)
        return
    x, label = _along(data, second)
    lines, name = _along(data, first)
    for at, row, colour in zip(lines, values.values, shades(len(lines)), strict=True):
        ax.plot(x, row, "o-", markersize=3, color=colour, label=f"{name} {at:.4g}")
    ax.set(xlabel=label)
    ax.legend()


def _along(data: xarray.Dataset, axis: str) -> tuple[np.ndarray, str]:
    """Return the coordinate of an axis, and its label."""
    label = NAMES.get(axis, axis.replace("_", " "))
    if axis in data.coords and data[axis].dtype.kind in "fiu":
        return data[axis].values, label
    return np.arange(data.sizes[axis]), label


def _colours(figure: Any, ax: Any, values: np.ndarray, rows: str, columns: str) -> None:
    """Draw a matrix; with colours on both sides of zero if it has both signs."""
    finite = values[np.isfinite(values)]
    signed = bool((finite < 0).any() and (finite > 0).any())
    most = float(np.abs(finite).max()) if finite.size else 1.0
    colours: dict[str, Any] = {"vmin": -most, "vmax": most, "cmap": "RdBu_r"} if signed else {}
    image = ax.imshow(values, aspect="auto", interpolation="nearest", **colours)
    ax.set(xlabel=columns.removesuffix("_2").replace("_", " "), ylabel=rows.replace("_", " "))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    ax.grid(visible=False)
    colour_bar(figure, [(ax, image)], shrink=0.8)
