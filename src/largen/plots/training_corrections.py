"""The picture of shift and variance in training to order 1/width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import shades, style

if TYPE_CHECKING:
    import xarray

MOST_LINES = 6


def training_corrections_figure(data: xarray.Dataset) -> Figure:
    """Draw N·(E f − f_∞) with its standard error, and N·Var f by the layers that cause it.

    ``data``: that of :class:`largen.experiments.WidthCorrectionsInTraining`.
    """
    time = data["time"].values
    with style():
        figure, axes = panels(1, 2, ("shift", "variance"))
        left, right = axes[0]
        shift, error = (
            data[name].values.reshape(len(time), -1)[:, :MOST_LINES]
            for name in ("f_train_shift", "f_train_shift_error")
        )
        for i, (line, width) in enumerate(zip(shift.T, error.T, strict=True)):
            left.plot(time, line, color=f"C{i}")
            left.fill_between(time, line - width, line + width, color=f"C{i}", alpha=0.2, lw=0)
        left.set(
            xlabel="time",
            ylabel=r"$N\,(\mathrm{E} f_N - f_\infty)$",
            title=f"{data.attrs['replicates']} replicates, N = {data.attrs['width']}",
        )
        parts = data["f_train_variance_of_layers"]
        mean = parts.mean([a for a in parts.dims if a not in ("group", "step")]).values
        names = [f"layer {name}" for name in data["group"].values]
        right.stackplot(time, np.asarray(mean), labels=names, colors=shades(len(names)))
        right.set(xlabel="time", ylabel=r"$N\,\mathrm{Var} f_N$, mean over samples")
        right.legend()
    return figure
