"""Paquette et al. 2024: how errors fall with compute, in seven phases."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals

# Phase: α, β, and the powers of width and error in compute that the paper derives for them.
PHASES = {
    "Ia": (0.8, 0.3, lambda a, b: (1 / (2 * a + 1), (2 * a + 2 * b - 1) / (2 * a + 1))),
    "II": (0.9, 0.7, lambda a, b: (b / (a + b), (2 * a + 2 * b - 1) / (2 * (a + b)))),
    "III": (0.7, 1.5, lambda a, b: (1 / 2, (4 * a - 1) / (4 * a))),
    "IVa": (0.4, 0.8, lambda a, b: (1 / 2, a)),
    "IVb": (0.27, 0.6, lambda a, b: (
        (a - b) / (2 * a * b + a - 2 * b),
        (2 * a + 2 * b - 1) * (2 * a - 1) / (2 * (2 * a * b + a - 2 * b)))),
    "Ib": (0.4, 0.3, lambda a, b: (1 / 2, a + b - 1 / 2)),
    "Ic": (0.23, 0.7, lambda a, b: (
        (2 * a + 2 * b - 1) / (2 * (3 * a + 2 * b - 1 - 2 * a * b)),
        a * (2 * a + 2 * b - 1) / (3 * a + 2 * b - 1 - 2 * a * b))),
}  # fmt: skip
MODES = 4  # a feature
TOLERANCE = 0.05  # relative, of powers
# Changes of powers, from a width to four times as much, that are none: going on alike, they would
# take 4²⁵ times the features to leave the tolerance.
_SETTLED = TOLERANCE / 25


class Settings(NamedTuple):
    """Numbers of features, in a constant ratio."""

    features: tuple[int, ...]


def _compute(settings: Settings) -> xarray.Dataset:
    compute, errors = [], []
    for alpha, beta, powers in PHASES.values():
        width, _ = powers(alpha, beta)
        spent = np.array(settings.features) ** (1 / width)
        for features, products in zip(settings.features, spent, strict=True):
            i = np.arange(1, MODES * features + 1.0)
            task = lg.regression.Spectrum(i ** (-2 * alpha), i ** (-2 * alpha - 2 * beta))
            steps = round(products / features)
            curve = lg.regression.one_pass_sgd(task, [steps], widths=[features])
            errors.append(curve.mse_test.item())
        compute.append(spent)
    shape = ("phase", "width")
    table = np.reshape(errors, (len(PHASES), -1))
    return xarray.Dataset(
        {"compute": (shape, np.array(compute)), "error": (shape, table)},
        {"phase": list(PHASES), "width": list(settings.features)},
    )


def _slopes(data: xarray.Dataset, phase: str) -> np.ndarray:
    """Return the power of the error in compute between numbers of features."""
    at = data.sel(phase=phase)
    return -np.diff(np.log(at["error"])) / np.diff(np.log(at["compute"]))


def _extrapolated(slopes: np.ndarray) -> np.ndarray:
    """Return where powers go, from each three, if their changes fall in a constant ratio.

    Powers that hardly change, or change to and fro, are left as they are; NaN where changes grow.
    """
    before, last = np.diff(slopes)[:-1], np.diff(slopes)[1:]
    ratio = last / before
    still = (np.abs(last) < _SETTLED * np.abs(slopes[2:])) | (ratio <= 0)
    left = np.where(ratio < 1, last * ratio / (1 - ratio), np.nan)
    return slopes[2:] + np.where(still, 0.0, left)


def _limit(slopes: np.ndarray) -> tuple[float, float]:
    """Return the last extrapolated power, with its larger change of the last two as its interval.

    The interval has no end if there are fewer than three extrapolated powers, or changes grow.
    """
    powers = _extrapolated(slopes)[-3:]
    change = np.abs(np.diff(powers)).max() if len(powers) == 3 else np.nan
    if not np.isfinite(change):
        return float(slopes[-1]), np.inf
    return float(powers[-1]), float(change / WITHIN)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the power of the error in each phase; see :func:`_limit` for intervals."""
    result = []
    for name, (alpha, beta, powers) in PHASES.items():
        claim = equals(
            f"phase {name}, α = {alpha}, β = {beta}: the error falls with compute by a power",
            f"slope up to {settings.features[-1]} features of {MODES} modes each, extrapolated to "
            "more, with the larger of the last two changes of the extrapolation",
            _limit(_slopes(found["all"], name)), powers(alpha, beta)[1], TOLERANCE,
        )  # fmt: skip
        result.append(replace(claim, bounds=()))  # no number of networks would decide it
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture, data = Picture(figsize=(8, 3.2), layout="constrained"), found["all"]
    first, second = picture.subplots(1, 2)
    for k, (name, (alpha, beta, powers)) in enumerate(PHASES.items()):
        at = data.sel(phase=name)
        first.plot(at["compute"], at["error"], "o-", ms=3, color=f"C{k}", label=name)
        middle = np.sqrt(data["width"].values[1:] * data["width"].values[:-1])
        wanted = powers(alpha, beta)[1]
        second.plot(middle, _slopes(data, name) / wanted, "o-", ms=3, color=f"C{k}")
    second.axhline(1, color="gray", ls=":")
    first.set(xscale="log", yscale="log", xlabel="compute", ylabel="test error")
    second.set(xscale="log", xlabel="features", ylabel="slope over the paper's")
    first.legend(ncols=2)
    return picture


FIGURE = Figure(
    name="2405.15074-phases",
    title="Compute-optimal errors of one pass of SGD in all phases of α and β",
    source="Paquette et al., 4+3 phases of compute-optimal neural scaling laws, arXiv 2405.15074",
    images=(),
    settings=Settings((250, 1000, 4000, 16000, 64000, 256000, 1024000)),
    fast=Settings((15, 60, 250, 1000, 4000, 16000)),
    parts=one_part(f"phases {[(name, *at[:2]) for name, at in PHASES.items()]} {MODES}", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "features are those of the paper's optimum, in batches of one at half of the largest rate",
        "near α = 1/4 the noise of gradients approaches its power as (r^(1/2α)/k)^|4α − 1|, "
        "r = ηt: slopes of phases IVb and Ic converge slowly, and their α and β are, of some that "
        "were tried, those at which slopes converge fastest",
    ),
)
