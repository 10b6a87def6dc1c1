"""Pictures of training with large steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import for_all, panels
from largen.plots.style import CYCLE, LIMIT, shades, style

if TYPE_CHECKING:
    import xarray


def catapult_figure(result: Any) -> Figure:
    """Draw the loss and ηλ of a :class:`largen.experiments.Catapult` against the step."""
    with style():
        figure, axes = panels(1, 2, ("loss", "kernel"))
        loss, kernel = axes[0]
        steps = np.arange(len(result.losses))
        loss.plot(steps, result.losses, color=CYCLE[0])
        loss.set(xlabel="step", ylabel="loss", yscale="log", title=result.of)
        rates = np.concatenate([result.rates, result.rates[-1:]])
        kernel.plot(steps, rates * result.kernels, color=CYCLE[1])
        kernel.axhline(2, label=r"$\eta\lambda = 2$", **LIMIT)
        kernel.set(xlabel="step", ylabel=r"$\eta\lambda$", title=f"c = {result.coupling:.3g}")
        kernel.legend()
    return figure


def catapult_diagram_figure(data: xarray.Dataset) -> Figure:
    """Draw the outcome of training with large steps against x = ηλ₀; dashed: the quadratic model.

    ``data``: that of :class:`largen.experiments.CatapultDiagram`.
    """
    alive, rate = data["alive"], data["rate"]
    quantities = {
        "share that does not diverge": alive.mean("seed"),
        r"$\eta\lambda$ after training": (rate * data["curvature"] / data["initial_curvature"])
        .where(alive)
        .median("seed"),
        "largest loss / initial loss": (data["largest_loss"] / data["initial_loss"])
        .where(alive)
        .median("seed"),
        f"steps to {data.attrs['level']:g} of the initial loss": data["steps"].median("seed"),
    }
    with style():
        figure, axes = panels(2, 2, ("survival", "kernel", "largest_loss", "steps"))
        colours = shades(data.sizes["width"])
        for place, (ax, (title, values)) in enumerate(
            zip(axes.flat, quantities.items(), strict=True)
        ):
            for model in data["model"].values:
                for colour, width in zip(colours, data["width"].values, strict=True):
                    ax.plot(
                        rate,
                        values.sel(model=model, width=width),
                        "s--" if model == "quadratic" else "o-",
                        markersize=3,
                        color=colour,
                        label=f"N = {width}, quadratic" if model == "quadratic" else f"N = {width}",
                    )
            ax.axvline(2, **LIMIT)
            ax.set(xlabel=r"$x = \eta\lambda_0$", ylabel=title)
            if place >= 2 and (values > 0).any():
                ax.set(yscale="log")
            if place == 1:
                ax.axhline(2, **LIMIT)
        for_all(figure, axes, axes[0, 0]).legend()
    return figure
