"""Section 6 of the lecture notes: linear networks with one hidden layer, (72) to (80)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.lectures import equations
from papers.lectures.section_5 import GAMMA, KERNEL, SOURCE, X, Y
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals, mean_of, numbers, pair_of

TIMES = np.linspace(0.0, 3.0, 13)
EARLY, LATE = 4, 12
LAZY = 0.05  # γ₀ at which (80) is to hold
WHITE = np.sqrt(4.0) * np.eye(3, 4)
TARGETS = np.array([1.2, -0.9, 0.0])
LENGTH = float(np.linalg.norm(TARGETS))


class Settings(NamedTuple):
    """Networks that are trained."""

    width: int
    seeds: int


def _run(x: np.ndarray, y: np.ndarray, gamma: float) -> lg.Run:
    return lg.Run(
        lg.mlp(1, "linear"), lg.mean_field(gamma), lg.Dataset(x, y),
        optimizer=lg.gradient_flow(), times=TIMES,
    )  # fmt: skip


def _compute(settings: Settings) -> xarray.Dataset:
    how: dict[str, Any] = {"width": settings.width, "seeds": settings.seeds}
    how |= {"record": ["feature_kernel"], "record_at": [EARLY, len(TIMES) - 1]}
    white = lg.train(_run(WHITE, TARGETS, GAMMA), **how)
    other = lg.train(_run(X, Y, GAMMA), **how)
    lazy = lg.train(_run(WHITE, TARGETS, LAZY), **how)
    ys, own = TARGETS / LENGTH, Y / np.linalg.norm(Y)
    path = np.stack([mean_of(each) for each in (white.f_train @ ys).T])
    # At a small γ₀ networks begin at outputs of order 1/(γ₀√N), which the equations leave out.
    lazily = lazy.f_train - lazy.f_train[:, :1] * np.exp(-2 * TIMES / 3)[:, None]
    found = numbers(
        early=tuple(path[EARLY]),
        rest=mean_of(white.feature_kernel[:, -1, 0] @ ys @ ys),
        output=mean_of(other.f_train[:, EARLY] @ own),
        kernel=mean_of(other.feature_kernel[:, 0, 0] @ own @ own),
        lazy=mean_of(lazily[:, EARLY] @ ys),
    )
    return found.assign(path=(("step", "what"), path))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on outputs and kernels along training, as printed and as derived."""
    seen = found["all"]
    where = f"mean of {settings.seeds} networks of width {settings.width}"
    H, _, f = equations.linear_kernels(KERNEL, Y, GAMMA, TIMES)
    own = Y / np.linalg.norm(Y)
    right, printed = _paths()
    t = TIMES[EARLY]
    decayed = LENGTH * (1 - np.exp(-2 * t / 3))
    return [
        equals(f"(72): outputs at time {t:g}, correlated inputs", f"along the targets, {where}",
               pair_of(seen, "output"), float(f[EARLY] @ own), 0.03),
        equals(f"(72): the feature kernel at time {t:g}, correlated inputs",
               f"along the targets, {where}", pair_of(seen, "kernel"),
               float(H[EARLY] @ own @ own), 0.03),
        equals("at rest the feature kernel along the targets is √(1 + γ₀²y²)",
               f"whitened inputs, time {TIMES[-1]:g}, {where}", pair_of(seen, "rest"),
               float(np.sqrt(1 + GAMMA**2 * LENGTH**2)), 0.03),
        equals("at rest the feature kernel along the targets is √(1 + γ₀²), (78) as printed",
               f"whitened inputs, time {TIMES[-1]:g}, {where}", pair_of(seen, "rest"),
               float(np.sqrt(1 + GAMMA**2)), 0.03),
        equals(f"(79) with √(1 + γ₀²f²): output at time {t:g}", f"whitened inputs, {where}",
               pair_of(seen, "early"), float(right[EARLY]), 0.02),
        equals(f"(79) with √(1 + γ₀²f), as printed: output at time {t:g}",
               f"whitened inputs, {where}", pair_of(seen, "early"), float(printed[EARLY]), 0.02),
        equals(f"(80), γ₀ → 0: output at time {t:g}", f"whitened inputs, γ₀ = {LAZY}, {where}",
               pair_of(seen, "lazy"), float(decayed), 0.03),
    ]  # fmt: skip


def _paths() -> tuple[np.ndarray, np.ndarray]:
    right, printed = (
        equations.along_targets(LENGTH, len(TARGETS), GAMMA, TIMES, printed=as_printed)
        for as_printed in (False, True)
    )
    return right, printed


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    right, printed = _paths()
    path = found["all"]["path"].values
    axes.errorbar(TIMES, path[:, 0], WITHIN * path[:, 1], fmt="o", ms=4, label="networks")
    axes.plot(TIMES, right, color="black", label="$\\sqrt{1 + \\gamma_0^2 f^2}$")
    axes.plot(TIMES, printed, "--", color="gray", label="(79) as printed")
    axes.axhline(LENGTH, ls=":", color="gray")
    axes.set(xlabel="time", ylabel="output along the targets")
    axes.legend()
    return picture


FIGURE = Figure(
    name="000-6",
    title="Linear networks with one hidden layer: outputs and kernels along training",
    source=SOURCE.format("section 6"),
    images=(),
    settings=Settings(1024, 96),
    fast=Settings(256, 64),
    parts=one_part("equations (72) to (80)", _compute),
    claims=claims,
    draw=_draw,
    notes=("equations are integrated in NumPy; three samples, γ₀ = 2, |y| = 1.5 where whitened",),
)
