"""Pictures of order and chaos: the plane of constants, the edge, and signals layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import colour_bar, panels
from largen.plots.style import CYCLE, LIMIT, legend_below, style

if TYPE_CHECKING:
    import xarray

WEIGHTS, BIASES = r"weights' $\sigma_w$", r"biases' $\sigma_b$"


@runtime_checkable
class Drawable(Protocol):
    """A result of :mod:`largen.criticality`, from a room above this one."""

    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers with named axes."""
        ...


def phase_figure(diagram: Drawable) -> Figure:
    """Draw a phase diagram: log χ_⊥ over σ_w and σ_b, the edge, and depth scales as contours.

    Given a width and a depth, a dotted line shows where V/K² = 1. Given networks, an orange line
    shows where their gradients neither grow nor vanish.
    """
    data = diagram.to_xarray()
    with style():
        figure, axes = panels(1, 1)
        ax = axes[0, 0]
        x, y = data["weight_std"].values, data["bias_std"].values
        exponent = np.log(data["chi_perp"].values).T
        size = np.nanmax(np.abs(exponent)) if np.isfinite(exponent).any() else 1.0
        size = min(size, 1.5)
        image = ax.pcolormesh(
            x, y, exponent, cmap="RdBu_r", vmin=-size, vmax=size, shading="nearest", rasterized=True
        )
        colour_bar(figure, [(ax, image)], label=r"$\log\,\chi_\perp$")
        if min(len(x), len(y)) > 1:
            depth = np.clip(np.nan_to_num(data["correlation_depth"].values.T), 0, 1e6)
            lines = ax.contour(x, y, depth, levels=[3, 10, 30], colors="0.3", linewidths=0.7)
            ax.clabel(lines, fmt="%g", fontsize="small")
            ax.plot([], [], color="0.3", linewidth=0.7, label=r"depth scale $\xi_c$, in layers")
            if "network_growth" in data:
                growth = data["network_growth"].values.T
                if np.nanmin(growth) < 0 < np.nanmax(growth):
                    ax.contour(x, y, growth, levels=[0.0], colors=CYCLE[1], linewidths=1.5)
                    ax.plot([], [], color=CYCLE[1], label="networks: gradients keep their size")
            if "kernel_variance" in data:
                spread = np.nan_to_num(data["kernel_variance"].values.T, nan=np.inf, posinf=1e6)
                if spread.min() < 1 < spread.max():
                    ax.contour(x, y, spread, levels=[1.0], colors=CYCLE[2], linestyles="dotted")
                    words = r"kernel fluctuates by its size, $V/K^2 = 1$"
                    ax.plot([], [], color=CYCLE[2], linestyle="dotted", label=words)
        edge = data["edge_weight_std"], data["edge_bias_std"]
        ax.plot(*edge, label=r"edge of chaos, $\chi_\perp = 1$", **LIMIT)
        ax.set(
            xlim=(x.min(), x.max() if len(x) > 1 else x.min() + 1),
            ylim=(y.min(), y.max() if len(y) > 1 else y.min() + 1),
            xlabel=WEIGHTS,
            ylabel=BIASES,
            title=f"order (blue) and chaos (red): {data.attrs['activation']}",
        )
        ax.grid(visible=False)
        legend_below(ax, 1)
    return figure


def network_figure(diagram: Drawable) -> Figure:
    """Draw a network over σ_w and σ_b: the growth of gradients, correlations and variances."""
    data = diagram.to_xarray()
    x, y = data["weight_std"].values, data["bias_std"].values
    with style():
        figure, axes = panels(1, 3, ("gradients", "correlation", "variance"))
        growth, correlation = data["gradient_growth"].values.T, data["correlation"].values.T
        with np.errstate(divide="ignore"):
            variance = np.log10(data["variance"].values.T)
        known = growth[np.isfinite(growth)]
        size = np.abs(known).max(initial=1e-3)
        shown = (
            (
                growth,
                r"growth of gradients, $\log$",
                {"cmap": "RdBu_r", "vmin": -size, "vmax": size},
            ),
            (correlation, "correlation of outputs", {"vmax": 1.0}),
            (np.where(np.isfinite(variance), variance, np.nan), r"variance, $\log_{10}$", {}),
        )
        for ax, (values, title, colours) in zip(axes[0], shown, strict=True):
            image = ax.pcolormesh(x, y, values, shading="nearest", rasterized=True, **colours)
            colour_bar(figure, [(ax, image)])
            ax.set(xlabel=WEIGHTS, ylabel=BIASES, title=title)
            ax.grid(visible=False)
        if min(len(x), len(y)) > 1 and known.min(initial=0.0) < 0 < known.max(initial=0.0):
            axes[0, 0].contour(x, y, growth, levels=[0.0], colors="black", linestyles="dashed")
    return figure


def edge_figure(edge: Drawable) -> Figure:
    """Draw the edge of chaos in the plane of σ_w and σ_b, and χ_∥ along it."""
    data = edge.to_xarray()
    with style():
        figure, axes = panels(1, 2, ("plane", "along"))
        plane, along = axes[0]
        plane.plot(data["weight_std"], data["bias_std"], "-")
        along.plot(data["variance"], data["chi_parallel"], "-")
        along.axhline(1.0, label=r"$\chi_\parallel = 1$", **LIMIT)
        attracting = data["critical_attracts"].values != "nothing" if data.sizes["critical"] else []
        for i in np.flatnonzero(attracting):
            at = data.isel(critical=i)
            words = "doubly critical, attracting" if i == np.flatnonzero(attracting)[0] else None
            point = at["critical_weight_std"], at["critical_bias_std"]
            plane.plot(*point, "o", color="black", label=words)
            if at["critical_variance"] > 0:
                along.plot(at["critical_variance"], 1.0, "o", color="black")
        plane.set(xlabel=WEIGHTS, ylabel=BIASES, title=f"edge of chaos: {data.attrs['activation']}")
        if np.any(attracting):
            plane.legend()
        along.set(
            xlabel=r"variance $K^*$ of the fixed point",
            ylabel=r"$\chi_\parallel$",
            xscale="log",
            title="change of variance from layer to layer",
        )
        along.legend()
    return figure


def propagation_figure(propagation: Drawable) -> Figure:
    """Draw by layers the variances, the correlations and the mean square of gradients."""
    data = propagation.to_xarray()
    with style():
        figure, axes = panels(1, 3, ("variance", "correlation", "gradients"))
        layers = np.arange(data.sizes["layer"])
        first, second, third = axes[0]
        first.plot(layers, data["variance"], "o-", markersize=2.5)
        first.set(ylabel="variance $K$", yscale="log", title="each line: a sample")
        n = data.sizes["sample"]
        rows, columns = np.triu_indices(n, 1)
        if len(rows):
            pairs = data["correlation"].values[:, rows, columns]
            second.plot(layers, pairs[:, :50], "o-", markersize=2.5)
        second.set(ylabel="correlation $c$", title="each line: a pair of samples")
        factors = np.nan_to_num(data["chi_perp"].values, nan=1.0)
        third.plot(layers, np.cumprod(factors, axis=0), "o-", markersize=2.5)
        third.set(ylabel="mean square of gradients", yscale="log", title="relative to the input")
        for ax in axes[0]:
            ax.set(xlabel="layer")
    return figure
