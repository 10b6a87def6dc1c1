"""Pictures of sweeps: the loss against the rate, for all widths and depths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import alone, for_all, panels
from largen.plots.style import LIMIT, legend_beside, scheme_title, shades, style

if TYPE_CHECKING:
    import xarray

DIVERGES: dict[str, Any] = {"marker": "x", "linestyle": "none", "color": "black", "markersize": 5}
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1.5)), (0, (5, 1, 1, 1)), (0, (1, 1)), "-")


def sweep_figure(
    data: xarray.Dataset, best: xarray.Dataset, transferred: float | None = None
) -> Figure:
    """Draw the loss after training against the rate, one panel for each scheme.

    Colours show depths, line styles and markers show widths; of a single depth, colours show
    widths. Filled markers are the best rates of their curves. Crosses at the top are rates at which
    training diverges.
    """
    schemes = data["scheme"].values
    with style():
        figure, grid = panels(1, len(schemes), [str(scheme) for scheme in schemes])
        for ax, scheme in zip(grid[0], schemes, strict=True):
            _curves(ax, data.sel(scheme=scheme), best.sel(scheme=scheme))
            ax.set_title(scheme_title(str(scheme)))
            if transferred is not None:
                ax.axvline(transferred, label="rate of the small model", **LIMIT)
        _same_limits(grid[0], data)
        diverges = [
            _divergent(ax, data.sel(scheme=s)) for ax, s in zip(grid[0], schemes, strict=True)
        ]
        for_all(figure, grid, grid[0, 0]).set_ylabel("loss after training")
        last = for_all(figure, grid, grid[0, -1])
        if any(diverges):
            last.plot([], [], label="training diverges", **DIVERGES)
        last.plot([], [], "o", color="0.4", markersize=5, label="filled: best rate")
        if alone():
            legend_beside(last)
        else:  # next to all panels, which then keep their widths
            figure.legend(*last.get_legend_handles_labels(), loc="outside right upper")
    return figure


def plain_losses(ax: Any) -> None:
    """Label losses by plain numbers, since the panel may contain no power of ten."""
    low, high = ax.get_ylim()
    if high >= 10 * low:
        return
    for axis_of in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis_of(plain_number)


def plain_number(value: float, _: int | None = None) -> str:
    """Return a tick's label without powers of ten, for an axis of a short range."""
    return f"{value:.3g}"


def _curves(ax: Any, data: xarray.Dataset, best: xarray.Dataset) -> None:
    loss = data["loss"]
    varies = "depth" if loss.sizes["depth"] > 1 else "width"
    colours = shades(loss.sizes[varies])
    for i, depth in enumerate(loss["depth"].values):
        for j, width in enumerate(loss["width"].values):
            surface = loss.sel(width=width, depth=depth)
            run = surface.notnull().any("seed")
            if not run.any():
                continue
            lr, value = surface["lr"].values[run.values], surface.mean("seed").values[run.values]
            value = np.where(np.isfinite(value), value, np.nan)
            look: dict[str, Any] = {
                "color": colours[i if varies == "depth" else j],
                "linestyle": LINES[j % len(LINES)],
                "marker": MARKERS[j % len(MARKERS)],
            }
            label = f"width {width}, depth {depth}"
            ax.plot(lr, value, markersize=3, markerfacecolor="none", label=label, **look)
            there = best.sel(width=width, depth=depth)
            if there["trains"]:
                look["linestyle"] = "none"
                ax.plot(2.0 ** float(there["grid"]), float(there["loss"]), markersize=5, **look)
    ax.set_xscale("log", base=2)
    ax.set(yscale="log", xlabel=r"learning rate $\eta_0$")


def _divergent(ax: Any, data: xarray.Dataset) -> bool:
    """Mark the rates at which networks of some size diverge; return whether there are any."""
    loss = data["loss"]
    ran = loss.notnull().any([axis for axis in loss.dims if axis != "lr"])
    lost = (loss == np.inf).any([axis for axis in loss.dims if axis != "lr"])
    rates = loss["lr"].values[(ran & lost).values]
    if not len(rates):  # without points what is not clipped would have its place at the origin
        return False
    low, high = ax.get_ylim()
    ax.plot(rates, np.full(len(rates), high * (low / high) ** 0.03), clip_on=False, **DIVERGES)
    return True


def _same_limits(axes: Any, data: xarray.Dataset) -> None:
    """Give all panels one range of rates, and of losses up to twice that of a constant."""
    rates = data["loss"].dropna("lr", how="all")["lr"].values
    rates = rates[rates > 0]
    if rates.size:
        for ax in axes:
            ax.set_xlim(rates.min() / 2**0.5, rates.max() * 2**0.5)
    values = data["loss"].values
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return
    top = min(values.max(), 2 * data.attrs.get("chance", np.inf))
    bottom = min(values.min(), top)
    margin = max((top / bottom) ** 0.08, 1.02)
    for ax in axes:
        ax.set_ylim(bottom / margin, top * margin)
        plain_losses(ax)
