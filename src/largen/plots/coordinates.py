"""The picture of a coordinate check: sizes and changes of activations against the model's size."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import PANEL, for_all, headline, panels, resize
from largen.plots.style import FAILED, legend_below, shades, size_axis, style

if TYPE_CHECKING:
    import xarray


MARKERS = "os^Dv"
MOST_IN_LEGEND = 10  # layers
ROW = 0.13  # inches of a layer in a list
WORDS = {"size": "activation", "change": "change in training"}


def coordinate_figure(data: xarray.Dataset) -> Figure:
    """Draw sizes after training, changes by training, and the slopes of both.

    Lines go from light to dark with the layer; a layer that fails is red. In the last panel, whose
    names have the colours of the lines, the shaded band is the tolerance.

    Parameters
    ----------
    data
        The data set from :meth:`largen.transfer.CoordinateCheck.to_xarray`: ``size`` and ``change``
        (ratio, seed, layer), ``size_slope``, ``change_slope`` and ``passed`` (layer).
    """
    moving = data.isel(layer=np.flatnonzero(np.isfinite(data["change_slope"].values)))
    colours = [
        shade if passed else FAILED
        for shade, passed in zip(
            shades(moving.sizes["layer"]), moving["passed"].values, strict=True
        )
    ]
    with style():
        figure, axes = panels(1, 3, ("size", "change", "slopes"))
        for ax, name in zip(axes[0], ("size", "change"), strict=False):
            _sizes(ax, moving[name].mean("seed"), colours)
            ax.set(
                xlabel=f"{data.attrs['along']} relative to the base",
                title=f"root mean square {WORDS[name]}",
            )
        if len(colours) <= MOST_IN_LEGEND:
            legend_below(for_all(figure, axes[0, :2], axes[0, 0]), 2, fontsize="x-small")
        else:  # the names in the last panel have the colours of the lines
            resize(figure, 3 * PANEL[0], max(PANEL[1], ROW * len(colours) + 1.5))
        _slopes(axes[0, 2], moving, colours)
        headline(figure, f"{data.attrs['title']}, {data.sizes['seed']} networks of each size")
    return figure


def _sizes(ax: Any, values: xarray.DataArray, colours: list[Any]) -> None:
    # Layers that fail have one colour and different marks.
    for layer, colour, mark in zip(values["layer"].values, colours, cycle(MARKERS), strict=False):
        ax.plot(
            values["ratio"],
            values.sel(layer=layer),
            f"{mark}-",
            markersize=3,
            color=colour,
            label=layer,
        )
    size_axis(ax, values["ratio"].values, ax.get_xlabel())
    ax.set_yscale("log", base=2)


def _slopes(ax: Any, data: xarray.Dataset, colours: list[Any]) -> None:
    rows = np.arange(data.sizes["layer"])[::-1]
    tolerance = data.attrs["tolerance"]
    ax.axvspan(-tolerance, tolerance, color="0.9", zorder=0, label="tolerance")
    for marker, name in (("o", "size"), ("x", "change")):
        ax.scatter(
            data[f"{name}_slope"], rows, marker=marker, c=colours, s=18, zorder=3, label=WORDS[name]
        )
    names = [str(layer) or "(model)" for layer in data["layer"].values]
    ax.set_yticks(rows, names, fontsize="x-small")
    for label, colour in zip(ax.get_yticklabels(), colours, strict=True):
        label.set_color(colour)
    ax.set(xlabel="power of the size", title="powers: 0 transfers")
    legend_below(ax, 3, fontsize="x-small")
