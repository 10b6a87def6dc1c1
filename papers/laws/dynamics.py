"""Bordelon, Atanasov and Pehlevan 2024: random features trained on samples, in time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, alternative, equals, exceeds, label_sizes, near

A, B = 2.0, 1.8  # λ_i ~ i^(−A), power ~ i^(−B)
MANY = 10**9
TIMES = (1.0, 10.0, 100.0, 1000.0)
LATE, EARLY = 1e3, 1.0


class Settings(NamedTuple):
    """Modes; samples, features and draws of the simulation; modes of it."""

    modes: int
    samples: int
    features: int
    draws: int
    drawn_modes: int


def _task(modes: int) -> lg.regression.Spectrum:
    """Return a power law; the power of modes beyond the last, which are not learned, is noise."""
    i = np.arange(1, modes + 1.0)
    beyond = (modes + 0.5) ** (1 - B) / (B - 1)
    return lg.regression.Spectrum(i**-A, i**-B, noise=beyond)


def _errors(task: lg.regression.Spectrum, n: int, widths: Any, time: Any) -> np.ndarray:
    """Return errors of n samples after times, or for ever, ([time,] width)."""
    curve = lg.regression.random_feature_curve(task, sizes=[n], widths=widths, time=time)
    return curve.data["mse_test"].isel(size=0).values


def _descended(settings: Settings, rng: np.random.Generator) -> list[float]:
    """Return test errors of gradient flow on Gaussian samples and features, at all times."""
    i = np.arange(1, settings.drawn_modes + 1.0)
    root, target = i ** (-A / 2), i ** (-B / 2)
    n, k = settings.samples, settings.features
    features = root[:, None] * rng.standard_normal((len(i), k)) / np.sqrt(k)
    x = rng.standard_normal((n, len(i)))
    seen = x @ features
    left, values, right = np.linalg.svd(seen, full_matrices=False)
    coefficients = left.T @ (x @ target)
    found = []
    for time in TIMES:
        gained = -np.expm1(-(values**2) * time / n) / values * coefficients
        found.append(float(np.sum((target - features @ (right.T @ gained)) ** 2)))
    return found


def _compute(settings: Settings) -> xarray.Dataset:
    rng = np.random.default_rng(0)
    draws = np.array([_descended(settings, rng) for _ in range(settings.draws)])
    i = np.arange(1, settings.drawn_modes + 1.0)
    small = lg.regression.Spectrum(i**-A, i**-B)
    said, alone = (
        _errors(small, n, [settings.features], list(TIMES))[:, 0] for n in (settings.samples, MANY)
    )
    task = _task(settings.modes)
    widths = np.geomspace(16, settings.modes // 64, 9).astype(int)
    flow = np.geomspace(3, 3e4, 9)
    early = _errors(task, MANY, [*widths, MANY], EARLY)
    curve = lg.regression.one_pass_sgd(
        task, np.geomspace(16, 60000, 9).astype(int), widths=np.geomspace(16, 512, 8).astype(int)
    )
    best = curve.frontier(np.geomspace(3e4, 3e5, 5))
    return xarray.Dataset(
        {
            "drawn": (("draw", "time"), draws),
            "said": ("time", said),
            "many": ("time", alone),
            "of_time": ("flow", _errors(task, MANY, [MANY], list(flow))[:, 0]),
            "of_width": ("width", _errors(task, MANY, list(map(int, widths)), None)),
            "early": ("width", early[:-1] - early[-1]),
            "steps": ("compute", best.steps),
            "best_width": ("compute", best.width),
            "best": ("compute", best.mse_test),
        },
        {"time": list(TIMES), "flow": flow, "width": widths, "compute": best.compute},
    )


def _slope(x: Any, y: Any) -> tuple[float, float]:
    """Return the power of y in the last third of x, three at least, of formulas without error."""
    last = max(len(x) // 3, 3)
    slope = np.polyfit(np.log(np.asarray(x)[-last:]), np.log(np.asarray(y)[-last:]), 1)[0]
    return float(slope), 0.0


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on exponents, on compute, and on samples that are used again."""
    data = found["all"]
    width, law = _slope(data["width"], data["of_width"]), f"λ ~ i^(−{A}), power i^(−{B})"
    time, early = _slope(data["flow"], data["of_time"]), _slope(data["width"], data["early"])
    grown = [_slope(data["compute"].values, data[name])[0] for name in ("steps", "best_width")]
    n, k = settings.samples, settings.features
    where = f"{settings.draws} draws of {n} samples and {k} features"
    mean, error = data["drawn"].mean("draw"), data["drawn"].std("draw", ddof=1)
    error = error / settings.draws**0.5
    gap = (mean - data["many"]) / mean
    return [
        near("errors fall with time by a power (b − 1)/a", f"slope, {law}", time,
             -(B - 1) / A, 0.03),
        near("and with the width by another power, b − 1", f"slope, {law}", width, 1 - B, 0.03),
        alternative(near("the powers of time and width are the same", f"slope in time, {law}",
                         time, width[0], 0.03)),
        exceeds("with compute, steps grow faster than features: difference of powers",
                "power of the best number of steps less that of features", (grown[0] - grown[1], 0),
                0.0),
        near("early in training networks approach infinite width as 1/width",
             f"slope of the distance at η₀t = {EARLY:g}, {law}", early, -1.0, 0.03),
        *(
            equals("errors in samples, features and time follow from two-time equations",
                   f"test error at η₀t = {at:g}, {where}",
                   (float(mean.sel(time=at)), float(error.sel(time=at))),
                   float(data["said"].sel(time=at)), 0.05)
            for at in TIMES
        ),
        near("samples that are used again cost nothing at first: share of the error",
             f"at η₀t = {EARLY:g}, {where}",
             (float(gap[0]), float(error[0] / mean[0])), 0.0, 0.1),
        exceeds("and their gap builds up in time: share of the error",
                f"at η₀t = {LATE:g}, {where}", (float(gap[-1]), float(error[-1] / mean[-1])), 0.25),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture, data = Picture(figsize=(9, 3.2), layout="constrained"), found["all"]
    first, second, third = picture.subplots(1, 3)
    mean = data["drawn"].mean("draw")
    error = data["drawn"].std("draw", ddof=1) / settings.draws**0.5
    first.plot(data["time"], data["said"], label=f"{settings.samples} samples")
    first.plot(data["time"], data["many"], label="new samples")
    first.errorbar(data["time"], mean, WITHIN * error, fmt="o", color="C0")
    first.set(xscale="log", yscale="log", xlabel="time", ylabel="test error")
    first.set_title(f"{settings.features} features", fontsize=10)
    first.legend()
    second.plot(data["width"], data["of_width"], "o-", label="after training")
    second.plot(data["width"], data["early"], "s-", label="early, less that of ∞")
    second.set(xscale="log", yscale="log", xlabel="features", ylabel="test error")
    label_sizes(second, data["width"].values[::4])
    second.legend()
    third.plot(data["compute"], data["steps"], "o-", label="steps")
    third.plot(data["compute"], data["best_width"], "s-", label="features")
    third.set(xscale="log", yscale="log", xlabel="compute")
    third.set_title("best use of compute", fontsize=10)
    label_sizes(third, (3e4, 1e5, 3e5))
    third.legend()
    return picture


FIGURE = Figure(
    name="2402.01092-dynamics",
    title="Random features of power laws: samples, features, time and compute",
    source="Bordelon, Atanasov and Pehlevan, A dynamical model of neural scaling laws, "
    "arXiv 2402.01092",
    images=(),
    settings=Settings(16000, 100, 60, 300, 600),
    fast=Settings(6000, 60, 40, 100, 200),
    parts=one_part(f"dynamics {A} {B} {TIMES} {EARLY}", _compute),
    claims=claims,
    draw=_draw,
    notes=("compute is spent by one pass of stochastic gradient descent in batches of one",),
)
