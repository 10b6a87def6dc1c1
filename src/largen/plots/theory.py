"""Pictures of posteriors and of response functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from largen.plots.panels import colour_bar, panels
from largen.plots.style import legend_below, shades, style

if TYPE_CHECKING:
    import xarray

MOST_OUTPUTS, MOST_LAYERS = 6, 4


def posterior_figure(data: xarray.Dataset) -> Figure:
    """Draw the mean of a Gaussian process at test samples, with two standard deviations.

    Samples are sorted by the mean of the first output. If there are several times, the last one is
    drawn.

    Parameters
    ----------
    data
        The data set of a prediction: ``mean`` and ``variance``.
    """
    mean = np.asarray(data["mean"].values)
    variance = np.asarray(data["variance"].values)
    if variance.ndim > 1:  # a leading axis of times
        mean, variance = mean[-1], variance[-1]
    mean = mean.reshape(len(variance), -1)[:, :MOST_OUTPUTS]
    order = np.argsort(mean[:, 0], kind="stable")
    place, spread = np.arange(len(order)), 2 * np.sqrt(np.maximum(variance[order], 0.0))
    with style():
        figure, axes = panels(1, 1)
        ax = axes[0, 0]
        for i, colour in enumerate(shades(mean.shape[1])):
            ax.errorbar(
                place,
                mean[order, i],
                spread,
                fmt="o",
                markersize=3,
                elinewidth=0.8,
                color=colour,
                label=r"mean $\pm$ 2 standard deviations" if mean.shape[1] == 1 else f"output {i}",
            )
        ax.set(
            xlabel="test sample, sorted by its mean",
            ylabel=r"output $f$",
            title=r"Gaussian process: mean $\pm$ 2 standard deviations",
        )
        legend_below(ax)
    return figure


def response_figure(data: xarray.Dataset) -> Figure:
    """Draw response functions between times, averaged over equal samples, of the first output.

    The response of the features at a time t to a field at an earlier time s is below the diagonal;
    it vanishes above, since effects follow their causes.

    Parameters
    ----------
    data
        The data set of :func:`largen.theories.response_functions`.
    """
    layers = min(data.sizes["layer"], MOST_LAYERS)
    with style():
        above, below = (data[axis].values[:layers] for axis in ("layer", "layer_below_last"))
        names = [*(f"A_{layer}" for layer in above), *(f"B_{layer}" for layer in below)]
        figure, axes = panels(2, layers, names)
        for row, (name, axis, words) in enumerate(
            (
                ("A", "layer", r"$A^{%d}(t, s)$: features"),
                ("B", "layer_below_last", r"$B^{%d}(t, s)$: gradients"),
            )
        ):
            of_one = data[name].isel(output=0) if "output" in data.dims else data[name]
            kernels = np.einsum("ltpsp->lts", of_one.values) / data.sizes["sample"]
            for i, ax in enumerate(axes[row]):
                if i >= len(kernels):
                    ax.remove()
                    continue
                most = float(np.abs(kernels[i]).max()) or 1.0
                image = ax.imshow(kernels[i], vmin=-most, vmax=most, cmap="RdBu_r")
                ax.yaxis.set_major_locator(MaxNLocator(integer=True))
                ax.set(
                    xlabel=r"time index $s$ of the field",
                    ylabel=r"time index $t$",
                    title=words % int(data[axis].values[i]),
                )
                ax.grid(visible=False)
                colour_bar(figure, [(ax, image)], shrink=0.8)
    return figure
