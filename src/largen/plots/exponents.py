"""The picture of measured exponents: sizes against the width, and slopes with predictions."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import alone, headline, panels
from largen.plots.style import CYCLE, FAILED, distinct, size_axis, style

if TYPE_CHECKING:
    import xarray

PREDICTION = {"color": "black", "linewidth": 1.6}


def exponents_figure(data: xarray.Dataset, groups: Mapping[str, str]) -> Figure:
    """Draw a panel of sizes for each group of quantities, and a panel of all exponents.

    Dashed lines have the predicted slope; in the last panel, ticks are predictions and bars the
    intervals of 95 %.

    Parameters
    ----------
    data
        The data set of a :class:`largen.experiments.MeasuredExponents`.
    groups
        The groups in order, with a title for each.
    """
    present = [g for g in groups if (data["group"] == g).any() and g != "absolute"]
    with style():
        columns = (len(present) + 2) // 2
        figure, grid = panels(2, columns, [*present, "exponents"])
        axes = grid.ravel()
        for ax, group in zip(axes, present, strict=False):
            _sizes(ax, data.isel(quantity=np.flatnonzero(data["group"].values == group)))
            ax.set_title(fill(groups[group], 44), fontsize="small")
        shown = data.isel(quantity=np.flatnonzero(np.isin(data["group"].values, present)))
        _exponents(axes[len(present)], shown)
        for ax in axes[len(present) + 1 :]:
            ax.remove()
        # The panel of exponents, with long names, takes the rest of its row.
        if not alone():
            whole = axes[len(present)].get_subplotspec().get_gridspec()
            axes[len(present)].set_subplotspec(whole[1, len(present) - columns :])
        headline(
            figure,
            f"{data.attrs['parameterization']}, {data.attrs['optimizer']}, "
            f"{data.attrs['length']}, {data.attrs['seeds']} networks of each width",
        )
    return figure


def _sizes(ax: Any, data: xarray.Dataset) -> None:
    widths = data["width"].values
    for i, name in enumerate(data["name"].values):
        at = data.isel(quantity=i)
        size = at["size"].values
        if not (size > 0).all():
            continue
        ax.errorbar(
            widths,
            size,
            2 * at["size_error"].values,
            fmt="o",
            markersize=3.5,
            color=distinct(i),
            label=str(name),
        )
        slope = float(at["predicted"])
        if np.isfinite(slope):
            # Through the largest width, where corrections are smallest.
            ax.plot(widths, size[-1] * (widths / widths[-1]) ** slope, "--", color=distinct(i))
    ax.set_yscale("log")
    size_axis(ax, widths)
    low, high = ax.get_ylim()
    if high < 10 * low:  # at least a decade, so that constant quantities look constant
        middle = np.sqrt(low * high)
        ax.set_ylim(middle / 10**0.5, middle * 10**0.5)
    ax.legend()


def _exponents(ax: Any, data: xarray.Dataset) -> None:
    rows = np.arange(data.sizes["quantity"])[::-1]
    colours = np.where(data["deviates"], FAILED, CYCLE[0])
    for row, colour, value, error, wanted in zip(
        rows,
        colours,
        data["exponent"].values,
        data["exponent_error"].values,
        data["predicted"].values,
        strict=True,
    ):
        ax.errorbar(value, row, xerr=2 * error, fmt="o", markersize=4, color=str(colour))
        ax.plot([wanted, wanted], [row - 0.35, row + 0.35], **PREDICTION)
    short = {"relative": "δθ ", "features": "features into "}
    labels = [
        short.get(group, "") + name
        for group, name in zip(data["group"].values, data["name"].values, strict=True)
    ]
    ax.set_yticks(rows, labels)
    ax.set(xlabel="exponent of $N$")
    ax.set_title("exponents: dots measured, ticks predicted", loc="right", fontsize="small")
