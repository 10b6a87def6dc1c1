"""Numbers with errors, and their comparison with printed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture
from numpy.typing import ArrayLike

from papers.claims import Claim, above
from papers.powers import fitted_powers

WITHIN = 1.96  # half-width of a 95 % interval in standard errors


def alternative(claim: Claim) -> Claim:
    """Return the claim as one that the paper does not make, which is to be refuted."""
    return replace(claim, whose="alternative")


def mean_of(observed: np.ndarray) -> tuple[float, float]:
    """Return the mean of independent observations and its standard error."""
    values = np.asarray(observed, np.float64)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def ratio_of_moments(observed: np.ndarray) -> tuple[float, float]:
    """Return E x²/(E x)² and its standard error, to first order."""
    x = np.asarray(observed, np.float64) / np.mean(observed)
    second = float(np.mean(x**2))
    std = np.std(x**2 - 2 * second * x, ddof=1)
    return second, float(std / np.sqrt(len(x)))


def numbers(**found: tuple[float, float]) -> xarray.Dataset:
    """Return a data set of numbers, each with the entries value and error along ``what``."""
    return xarray.Dataset(
        {name: ("what", np.array(pair, float)) for name, pair in found.items()},
        {"what": ["value", "error"]},
    )


def equals(
    says: str, measured: str, pair: Sequence[float], wanted: float, tolerance: float
) -> Claim:
    """Compare a number and its error with a printed value.

    The number agrees if its whole interval is within the relative tolerance of the printed value,
    and disagrees if no part of it is; otherwise the verdict is open.

    Parameters
    ----------
    says, measured
        Descriptions of the claim and of the number.
    pair
        The number and its standard error, 0 for an exact number.
    wanted
        The printed value.
    tolerance
        The relative tolerance.

    Examples
    --------
    >>> [equals("", "", (1.0, error), 1.01, 0.05).agrees for error in (0.0, 0.01, 0.1)]
    [True, True, None]
    >>> equals("", "", (1.0, 0.01), 2.0, 0.05).agrees
    False
    """
    return near(says, measured, pair, wanted, tolerance * abs(wanted))


def near(says: str, measured: str, pair: Sequence[float], wanted: float, slack: float) -> Claim:
    """Compare a number and its error with a printed value, with an absolute tolerance.

    Parameters
    ----------
    says, measured, pair, wanted
        As in :func:`equals`.
    slack
        The absolute tolerance.

    Examples
    --------
    >>> [near("", "", (0.05, error), 0.0, 0.1).agrees for error in (0.01, 0.1)]
    [True, None]
    """
    value, error = (float(each) for each in pair)
    low, high = value - WITHIN * error, value + WITHIN * error
    inside = wanted - slack <= low and high <= wanted + slack
    outside = high < wanted - slack or low > wanted + slack
    says = f"{says}: {wanted:.4g}"
    verdict = True if inside else False if outside else None
    bounds = wanted - slack, wanted + slack
    return Claim(says, measured, value, low, high, verdict, bounds=bounds)


def pair_of(data: xarray.Dataset, name: str) -> tuple[float, float]:
    """Return a value and its error from a data set of :func:`numbers`."""
    value, error = data[name].values
    return float(value), float(error)


def intervals(claims: Sequence[Claim]) -> Picture:
    """Draw all numbers with their intervals, each divided by its magnitude."""
    picture = Picture(figsize=(7, 0.8 + 0.35 * len(claims)), layout="constrained")
    axes = picture.subplots()
    colors = {True: "tab:green", False: "tab:red", None: "gray"}
    for row, claim in enumerate(claims):
        wanted = float(claim.says.rsplit(":", 1)[1])
        size = abs(wanted) or 1.0
        ends = np.array([claim.low, claim.value, claim.high]) / size
        axes.plot(ends[[0, 2]], [row, row], color=colors[claim.agrees])
        axes.plot(ends[1], row, "o", color=colors[claim.agrees])
        axes.plot(wanted / size, row, "|", color="black", markersize=12)
    axes.set_yticks(range(len(claims)), [claim.says.rsplit(":", 1)[0][:60] for claim in claims])
    axes.set(xlabel="measured over printed (bars)", ylim=(len(claims) - 0.5, -0.5))
    axes.set_xscale("symlog", linthresh=1.0)
    return picture


def exceeds(says: str, measured: str, pair: Sequence[float], bound: float) -> Claim:
    """Compare a number and its error with a bound that it is to exceed.

    Examples
    --------
    >>> [exceeds("", "", (1.0, error), 0.9).agrees for error in (0.01, 0.1)]
    [True, None]
    >>> exceeds("", "", (0.5, 0.0), 0.9).agrees
    False
    """
    value, error = (float(each) for each in pair)
    low, high = value - WITHIN * error, value + WITHIN * error
    return above(f"{says}: more than {bound:.4g}", measured, value, low, high, bound)


def power(sizes: Sequence[float], pairs: ArrayLike) -> tuple[float, float]:
    """Return the exponent of a power law in one size, and its standard error.

    Parameters
    ----------
    sizes
        Sizes, such as widths.
    pairs
        The number at each size with its standard error; see :func:`papers.powers.fitted_powers`.

    Examples
    --------
    >>> value, error = power([8, 16, 32], [(1 / 8, 0.01), (1 / 16, 0.005), (1 / 32, 0.002)])
    >>> round(value, 6)
    -1.0
    """
    values, errors = np.asarray(pairs, float).T
    return fitted_powers({"size": np.asarray(sizes, float)}, values, errors)["size"]


def draw_power(
    axes: Any, sizes: Sequence[float], pairs: ArrayLike, law: float, **style: Any
) -> None:
    """Draw numbers with their intervals against a size, and a dotted line of the claimed power."""
    x = np.asarray(sizes, float)
    values, errors = np.asarray(pairs, float).T
    (marks, *_) = axes.errorbar(x, values, WITHIN * errors, fmt="o", ms=4, **style)
    middle = np.exp(np.mean(np.log(values) - law * np.log(x)))
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, middle * ends**law, ":", color=marks.get_color())
    axes.set(xscale="log", yscale="log")
    label_sizes(axes, x)


def label_sizes(axes: Any, sizes: ArrayLike) -> None:
    """Put ticks of a logarithmic axis at these sizes alone."""
    x = np.asarray(sizes, float)
    axes.set_xticks(x, [f"{size:g}" for size in x])
    axes.set_xticks([], minor=True)
