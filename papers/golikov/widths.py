"""Panels that compare networks of several scalings against the width."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import headline, panels
from largen.plots.style import LIMIT, distinct, size_axis, style

COLOURS = {
    "mean field": "#1f77b4",
    "NTK": "#ff7f0e",
    "intermediate": "#2ca02c",
    "default": "black",
    "reference": "#d62728",
}
Panel = Callable[[Any], None]


def row(title: str, *rows: Sequence[Panel]) -> Figure:
    """Draw rows of panels; a function of the axes draws each panel."""
    with style():
        figure, axes = panels(len(rows), max(map(len, rows)))
        for line, these in zip(axes, rows, strict=True):
            for ax, draw in zip(line, these, strict=False):
                draw(ax)
            for ax in line[len(these) :]:
                ax.remove()
        headline(figure, title)
    return figure


def loss_panel(
    ax: Any,
    # For each scaling its widths, each with the losses (seed) of its networks.
    losses: Mapping[str, Sequence[tuple[int, np.ndarray]]],
    # The limit's loss by scaling, drawn as a dashed line.
    limits: Mapping[str, float] | None = None,
    title: str = "final test loss",
) -> None:
    """Draw the mean test loss against the width, with its standard deviation over networks."""
    usual = []
    for name, points in losses.items():
        widths = np.array([width for width, _ in points])
        mean, spread = (
            np.array([f(loss) for _, loss in points]) for f in (np.mean, lambda x: x.std(ddof=1))
        )
        ax.errorbar(widths, mean, spread, fmt="o-", markersize=3.5, color=COLOURS[name], label=name)
        if name != "default":
            usual += [*(mean - spread), *(mean + spread)]
    for name, value in (limits or {}).items():
        ax.axhline(value, **{**LIMIT, "color": COLOURS[name], "linewidth": 1.0})
        usual.append(value)
    size_axis(ax, np.unique([width for points in losses.values() for width, _ in points]))
    low, high = np.nanmin(usual), np.nanmax(usual)
    # The default scaling is left out of the range of the panel, since its losses grow.
    ax.set_ylim(low - 0.15 * (high - low), high + 0.5 * (high - low))
    ax.set(title=title, ylabel="test loss")
    ax.legend()


def exponents_panel(ax: Any, laws: Mapping[str, Mapping[str, tuple[Any, float | None]]]) -> None:
    """Draw fitted exponents with intervals of 95 %, and predictions, if any, as ticks."""
    names = list(next(iter(laws.values())))
    for shift, (scaling, fitted) in enumerate(laws.items()):
        x = np.arange(len(names)) + 0.17 * (shift - (len(laws) - 1) / 2)
        for place, name in zip(x, names, strict=True):
            law, wanted = fitted[name]
            label = scaling if name == names[0] else None
            ax.errorbar(
                place,
                law.value,
                2 * law.error,
                fmt="o",
                markersize=4,
                color=COLOURS[scaling],
                label=label,
            )
            if wanted is not None:
                ax.plot([place - 0.07, place + 0.07], [wanted] * 2, color="red", linewidth=1.8)
    ax.set_xticks(np.arange(len(names)), names, rotation=60 if len(names) > 8 else 0)
    predicted = any(q is not None for fitted in laws.values() for _, q in fitted.values())
    title = "exponents (red ticks: predicted)" if predicted else "exponents"
    ax.set(title=title, ylabel="power of N")
    ax.legend()


def loss_curves_panel(ax: Any, losses: Mapping[str, np.ndarray], title: str = "") -> None:
    """Draw test losses ``(sample, step)`` by name: mean, and standard deviation over samples."""
    for name, loss in losses.items():
        steps, mean = np.arange(loss.shape[1]), loss.mean(0)
        how: dict[str, Any] = {"color": COLOURS[name], "label": name}
        if name != "reference":
            how["linestyle"] = (0, (4, 2))
        ax.plot(steps, mean, **how)
        if len(loss) > 1:
            spread = loss.std(0, ddof=1)
            band = mean - spread, mean + spread
            ax.fill_between(steps, *band, color=COLOURS[name], alpha=0.15, linewidth=0)
    ax.set(title=title or "reference network and limits", xlabel="step", ylabel="test loss")
    ax.legend()


def sizes_panel(
    ax: Any,
    sizes: Mapping[str, tuple[np.ndarray, np.ndarray]],
    title: str,
    ylabel: str,
    colours: Mapping[str, Any] | None = None,
) -> None:
    """Draw sizes ``(width, seed)`` against the width, by name, on logarithmic axes."""
    for i, (name, (widths, values)) in enumerate(sizes.items()):
        colour = distinct(i) if colours is None else colours[name]
        mean = values.mean(1)
        error = values.std(1, ddof=1) / np.sqrt(values.shape[1])
        ax.errorbar(widths, mean, 2 * error, fmt="o-", markersize=3.5, color=colour, label=name)
    size_axis(ax, next(iter(sizes.values()))[0])
    ax.set(yscale="log", title=title, ylabel=ylabel)
    # Room for the legend above the points.
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** (0.25 if len(sizes) < 5 else 0.4))
    ax.legend(loc="upper right", ncols=2)
