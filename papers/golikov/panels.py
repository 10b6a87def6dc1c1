"""Panels of Golikov's figures, imported only for drawing since they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from papers.golikov.series import Laws, Series, loss_curves
from papers.golikov.setups import LIMITS
from papers.golikov.widths import (
    COLOURS,
    Panel,
    exponents_panel,
    loss_curves_panel,
    loss_panel,
    row,
    sizes_panel,
)
from papers.record import Found

__all__ = ["curves", "exponents", "final_losses", "increments", "row", "terms"]


def final_losses(
    seen: Mapping[str, Series],
    title: str = "final test loss",
    *,
    far: Mapping[str, tuple[int, np.ndarray]] | None = None,
    limits: tuple[Found, str] | None = None,
) -> Panel:
    """Return the panel of final losses by scaling.

    Parameters
    ----------
    seen
        The measured series, by scaling.
    title
        Title of the panel.
    far
        A further width and the losses there, for some scalings.
    limits
        The results of all parts, and the prefix of those with the limits' losses.
    """
    points = {name: [*zip(one.widths, one.loss, strict=True)] for name, one in seen.items()}
    for name, more in (far or {}).items():
        points[name].append(more)
    ends = {}
    if limits is not None:
        lines = loss_curves(*limits)
        ends = {name: lines[name]["loss"].values[:, -1].mean() for name in LIMITS}
    return lambda ax: loss_panel(ax, points, ends, title)


def curves(found: Found, prefix: str) -> Panel:
    """Return the panel of losses at every step, of reference networks and limits."""
    losses = {name: data["loss"].values for name, data in loss_curves(found, prefix).items()}
    return lambda ax: loss_curves_panel(ax, losses)


def terms(one: Series, title: str = "terms in the mean-field scaling") -> Panel:
    """Return the panel of variances of the output's terms in one scaling."""
    sizes = {f"f_{t}": (one.widths, one.variance[..., i]) for i, t in enumerate(one.terms)}
    return lambda ax: sizes_panel(ax, sizes, title, "variance over test images")


def increments(seen: Mapping[str, Series], weight: str, title: str) -> Panel:
    """Return the panel of a matrix's increments by scaling."""
    sizes = {
        name: (one.widths, one.increment[..., one.weights.index(weight)])
        for name, one in seen.items()
    }
    return lambda ax: sizes_panel(ax, sizes, title, "over initial standard deviation", COLOURS)


def exponents(laws: Mapping[str, Laws]) -> Panel:
    """Return the panel of fitted exponents by scaling, beside the predicted ones."""
    return lambda ax: exponents_panel(ax, laws)
