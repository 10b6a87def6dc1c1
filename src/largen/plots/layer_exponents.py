"""The picture of a classification: exponents of N at each layer."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from largen.plots.panels import panels, resize
from largen.plots.style import distinct, legend_below, style

if TYPE_CHECKING:
    import xarray

QUANTITIES = {
    "initial": ("o", r"$h$ at initialisation"),
    "change": ("s", r"$\delta h$: change in training"),
    "direct": ("^", r"$\delta h$ by the layer's own update"),
    "through": ("D", r"$\delta f$ by the layer's own update"),
    "increment": ("v", r"$\delta W / W$: relative update"),
}
APART = 0.13  # between the marks of a layer, in units of the distance of two layers
MOST_NAMES = 12


def layer_exponents_figure(data: xarray.Dataset) -> Figure:
    """Draw five exponents of N at each affine map, from input to output.

    Quantities of order one lie on the line at zero. Quantities that are identically zero stand
    hollow at the lower edge.

    ``data``: that of a result of :func:`largen.scaling.classify`.
    """
    layers = zip(data["layer"].values, data["role"].values, strict=True)
    names = [f"{name} ({role})" for name, role in layers]
    place = np.arange(len(names))
    orders = np.concatenate([data[name].values for name in QUANTITIES])
    low, high = np.nanmin([*orders, -0.5]), np.nanmax([*orders, 0.0])
    floor = low - 0.4 * np.isnan(orders).any()  # room for what is zero
    with style():
        figure, axes = panels(1, 1)
        resize(figure, max(4.8, 0.62 * len(names) + 2.2), 4.0)
        ax = axes[0, 0]
        ax.axhline(0.0, color="black", linewidth=1.0, zorder=1)
        for number, (name, (mark, words)) in enumerate(QUANTITIES.items()):
            x = place + APART * (number - (len(QUANTITIES) - 1) / 2)
            look = {"marker": mark, "color": distinct(number), "label": words}
            _marks(ax, x, data[name].values, floor, **look)
        ax.set(
            ylim=(floor - 0.2, high + 0.25),
            ylabel="exponent of $N$ (0: order one)",
            title=fill(f"{data.attrs['title']}: {data.attrs['kind']}", 60),
        )
        ax.yaxis.set_major_locator(MultipleLocator(0.5))  # exponents are multiples of one half
        _name_layers(ax, names)
        legend_below(ax, columns=2)
    return figure


def _marks(ax: Any, x: np.ndarray, order: np.ndarray, floor: float, **look: Any) -> None:
    zero = np.isnan(order)
    ax.plot(x[~zero], order[~zero], linestyle="none", markersize=5, zorder=3, **look)
    look["label"] = None
    ax.plot(
        x[zero],
        np.full(int(zero.sum()), floor),
        linestyle="none",
        markersize=5,
        markerfacecolor="none",
        **look,
    )


def _name_layers(ax: Any, names: list[str]) -> None:
    each = -(-len(names) // MOST_NAMES)
    ax.set_xticks(np.arange(len(names))[::each], names[::each], rotation=30, ha="right")
    ax.grid(False, axis="x")
