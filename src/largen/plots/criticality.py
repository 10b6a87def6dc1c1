"""Pictures of order and chaos: the plane of constants, the edge, and signals layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from largen.plots.style import LIMIT, panels, style

if TYPE_CHECKING:
    from largen.criticality import EdgeOfChaos, PhaseDiagram, Propagation


def phase_figure(diagram: PhaseDiagram) -> Figure:
    """Draw log χ_⊥ over σ_w and σ_b, the edge, and depth scales as contours.

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
        figure.colorbar(image, ax=ax, label="log χ_⊥  (order < 0 < chaos)")
        if min(len(x), len(y)) > 1:
            depth = np.clip(np.nan_to_num(data["correlation_depth"].values.T), 0, 1e6)
            lines = ax.contour(x, y, depth, levels=[3, 10, 30], colors="0.3", linewidths=0.7)
            ax.clabel(lines, fmt=lambda level: f"{level:g} layers", fontsize=7)
            if "network_growth" in data:
                growth = data["network_growth"].values.T
                if np.nanmin(growth) < 0 < np.nanmax(growth):
                    ax.contour(x, y, growth, levels=[0.0], colors="tab:orange", linewidths=1.5)
            if "kernel_variance" in data:
                spread = np.nan_to_num(data["kernel_variance"].values.T, nan=np.inf, posinf=1e6)
                ax.contour(x, y, spread, levels=[1.0], colors="tab:green", linestyles="dotted")
        ax.plot(data["edge_weight_std"], data["edge_bias_std"], **LIMIT)
        ax.set(
            xlim=(x.min(), x.max() if len(x) > 1 else x.min() + 1),
            ylim=(y.min(), y.max() if len(y) > 1 else y.min() + 1),
            xlabel="σ_w",
            ylabel="σ_b",
            title=data.attrs["activation"],
        )
        ax.grid(False)
    return figure


def edge_figure(edge: EdgeOfChaos) -> Figure:
    """Draw the edge in the plane of σ_w and σ_b, and χ_∥ along it."""
    data = edge.to_xarray()
    with style():
        figure, axes = panels(1, 2)
        plane, along = axes[0]
        plane.plot(data["weight_std"], data["bias_std"], "-")
        along.plot(data["variance"], data["chi_parallel"], "-")
        along.axhline(1.0, **LIMIT)
        attracting = data["critical_attracts"].values != "nothing" if data.sizes["critical"] else []
        for i in np.flatnonzero(attracting):
            at = data.isel(critical=i)
            plane.plot(at["critical_weight_std"], at["critical_bias_std"], "o", color="black")
            if at["critical_variance"] > 0:
                along.plot(at["critical_variance"], 1.0, "o", color="black")
        plane.set(xlabel="σ_w", ylabel="σ_b", title=data.attrs["activation"])
        along.set(xlabel="K*", ylabel="χ_∥", xscale="log")
    return figure


def propagation_figure(propagation: Propagation) -> Figure:
    """Draw variances, correlations and the mean square of gradients by layer."""
    data = propagation.to_xarray()
    with style():
        figure, axes = panels(1, 3)
        layers = np.arange(data.sizes["layer"])
        first, second, third = axes[0]
        first.plot(layers, data["variance"], "o-", markersize=2.5)
        first.set(ylabel="variance K", yscale="log")
        n = data.sizes["sample"]
        rows, columns = np.triu_indices(n, 1)
        if len(rows):
            pairs = data["correlation"].values[:, rows, columns]
            second.plot(layers, pairs[:, :50], "o-", markersize=2.5)
        second.set(ylabel="correlation")
        factors = np.nan_to_num(data["chi_perp"].values, nan=1.0)
        third.plot(layers, np.cumprod(factors, axis=0), "o-", markersize=2.5)
        third.set(ylabel="mean square of gradients", yscale="log")
        for ax in axes[0]:
            ax.set(xlabel="layer")
    return figure
