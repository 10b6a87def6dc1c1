"""Lewkowycz et al. 2020: large steps, by which the loss first grows and the kernel falls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, equals, mean_of, near, power

RATES = (0.5, 1.0, 1.5, 2.25, 2.5, 3.0, 3.5, 3.8, 4.2, 5.0, 6.0)  # ηλ₀
TARGET = 2.5  # far from initial outputs, so that no initial loss is small by chance
PEAK = 3.0  # ηλ₀ at which growth with the width is measured


class Settings(NamedTuple):
    """Widths, networks of each, and steps."""

    widths: tuple[int, ...]
    seeds: int
    steps: int


def _compute(settings: Settings) -> xarray.Dataset:
    data = lg.Dataset(np.ones((1, 1)), np.array([TARGET]))
    run = lg.Run(
        lg.mlp(1, "linear"), lg.ntk(), data, optimizer=lg.gd(1.0), steps=settings.steps
    )  # fmt: skip
    found = lg.training.catapult_diagram(
        run, settings.widths, RATES, seeds=settings.seeds, quadratic=False
    )
    return found.to_xarray().isel(model=0)


def _share(found: np.ndarray) -> tuple[float, float]:
    return mean_of(found.astype(float).ravel())


def _growth(data: xarray.Dataset) -> list[tuple[float, float]]:
    """Return the geometric mean of the largest loss at each width."""
    at = data["largest_loss"].sel(rate=PEAK)
    pairs = [mean_of(np.log(each.values)) for each in at.transpose("width", "seed")]
    return [(float(np.exp(log)), float(np.exp(log) * error)) for log, error in pairs]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the three regimes of the rate."""
    data = found["all"].transpose("width", "seed", "rate")
    x = data["rate"].values
    lazy, large, beyond = x < 2, (x > 2) & (x < 4), x > 4
    wide = data.isel(width=-1)
    ended = wide["curvature"].values / wide["initial_curvature"].values[:, None]
    converged = data["alive"].values & np.isfinite(data["steps"].values)
    final = x * (data["curvature"] / data["initial_curvature"]).values
    where = f"{settings.seeds} networks each of widths {settings.widths}"
    # From |f − y| = 1 on, so that initial outputs, which differ, do not count.
    head_start = np.log(2 * data["initial_loss"]) / (2 * np.log(PEAK - 1))
    time = [mean_of(each.values) for each in data["at"].sel(rate=PEAK) + head_start]
    values, errors = np.array(time).T
    logs = np.log(settings.widths)
    centred = (logs - logs.mean()) / np.sum((logs - logs.mean()) ** 2)
    slope = float(centred @ values), float(np.hypot.reduce(centred * errors))
    return [
        equals("below 2/λ₀ the kernel stays what it was in wide networks: λ over λ₀",
               f"{settings.seeds} networks of width {settings.widths[-1]}",
               mean_of(ended[:, lazy].mean(axis=1)), 1.0, 0.02),
        equals("between 2/λ₀ and 4/λ₀ networks converge", f"share of {where}",
               _share(converged[..., large]), 1.0, 0.02),
        equals("they end in flatter places, with λ below 2/η", f"share of {where}",
               _share(final[..., large] < 2), 1.0, 0.02),
        equals("the loss grows to the order of the width on the way: exponent",
               f"exponent in N of the largest loss at ηλ₀ = {PEAK}",
               power(settings.widths, _growth(data)), 1.0, 0.1),
        equals("it takes a time that grows as log N, with the factor 1/2 log(ηλ₀ − 1)",
               f"slope of the time of the largest loss in log N at ηλ₀ = {PEAK}", slope,
               1 / (2 * np.log(PEAK - 1)), 0.2),
        near("above 4/λ₀ networks diverge: share of those that do not", f"share of {where}",
             _share(data["alive"].values[..., beyond]), 0.0, 0.02),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    left, right = picture.subplots(1, 2)
    data = found["all"].transpose("width", "seed", "rate")
    final = (data["curvature"] / data["initial_curvature"]) * data["rate"]
    for k, n in enumerate(settings.widths):
        own = final.isel(width=k).where(data["alive"].isel(width=k))
        color = f"C{k}"
        left.plot(np.tile(data["rate"], settings.seeds), own.values.ravel(), ".", color=color)
        left.plot([], [], ".", color=color, label=f"$N = {n}$")
    line = np.linspace(0, 2, 2)
    left.plot(line, line, color="gray", lw=0.8)
    left.axhline(2, color="black", ls="--", lw=0.8)
    for edge in (2, 4):
        left.axvline(edge, color="gray", ls=":", lw=0.8)
    left.set(xlabel=r"$\eta\lambda_0$", ylabel=r"$\eta\lambda$ after training", ylim=(-0.1, 2.4))
    left.set_xlim(0, 6.2)
    left.legend(fontsize=8, loc="upper right")
    left.annotate("diverged", (5.1, 0.1), ha="center", fontsize=9)
    draw_power(right, settings.widths, _growth(data), 1.0)
    right.set(xlabel="width $N$", ylabel=rf"largest loss at $\eta\lambda_0 = {PEAK:g}$")
    return picture


FIGURE = Figure(
    name="2003.02218-catapult",
    title="Large steps: catapults of networks with one hidden linear layer",
    source="Lewkowycz et al., The large learning rate phase of deep learning: the catapult "
    "mechanism, arXiv 2003.02218",
    images=(),
    settings=Settings((512, 2048, 8192), 24, 200),
    fast=Settings((512, 2048), 8, 120),
    parts=one_part(f"catapults {RATES} {TARGET}", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "one sample; λ₀ of each network; the target is 2.5 (paper's analysis: 0), since networks "
        "count as diverged if their loss exceeds a million times the initial one, which without "
        "a target is tiny for one in fifty. At width 128 and ηλ₀ = 3.8 eight of 24 diverge",
    ),
)
