"""The picture of a learning curve: errors against samples, and where the targets are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import distinct, shades, style

if TYPE_CHECKING:
    import xarray

MOST_LINES = 8


def learning_curve_figure(data: xarray.Dataset) -> Figure:
    """Draw errors against samples, dashed where extrapolated, and the alignment of targets.

    Bars and bands are two standard errors; of several outputs the mean is drawn.

    ``data``: that of :class:`largen.regression.LearningCurve`.
    """
    several = "time" in data.dims
    mean = data.mean("output") if "output" in data.dims else data
    times = (
        range(data.sizes["time"])[:: max(1, data.sizes["time"] // MOST_LINES)] if several else [0]
    )
    colours = shades(len(times)) if several else [distinct(0)]
    with style():
        aligned = "alignment" in mean
        figure, axes = panels(1, 1 + aligned, ("errors", "alignment")[: 1 + aligned])
        left = axes[0][0]
        for colour, i in zip(colours, times, strict=True):
            at = mean.isel(time=i) if several else mean
            label = f"time {float(at['time']):.3g}" if several else "predicted"
            _curve(left, at, colour, label, int(data.attrs["extrapolated_from"]))
        left.set(xlabel="training samples", ylabel="mean squared error", xscale="log", yscale="log")
        left.legend()
        if aligned:
            right, modes = axes[0][1], np.arange(1, mean.sizes["mode"] + 1)
            right.plot(modes, mean["alignment"].values, color=distinct(0))
            right.set(xlabel="modes of the kernel", ylabel="fraction of the targets", xscale="log")
            right.set_ylim(0, 1.02)
    return figure


def _curve(ax, data: xarray.Dataset, colour, label: str, samples: int) -> None:
    sizes, error = data["size"].values, data["mse_test"].values
    inside = sizes < samples
    ax.plot(sizes[inside], error[inside], color=colour, label=label)
    after = np.flatnonzero(~inside)
    if len(after):
        dashed = slice(max(after[0] - 1, 0), None)
        ax.plot(sizes[dashed], error[dashed], "--", color=colour)
    if "mse_test_error" in data:
        spread = 2 * data["mse_test_error"].values
        low = np.maximum(error - spread, error / 10)
        ax.fill_between(sizes, low, error + spread, color=colour, alpha=0.2, linewidth=0)
    if "measured_test" in data:
        known = "measured_test_error" in data
        bars = 2 * data["measured_test_error"].values if known else None
        ax.errorbar(sizes, data["measured_test"].values, bars, fmt="o", color=colour, markersize=3)
