"""The picture of learning-rate curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from largen.errors import InvalidInput, instance_of
from largen.plots.panels import alone, panels
from largen.plots.style import LIMIT, shades, style

FEW = 5  # the largest number of entries of a legend within the axes
NARROW = 1.5  # decades of rates, below which powers of ten are too few ticks


def learning_rate_figure(curves: Sequence[Any]) -> Figure:
    """Draw losses against learning rates; crosses mark rates at which training diverges.

    Parameters
    ----------
    curves
        Results of :func:`largen.learning_rate_curve`, one or more. The first, usually that of the
        limit, is drawn in black, and its optimum is marked; ``curve.plot(path, others=[…])`` draws
        the same.

    Raises
    ------
    InvalidInput
        If there are no curves, or other things than curves.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(1.0), steps=4)
    >>> curve = lg.learning_rate_curve(run, [0.5, 1.0, 2.0])
    >>> lg.plots.learning_rate_figure([curve]).axes[0].get_ylabel()
    'training loss after training'
    """
    instance_of("curves", curves, Sequence, "a list of results of lg.learning_rate_curve")
    if not curves or not all(hasattr(curve, "diverged") for curve in curves):
        raise InvalidInput("curves: wanted one or more results of lg.learning_rate_curve.")
    with style():
        figure, axes = panels(1, 1)
        ax = axes[0, 0]
        colours = iter(shades(max(len(curves) - 1, 1)))
        for i, curve in enumerate(curves):
            line: dict[str, Any] = dict(LIMIT) if i == 0 else {"color": next(colours)}
            stable = ~curve.diverged
            ax.errorbar(
                curve.rates[stable],
                curve.losses[stable],
                np.nan_to_num(2 * curve.errors[stable]),
                marker="o",
                markersize=3,
                label=curve.of,
                **line,
            )
            most = max(each.initial for each in curves)
            bad = curve.rates[~stable]
            ax.plot(bad, np.full(len(bad), 1.3 * most), "x", color=line["color"], markersize=5)
        if any(curve.diverged.any() for curve in curves):
            ax.plot([], [], "x", color="black", markersize=5, label="training diverges")
        if np.isfinite(curves[0].optimum):
            ax.axvline(curves[0].optimum, color="grey", linestyle=":", label="optimum of the first")
        ax.set(
            xscale="log",
            yscale="log",
            xlabel=r"learning rate $\eta_0$",
            ylabel=f"{'training' if curves[0].on == 'train' else 'test'} loss after training",
            title="loss after training, by rate",
        )
        if len(ax.get_legend_handles_labels()[1]) <= FEW or alone():
            ax.legend()
        else:
            figure.legend(loc="outside lower center", ncols=2, fontsize="small")
        if np.ptp(np.log10(curves[0].rates)) < NARROW:
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
    return figure
