"""Pictures of losses during training and of model sizes, imported only for drawing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from largen.plots.panels import panels
from largen.plots.style import distinct, legend_beside, shades, style
from largen.plots.sweeps import LINES, plain_losses


def dynamics_figure(panels_of: list[tuple[str, list[tuple[str, int, np.ndarray]]]]) -> Figure:
    """Draw losses during training: for each panel a title, labels, colours and losses ``(step,)``.

    Curves of equal colour differ by line style. Curves that rise above twice the largest initial
    loss count as divergent and are cut off; the other curves set the range.
    """
    with style():
        figure, grid = panels(1, len(panels_of))
        figure.set_figwidth(1.5 * figure.get_figwidth())  # legends are next to the panels
        for ax, (title, curves) in zip(grid[0], panels_of, strict=True):
            seen: dict[int, int] = {}
            for label, colour, losses in curves:
                line = LINES[seen.setdefault(colour, 0) % len(LINES)]
                seen[colour] += 1
                ax.plot(
                    np.where(np.isfinite(losses), losses, np.nan),
                    color=distinct(colour),
                    linestyle=line,
                    label=label,
                )
            ax.set(title=title, xlabel="step", yscale="log")
            starts = [losses[0] for _, _, losses in curves]
            sound = [own for _, _, own in curves if (own <= 2 * max(starts)).all()]
            shown = np.concatenate([starts, *sound])
            ax.set_ylim(shown.min() / 1.02, shown.max() * 1.02)
            plain_losses(ax)
            legend_beside(ax, fontsize="x-small")
        grid[0, 0].set_ylabel("training loss")
    return figure


def tradeoff_figure(curves: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw losses against numbers of parameters, ``(width,)`` each, one line for each depth."""
    with style():
        figure, grid = panels(1, 1)
        ax = grid[0, 0]
        for colour, (depth, (sizes, losses)) in zip(
            shades(len(curves)), curves.items(), strict=True
        ):
            ax.loglog(sizes, losses, "o-", color=colour, label=f"depth {depth}")
        ax.set(xlabel="parameters", ylabel="loss")
        ax.legend()
    return figure
