"""The picture of the law of networks of a width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import CYCLE, LIMIT, distinct, style

if TYPE_CHECKING:
    import xarray

MOST_LINES = 6
BAND = (0.05, 0.95)


def predicted_networks_figure(data: xarray.Dataset) -> Figure:
    """Draw mean losses with the middle nine tenths of networks, the limit's, and outputs ± std.

    Parameters
    ----------
    data
        The data set of a :class:`largen.experiments.PredictedNetworks`.
    """
    time = data["time"].values
    with style():
        figure, axes = panels(1, 2, ("loss", "outputs"))
        left, right = axes[0]
        for i, on in enumerate(on for on in ("train", "test") if f"loss_{on}" in data):
            loss, colour = data[f"loss_{on}"].values, CYCLE[i]
            left.plot(time, loss.mean(0), color=colour, label=on)
            left.fill_between(
                time, *np.quantile(loss, BAND, axis=0), color=colour, alpha=0.25, lw=0
            )
            left.plot(time, data[f"loss_{on}_limit"].values, **LIMIT)
        left.plot([], [], label="limit", **LIMIT)
        left.set(xlabel="time", ylabel="loss, 90 % of networks", title=f"N = {data.attrs['width']}")
        left.legend()
        on = "test" if "f_test" in data else "train"
        f, std = (data[f"f_{on}{end}"].values.reshape(len(time), -1) for end in ("", "_std"))
        for i in range(min(MOST_LINES, f.shape[1])):
            low, high = f[:, i] - std[:, i], f[:, i] + std[:, i]
            right.plot(time, f[:, i], color=distinct(i))
            right.fill_between(time, low, high, color=distinct(i), alpha=0.25, lw=0)
        right.set(xlabel="time", ylabel=rf"$f$ on {on} samples $\pm$ std")
    return figure
