"""Pictures of forecasts: the curve of the wide network with its band, the best rate, and a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from largen.plots.panels import headline, panels
from largen.plots.style import LIMIT, shades, size_axis, style
from largen.plots.sweeps import plain_losses

if TYPE_CHECKING:
    import xarray

WIDE = "#D55E00"  # the colour of the forecast
ALARM: dict[str, Any] = {"color": "grey", "linestyle": ":", "linewidth": 1.0}


def forecast_figure(
    data: xarray.Dataset, best: Any, network: xarray.DataArray, mean: xarray.DataArray
) -> Figure:
    """Draw the forecast at the rate nearest to the best one, and the final loss against the rate.

    Bands are those of one network, and darker those of the mean over networks. Of a loss at one
    time only, the left panel has the size along its axis.
    """
    near = int(np.abs(np.log(data["lr"].values / best.lr.at)).argmin())
    with style():
        figure, axes = panels(1, 2, ["curve", "rates"])
        left, right = axes[0]
        if data.sizes["time"] > 1:
            _curve(left, data, near, network, mean)
        else:
            _sizes(left, data, near, network)
        _rates(right, data, best, network, mean)
        headline(figure, f"{data.attrs['of'].replace('_', ' ')} of size {data.attrs['target']:g}")
    return figure


def _curve(ax: Any, data: xarray.Dataset, near: int, network: Any, mean: Any) -> None:
    steps = data["time"].values
    for size, losses, colour in _pilots(data):
        ax.plot(steps, losses[near], color=colour, label=f"{size:g}")
    for band, shade in ((network, 0.2), (mean, 0.4)):
        ax.fill_between(steps, *band.values[:, near], color=WIDE, alpha=shade, linewidth=0)
    ax.plot(steps, data["loss"].values[near], color=WIDE, label=f"{data.attrs['target']:g}")
    rate = data["lr"].values[near]
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="loss", title=f"rate {rate:.3g}")
    plain_losses(ax)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.legend()


def _sizes(ax: Any, data: xarray.Dataset, near: int, network: Any) -> None:
    sizes = data["size"].values
    losses, errors = (data[n].values[:, near, -1] for n in ("pilot_loss", "pilot_loss_error"))
    ax.errorbar(sizes, losses, 2 * errors, fmt="o", markersize=4, color="0.3", label="pilots")
    told, target = data["loss"].values[near, -1], data.attrs["target"]
    low, high = network.values[:, near, -1]
    ax.errorbar(
        [target], [told], [[told - low], [high - told]], fmt="s", color=WIDE, label="forecast"
    )
    size_axis(ax, [*sizes, target], "size")
    ax.set(ylabel="loss after training", title=f"rate {data['lr'].values[near]:.3g}")
    ax.legend()


def _rates(ax: Any, data: xarray.Dataset, best: Any, network: Any, mean: Any) -> None:
    rates = data["lr"].values
    for size, losses, colour in _pilots(data):
        ax.plot(rates, losses[:, -1], "o-", markersize=3, color=colour, label=f"{size:g}")
    for band, shade in ((network, 0.2), (mean, 0.4)):
        ax.fill_between(rates, *band.values[..., -1], color=WIDE, alpha=shade, linewidth=0)
    ax.plot(rates, data["loss"].values[:, -1], "o-", markersize=3, color=WIDE)
    if len(rates) > 1:
        ax.axvspan(best.lr.low, best.lr.high, color=WIDE, alpha=0.12, linewidth=0)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="learning rate", ylabel="loss at the end", title="rates")


def _pilots(data: xarray.Dataset) -> Any:
    """Return sizes, losses (rate, time) and colours of the pilots."""
    sizes = data["size"].values
    return zip(sizes, data["pilot_loss"].values, shades(len(sizes) + 1), strict=False)


def monitor_figure(data: xarray.Dataset) -> Figure:
    """Draw a run over its forecast, and its distance from it in standard deviations."""
    steps, wanted, error = (data[n].values for n in ("window", "forecast", "error"))
    with style():
        figure, axes = panels(1, 2, ["loss", "distance"])
        left, right = axes[0]
        left.fill_between(
            steps, wanted - 2 * error, wanted + 2 * error, color=WIDE, alpha=0.3, linewidth=0
        )
        left.plot(steps, wanted, color=WIDE, label="forecast ± 2 errors")
        left.plot(steps, data["loss"].values, "k.", markersize=4, label="run")
        left.set(xlabel="step", ylabel="loss", title="loss")
        left.legend()
        right.axhline(0.0, **LIMIT)
        for sign in (-1, 1):
            right.axhline(sign * data.attrs["alarm"], **ALARM)
        right.plot(steps, data["z"].values, "k.-", markersize=4)
        right.set(xlabel="step", ylabel="errors", title="distance from the forecast")
        headline(figure, f"run of size {data.attrs['target']:g}, rate {data.attrs['lr']:.3g}")
    return figure
