"""The picture of random features: errors against their number, and the best ridges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import shades, style

if TYPE_CHECKING:
    import xarray

MOST_LINES = 8


def random_feature_figure(data: xarray.Dataset) -> Figure:
    """Draw errors at the last time against features, and the best ridges.

    Dashed lines are errors with the best ridge; bars are two standard errors. Of several outputs
    the mean is drawn.

    Parameters
    ----------
    data
        The data set of a :class:`largen.regression.RandomFeatureCurve`.
    """
    mean = data.mean("output") if "output" in data.dims else data
    mean = mean.isel(time=-1) if "time" in mean.dims else mean
    sizes = range(mean.sizes["size"])[:: max(1, mean.sizes["size"] // MOST_LINES)]
    widths = mean["width"].values
    with style():
        figure, axes = panels(1, 2, ("errors", "best ridge"))
        left, right = axes[0]
        for colour, i in zip(shades(len(sizes)), sizes, strict=True):
            at = mean.isel(size=i)
            errors = at["mse_test"].values
            finite = np.isfinite(errors)
            left.plot(widths[finite], errors[finite], color=colour, label=f"n = {int(at['size'])}")
            left.plot(widths, at["best_mse"].values, "--", color=colour)
            if "measured_test" in at:
                known = "measured_test_error" in at
                bars = 2 * at["measured_test_error"].values if known else None
                style_ = {"fmt": "o", "color": colour, "markersize": 3}
                left.errorbar(widths, at["measured_test"].values, bars, **style_)
            right.plot(widths, at["best_ridge"].values, color=colour)
        left.set(xlabel="features", ylabel="mean squared error", xscale="log", yscale="log")
        left.legend()
        right.set(xlabel="features", ylabel="best ridge", xscale="log", yscale="symlog")
    return figure
