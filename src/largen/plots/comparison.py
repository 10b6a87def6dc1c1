"""The picture of a comparison: networks approach their limit as they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from largen.errors import InvalidInput
from largen.plots.panels import panels
from largen.plots.style import CYCLE, LIMIT, shades, size_axis, style

if TYPE_CHECKING:
    import xarray


def comparison_figure(rows: Sequence[tuple[str, Any, Mapping[str, Any]]]) -> Figure:
    """Draw one row of three panels for each comparison.

    The panels show learning curves of each width over that of the limit; outputs of one network
    after training against the prediction of the limit; and the distance against the width with its
    fitted power.

    Parameters
    ----------
    rows
        For each row a title, and the data set and exponents of a :class:`largen.Comparison`:
        ``(title, found.to_xarray(), found.exponents)``; ``found.plot(path)`` draws a single row.

    Raises
    ------
    InvalidInput
        If there are no rows.
    """
    if not len(rows):
        raise InvalidInput("rows: wanted one comparison or more.")
    with style():
        figure, axes = panels(len(rows), 3, ("curves", "outputs", "distances") * len(rows))
        for (title, data, exponents), (curves, outputs, distances) in zip(rows, axes, strict=True):
            _learning_curves(curves, data, title)
            _outputs(outputs, data)
            _distances(distances, data, exponents)
    return figure


def _learning_curves(ax: Any, data: xarray.Dataset, title: str) -> None:
    widths = data["width"].values
    for colour, width in zip(shades(len(widths)), widths, strict=True):
        at = data.sel(width=width)
        if width in (widths[0], widths[-1]):  # the bands of all widths would hide each other
            band, name = (at["loss_low"], at["loss_high"]), f"8 of 10 networks, N = {width}"
            ax.fill_between(data["time"], *band, color=colour, alpha=0.3, linewidth=0, label=name)
        ax.plot(data["time"], at["loss"], color=colour, label=f"N = {width}")
    if "loss_limit" in data:
        # In files of older versions it is over the widths as well.
        limit = data["loss_limit"].isel(width=-1, missing_dims="ignore")
        ax.plot(data["time"], limit, **LIMIT, label="limit")
    ax.set(title=title, xlabel="time (rate × step)", ylabel=f"{data.attrs['on']} loss")
    ax.legend()


def _outputs(ax: Any, data: xarray.Dataset) -> None:
    colours = shades(data.sizes["width"])
    ends = sorted({0, data.sizes["width"] - 1})
    for i in ends:
        at = data.isel(width=i)
        ax.plot(
            at["prediction"],
            at["network"],
            "o",
            markersize=3,
            alpha=0.8,
            color=colours[i],
            label=f"one network, N = {int(at['width'])}",
        )
    both = np.concatenate([data["prediction"].values[ends], data["network"].values[ends]])
    line = [both.min(), both.max()]
    ax.plot(line, line, label="the limit", **LIMIT)
    ax.set(
        title=f"{data.attrs['on']} outputs after training",
        xlabel="prediction of the limit",
        ylabel="network",
    )
    ax.legend()


def _distances(ax: Any, data: xarray.Dataset, exponents: Mapping[str, Any]) -> None:
    width = data["width"].values
    labels = {"single": "single network", "mean": "ensemble mean"}
    for (kind, label), colour, marker in zip(
        labels.items(), (CYCLE[0], CYCLE[3]), "os", strict=True
    ):
        value, error = data[kind].values, data[f"{kind}_error"].values
        seen, power = value > 2 * error, exponents[kind]
        words = rf", $N^{{{power.value:.2f} \pm {power.error:.2f}}}$" if power.resolved else ""
        ax.errorbar(
            width[seen],
            value[seen],
            error[seen],
            fmt=marker,
            color=colour,
            markersize=4,
            label=label + words,
        )
        # If a distance is below its statistical error, twice that error is an upper bound.
        if not seen.all():
            bound = {
                "color": colour,
                "markersize": 5,
                "alpha": 0.4,
                "label": "upper bound (2 s.e.)",
            }
            ax.plot(width[~seen], 2 * error[~seen], "v", **bound)
        if power.resolved:
            ax.plot(width, power.at(width), color=colour, alpha=0.5)
    if data.attrs["limit_error"] > 0:
        ax.axhline(data.attrs["limit_error"], color="grey", linestyle=":", label="limit's error")
    ax.set(yscale="log", title="distance from the limit")
    size_axis(ax, width)
    # Room for the legend below the points.
    low, high = ax.get_ylim()
    ax.set_ylim(low / (high / low) ** 0.5, high)
    ax.legend(loc="lower left")


def depth_figure(
    data: xarray.Dataset, in_width: Mapping[str, Any], in_depth: Mapping[str, Any]
) -> Figure:
    """Draw distances against the width, a line for each depth, and against the depth.

    Parameters
    ----------
    data, in_width, in_depth
        Data set and exponents of a :class:`largen.Comparison` with a limit of infinite depth.
    """
    titles = {"single": "single network", "mean": "ensemble mean"}
    with style():
        figure, axes = panels(
            2, 2, [f"{kind}_by_{size}" for kind in titles for size in ("width", "depth")]
        )
        for (kind, title), (by_width, by_depth) in zip(titles.items(), axes, strict=True):
            _against(by_width, data, kind, "width", "depth")
            _against(by_depth, data, kind, "depth", "width")
            by_width.set(title=f"{title}: $N^{{{in_width[kind].value:.2f}}}$ in the width")
            by_depth.set(title=f"{title}: $L^{{{in_depth[kind].value:.2f}}}$ in the depth")
    return figure


def _against(ax: Any, data: xarray.Dataset, kind: str, along: str, other: str) -> None:
    """Draw distances against one size, with a colour for each value of the other size."""
    values = np.unique(data[other].values)
    symbol = {"width": "N", "depth": "L"}
    for colour, each in zip(shades(len(values)), values, strict=True):
        some = data.isel(network=np.flatnonzero(data[other].values == each)).sortby(along)
        some = some.isel(network=np.flatnonzero(np.isfinite(some[along].values)))
        if not some.sizes["network"]:
            continue
        name = f"{int(each)}" if np.isfinite(each) else r"$\infty$"
        bars = np.minimum(some[f"{kind}_error"], 0.9 * some[kind])
        ax.errorbar(
            some[along],
            some[kind],
            bars,
            fmt="o-",
            ms=4,
            color=colour,
            label=f"${symbol[other]}$ = {name}",
        )
    ax.set(xscale="log", yscale="log", xlabel=f"{along} ${symbol[along]}$", ylabel="distance")
    ax.legend()
