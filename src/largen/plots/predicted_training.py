"""The picture of a network's training and its expansion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import LIMIT, distinct, style

if TYPE_CHECKING:
    import xarray

MOST_LINES = 6
WORDS = ("constant kernel", "first order", "second order")


def predicted_figure(data: xarray.Dataset) -> Figure:
    """Draw outputs to second order, and the error of each order.

    Without the trained network, the distance of each order from the second is drawn instead.

    ``data``: that of :class:`largen.experiments.PredictedTraining`.
    """
    known = "f_train_actual" in data
    time = data["time"].values
    with style():
        figure, axes = panels(1, 2, ("outputs", "errors"))
        left, right = axes[0]
        lines = data["f_train"].values.reshape(3, len(time), -1)[:, :, :MOST_LINES]
        for i in range(lines.shape[2]):
            left.plot(
                time, lines[2, :, i], color=distinct(i), label="second order" if i == 0 else None
            )
            left.plot(
                time,
                lines[0, :, i],
                ":",
                color=distinct(i),
                label="constant kernel" if i == 0 else None,
            )
        if known:
            actual = data["f_train_actual"].values.reshape(len(time), -1)[:, :MOST_LINES]
            left.plot(time, actual, **LIMIT)
            left.plot([], [], label="the network", **LIMIT)
        left.set(
            xlabel="time", ylabel=r"$f$ on training samples", title=f"N = {data.attrs['width']}"
        )
        left.legend()
        truth = data["f_train_actual"] if known else data["f_train"].isel(order=2)
        gap = data["f_train"] - truth
        square = (gap**2).mean([a for a in gap.dims if a not in ("order", "step")])
        rest = np.sqrt(square.values)
        for order, words in enumerate(WORDS if known else WORDS[:2]):
            right.plot(time[1:], rest[order, 1:], color=distinct(order), label=words)
        right.set(
            xlabel="time",
            ylabel="rms error" if known else "rms distance from the second order",
            yscale="log",
        )
        right.legend()
    return figure
