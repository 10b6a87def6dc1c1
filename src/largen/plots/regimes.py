"""The picture of the regimes: movement against γ, and against γ measured in √N."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from largen.plots.panels import for_all, panels
from largen.plots.style import shades, style

if TYPE_CHECKING:
    import xarray


def regimes_figure(data: xarray.Dataset, quantities: Mapping[str, str]) -> Figure:
    """Draw one column for each quantity, against γ in the upper and γ/√N in the lower row.

    Parameters
    ----------
    data
        The data set of :class:`largen.experiments.Regimes`.
    quantities
        Names of variables, with a title for each.
    """
    with style():
        figure, axes = panels(
            2, len(quantities), [*quantities, *(f"{name}_scaled" for name in quantities)]
        )
        for column, (name, title) in zip(axes.T, quantities.items(), strict=True):
            what, _, formula = title.partition(", ")
            for ax, scaled in zip(column, (False, True), strict=True):
                for colour, width in zip(
                    shades(data.sizes["width"]), data["width"].values, strict=True
                ):
                    at = data.sel(width=width)
                    ax.errorbar(
                        at["gamma0"] if scaled else at["gamma"],
                        at[name],
                        2 * at[f"{name}_error"],
                        fmt="o-",
                        markersize=3.5,
                        color=colour,
                        label=f"N = {width}",
                    )
                ax.set(xscale="log", yscale="log", ylabel=formula)
            column[0].set(title=what, xlabel=r"$\gamma$")
            column[1].set(xlabel=r"$\gamma/\sqrt{N}$")
        for_all(figure, axes, axes[0, 0]).legend()
    return figure
