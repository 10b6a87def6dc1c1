"""The picture of a plan: by which factor each weight's settings differ from the base model's."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels, resize
from largen.plots.style import distinct, legend_below, style

if TYPE_CHECKING:
    import xarray

SETTINGS = {
    "init_std": ("o", "initial standard deviation"),
    "lr": ("D", "learning rate"),
    "weight_decay": ("s", "weight decay"),
    "eps": ("^", r"$\epsilon$ of the optimizer"),
}
MOST_TICKS = 12
APART = 0.17  # between the marks of a row, in units of the distance of two rows


def plan_figure(data: xarray.Dataset) -> Figure:
    """Draw the factors of each weight's settings, one row for all copies of a block.

    Settings that no weight changes are left out.

    ``data``: that of :class:`largen.transfer.Plan`.
    """
    rows, first = np.unique(data["row"].values, return_index=True)
    order = np.argsort(first)
    rows, data = rows[order], data.isel(weight=first[order])
    changed = {name: how for name, how in SETTINGS.items() if (data[name] != 1.0).any()}
    place = np.arange(len(rows))
    with style():
        figure, axes = panels(1, 1)
        resize(figure, 7.2, max(2.6, 0.26 * len(rows) + 1.5))
        ax = axes[0, 0]
        ax.axvline(1.0, color="black", linewidth=1.0, zorder=1)
        for number, (name, (mark, words)) in enumerate(changed.items()):
            y = place + APART * (number - (len(changed) - 1) / 2)
            look = {"marker": mark, "color": distinct(number), "label": words}
            ax.plot(data[name].values, y, linestyle="none", markersize=4.5, **look)
        ax.set(
            xscale="log",
            ylim=(len(rows) - 0.4, -0.6),
            xlabel="factor, relative to the base model",
            title=fill(data.attrs["title"], 90),
        )
        ticks = _powers_of_two(*ax.get_xlim())
        ax.set_xticks(ticks, map(_fraction, ticks))
        ax.set_xticks([], minor=True)
        ax.set_yticks(place, [str(row) for row in rows], fontsize="small")
        if changed:
            legend_below(ax, columns=len(changed))
    return figure


def _powers_of_two(low: float, high: float) -> np.ndarray:
    """Return evenly spaced powers of two between two factors, 1 among them."""
    first, last = int(np.ceil(np.log2(low))), int(np.floor(np.log2(high)))
    step = max(1, -(-(last - first) // (MOST_TICKS - 1)))
    return 2.0 ** np.array([k for k in range(first, last + 1) if k % step == 0])


def _fraction(factor: float) -> str:
    return f"{factor:g}" if factor >= 1 else f"1/{1 / factor:g}"
