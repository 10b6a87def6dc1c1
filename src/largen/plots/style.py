"""The style of all figures: fonts, colours and line styles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler

from largen.plots.panels import chosen

LIMIT = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.4, "zorder": 5}
CHARACTER = 0.028  # the width of a digit, as a fraction of a panel's width
# Okabe and Ito's colours, which the colour-blind can distinguish.
CYCLE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7F7F7F")
TITLES = {
    "standard": "standard parameterization",
    "ntk": "NTK parameterization",
    "mean_field": "mean-field parameterization",
    "mup": "μP",
    "depth_mup": "depth-μP",
    "complete_p": "CompleteP",
}
FAILED = "#D55E00"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=CYCLE),
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "lines.linewidth": 1.2,
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the library's style, save for what the user has set, and restore settings."""
    with mpl.rc_context({name: value for name, value in STYLE.items() if not chosen(name)}):
        yield


def scheme_title(name: str) -> str:
    """Return the name of a parameterization for people.

    Examples
    --------
    >>> scheme_title("ntk"), scheme_title("mean_field(gamma=2)"), scheme_title("own")
    ('NTK parameterization', 'mean-field parameterization, $\\\\gamma_0 = 2$', 'own')
    """
    scheme, _, options = name.partition("(")
    words = TITLES.get(scheme)
    if words is None:
        return name
    gamma = options.removesuffix(")").removeprefix("gamma=")
    return rf"{words}, $\gamma_0 = {gamma}$" if gamma else words


def distinct(number: int) -> str:
    """Return a colour by its number, for curves that have no order."""
    return CYCLE[number % len(CYCLE)]


def legend_below(ax: Any, columns: int = 3, **options: Any) -> None:
    """Write the legend under a panel, outside of its data."""
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=columns, **options)


def legend_beside(ax: Any, **options: Any) -> None:
    """Write the legend at the right of a panel, outside of its data."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **options)


def shades(count: int) -> np.ndarray:
    """Return ``count`` colours from light to dark, for increasing sizes."""
    return mpl.colormaps["viridis_r"](np.linspace(0.12, 0.95, count))


def size_axis(ax: Any, sizes: Sequence[float] | np.ndarray, label: str = "width N") -> None:
    """Make x a logarithmic axis with a tick at each size, and labels where there is room."""
    ax.set(xscale="log", xlabel=label)
    place = np.log(np.asarray(sizes, float))
    place = (place - place.min()) / (np.ptp(place) or 1.0)
    labels, taken = [], -1.0
    for x, size in zip(place, (f"{size:g}" for size in sizes), strict=True):
        half = 0.5 * len(size) * CHARACTER
        fits = x - half > taken
        labels.append(size if fits else "")
        taken = x + half + CHARACTER if fits else taken
    ax.set_xticks(sizes, labels)
    ax.set_xticks([], minor=True)
