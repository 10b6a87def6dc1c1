"""Figure 1.5 of the lectures on scaling limits: ridge regression where n and N grow together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import alternative, equals, mean_of, numbers, pair_of

PENALTY, NOISE = 0.1, 0.5
SMALL = 0.01  # the penalty with which the printed estimator is tested, at N = n
RATIOS = (1 / 3, 1.0, 3.0)  # N/n; the lectures' example has n/N = 1/3


class Settings(NamedTuple):
    """The number of samples n, and the number of data sets."""

    samples: int
    repeats: int


def _risks(ratio: float, settings: Settings, penalty: float) -> np.ndarray:
    """Return test errors with (XᵀX + penalty)⁻¹XᵀY."""
    rng = np.random.default_rng(round(100 * ratio))
    n, N = settings.samples, round(ratio * settings.samples)
    found = []
    for _ in range(settings.repeats):
        beta = rng.standard_normal(N)
        beta /= np.linalg.norm(beta)
        x = rng.standard_normal((n, N))
        y = x @ beta + NOISE * rng.standard_normal(n)
        W = np.linalg.solve(x.T @ x + penalty * np.eye(N), x.T @ y)
        found.append((np.sum((W - beta) ** 2) + NOISE**2) / 2)
    return np.array(found)


def _theory(ratio: float) -> float:
    return lg.regression.ridge_test_error(ratio, PENALTY, noise_std=NOISE).total


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        n = settings.samples
        found = {
            f"ratio_{k}": mean_of(_risks(ratio, settings, n * PENALTY))
            for k, ratio in enumerate(RATIOS)
        }
        found["small"] = mean_of(_risks(1.0, settings, n * SMALL))
        found["printed"] = mean_of(_risks(1.0, settings, SMALL))
        return numbers(**found)

    return [Part("drawn", f"ridge {settings} {PENALTY} {SMALL} {NOISE} {RATIOS}", 1.0, compute)]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that test errors are those of the joint limit."""
    drawn, n = found["drawn"], settings.samples
    result = [
        equals(
            f"the limit of n and N to infinity at N/n = {ratio:.3g} is that of finite sizes",
            f"test error of {settings.repeats} data sets of n = {n}",
            pair_of(drawn, f"ratio_{k}"), _theory(ratio), 0.05,
        )
        for k, ratio in enumerate(RATIOS)
    ]  # fmt: skip
    where = f"test error of {settings.repeats} data sets of n = {n}, N/n = 3"
    last = pair_of(drawn, f"ratio_{len(RATIOS) - 1}")
    return [
        *result,
        alternative(equals("first n → ∞, then N → ∞ would do", where, last, _theory(1e-6), 0.05)),
        alternative(equals("first N → ∞, then n → ∞ would do", where, last, _theory(1e6), 0.05)),
        *(
            equals(
                f"minimising the loss is W = {words}, whose test error is the limit's",
                f"test error of {settings.repeats} data sets of N = n = {n}, λ = {SMALL}",
                pair_of(drawn, name), lg.regression.ridge_test_error(1.0, SMALL,
                    noise_std=NOISE).total, 0.1,
            )
            for words, name in (
                ("(XᵀX + nλ)⁻¹XᵀY", "small"),
                ("(XXᵀ + λ)⁻¹XᵀY, eq. (1.3.10) as printed", "printed"),
            )
        ),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    ratio = np.geomspace(0.05, 20, 200)
    axes.plot(ratio, [_theory(each) for each in ratio], color="black", label="limit at fixed N/n")
    for value, label in ((1e-6, "n → ∞ first"), (1e6, "N → ∞ first")):
        axes.axhline(_theory(value), ls="--", color="gray", label=label)
    seen = np.array([pair_of(found["drawn"], f"ratio_{k}") for k in range(len(RATIOS))])
    axes.errorbar(RATIOS, seen[:, 0], 1.96 * seen[:, 1], fmt="o", label=f"n = {settings.samples}")
    axes.set(xscale="log", xlabel="N/n", ylabel="test error")
    axes.legend()
    return picture


FIGURE = Figure(
    name="002-1.5",
    title="Ridge regression: number of samples and number of features",
    source="Hanin, lectures on scaling limits of neural networks, Figure 1.5 and eq. (1.3.10)",
    images=(),
    settings=Settings(300, 100),
    fast=Settings(100, 200),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=("the lectures' figure is a sketch of limits; n is 300 here (text: 10⁶)",),
)
