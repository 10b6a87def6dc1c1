"""The picture of the plane of scalings: regions, lines and named points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from largen.plots.panels import panels, resize
from largen.plots.style import distinct, style

REGIONS = {
    "divergent from the start": "#f2d3cf",
    "divergent": "#f7e3d4",
    "vanishing": "#e3e8ee",
}
WORDS = {
    "divergent from the start": "outputs diverge\nfrom the start",
    "divergent": "outputs diverge\nin training",
    "vanishing": "outputs vanish",
}
STUCK = {"color": "#6b7280", "linestyle": (0, (1, 1.2)), "linewidth": 2.0}


def scaling_figure(
    q_sigma: Sequence[float],
    rate: Sequence[float],
    regions: np.ndarray,
    lines: Mapping[str, np.ndarray],
    named: Mapping[str, tuple[float, ...]],
    difference: float,
) -> Figure:
    """Draw the plane of (q_σ, q̃_a).

    Parameters
    ----------
    q_sigma, rate
        The lattices of q_σ and q̃_a.
    regions
        Classes of its cells, ``(rate − 1, q_sigma − 1)``.
    lines
        Segments by class, ``(segment, end, 2)``.
    named
        (q_σ, q̃_a, q̃_w) by name; points off this plane are drawn hollow.
    difference
        q̃_w − q̃_a.
    """
    x, y = np.asarray(q_sigma), np.asarray(rate)
    centre = (x[:-1] + x[1:]) / 2
    # Divergence at initialisation and divergence by training are one class.
    kinds = regions.astype("<U32")
    kinds[(regions == "divergent") & (centre[None] > -0.5)] = "divergent from the start"
    with style():
        figure, axes = panels(1, 1)
        resize(figure, 6.4, 5.2)
        ax = axes[0, 0]
        ax.grid(False)
        known = list(REGIONS)
        shown = np.vectorize(lambda kind: known.index(kind) if kind in known else -1)(kinds)
        ax.pcolormesh(
            x,
            y,
            np.ma.masked_less(shown, 0),
            cmap=ListedColormap(list(REGIONS.values())),
            vmin=-0.5,
            vmax=len(known) - 0.5,
        )
        for kind in known:
            _word(ax, kinds == kind, x, y, WORDS[kind])
        _order_one(ax, x, difference)
        _lines(ax, lines)
        _points(ax, named, difference)
        shift = "" if difference == 0 else f"{difference:+g}"
        title = rf"$\tilde q_w = \tilde q_a{shift}$"
        ax.set(
            xlim=(x[0], x[-1]),
            ylim=(y[0], y[-1]),
            xlabel=r"$q_\sigma$   ($\sigma \propto N^{q_\sigma}$: initial scale of the output)",
            ylabel=r"$\tilde q_a$   ($\hat\eta_a \propto N^{\tilde q_a}$: rate / initial variance)",
            title=f"limits of one hidden layer by its scaling, {title}",
        )
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    return figure


def _word(ax: Any, where: np.ndarray, x: np.ndarray, y: np.ndarray, words: str) -> None:
    """Write a region's name where it is widest: at the cell farthest from its border."""
    if where.sum() < 0.02 * where.size:
        return
    inside, depth = where.copy(), np.zeros(where.shape)
    while inside.any():
        depth += inside
        padded = np.pad(inside, 1, constant_values=False)
        inside = inside & padded[:-2, 1:-1] & padded[2:, 1:-1]
        inside &= padded[1:-1, :-2] & padded[1:-1, 2:]
    middle = np.argwhere(where).mean(0)
    deepest = np.argwhere(depth == depth.max())
    row, column = deepest[np.argmin(((deepest - middle) ** 2).sum(1))]
    ax.text(
        (x[column] + x[column + 1]) / 2,
        (y[row] + y[row + 1]) / 2,
        words,
        ha="center",
        va="center",
        color="#4b5563",
        fontsize="medium",
        style="italic",
    )


def _order_one(ax: Any, x: np.ndarray, difference: float) -> None:
    """Draw q_a⁽¹⁾ = 0 and q_w⁽¹⁾ = 0, where first increments are of order one."""
    same = {"color": "#9ca3af", "linewidth": 0.9, "linestyle": (0, (5, 4))}
    if difference == 0:
        ax.plot(
            x, -x, **same, label=r"$\delta\hat a$, $\delta\hat w$ of order one at the first step"
        )
        return
    ax.plot(x, -x, **same, label=r"$\delta\hat a$ of order one at the first step")
    same["linestyle"] = (0, (1, 2))
    ax.plot(x, -x - difference, **same, label=r"$\delta\hat w$ of order one at the first step")


def _lines(ax: Any, lines: Mapping[str, np.ndarray]) -> None:
    colour = 0
    for kind, segments in lines.items():
        how: dict[str, Any] = STUCK
        if kind != "stuck at initialisation":
            how = {"color": distinct(colour), "linewidth": 3.0, "solid_capstyle": "round"}
            colour += 1
        for position, ends in enumerate(segments):
            label = {"label": kind} if position == 0 else {}
            ax.plot(ends[:, 0], ends[:, 1], **how, **label)


def _points(ax: Any, named: Mapping[str, tuple[float, ...]], difference: float) -> None:
    for name, (q, a, w) in named.items():
        here = abs(w - a - difference) < 1e-9
        ax.plot(
            q,
            a,
            "o",
            markersize=8,
            markeredgecolor="black",
            markerfacecolor="black" if here else "none",
            zorder=6,
            clip_on=False,
        )
        words = name if here else f"{name}\n($\\tilde q_w = {w:g}$)"
        ax.annotate(words, (q, a), xytext=(9, 6), textcoords="offset points", zorder=7)
