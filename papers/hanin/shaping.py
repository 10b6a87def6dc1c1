"""Section 2.3 of the lectures on scaling limits: fourth cumulants and shaped activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals, mean_of, numbers, pair_of

START = np.array([[1.0, 0.3], [0.3, 0.8]])
TIME = 0.5  # L/N
NARROW, WIDE = 100, 400  # widths at which growth is compared
STD, WIDTH = 1.4, 60
X = np.array([[0.9, -0.4, 1.3]])


class Settings(NamedTuple):
    """Width of the shaped networks, and number of networks and of sampled paths."""

    width: int
    draws: int


def _chain(phi, weight: float, n: int, draws: int) -> np.ndarray:
    """Return the covariance of networks after TIME·n layers, (draw, 2, 2)."""
    rng = np.random.default_rng(n)
    S = np.broadcast_to(START, (draws, 2, 2))
    for _ in range(round(TIME * n)):
        f = phi(rng.standard_normal((draws, n, 2)) @ np.linalg.cholesky(S).swapaxes(1, 2))
        S = weight / n * f.swapaxes(1, 2) @ f
    return S


def _correlation(S: np.ndarray) -> np.ndarray:
    return S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1])


def _log_growth(n: int, draws: int) -> np.ndarray:
    """Return the log mean square after TIME·N layers of t + max(0, t)/√N with σ_W = 1."""
    rng, S = np.random.default_rng(n), np.ones(draws)
    for _ in range(round(TIME * n)):
        z = np.sqrt(S)[:, None] * rng.standard_normal((draws, n))
        S = np.mean((z + np.maximum(z, 0) / np.sqrt(n)) ** 2, axis=1)
    return np.log(S)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def shaped(report: Report) -> xarray.Dataset:
        n, draws = settings
        root = np.sqrt(n)
        tanh = _chain(lambda z: root * np.tanh(z / root), 1 + 2 / n, n, draws)
        slope = 1 - 1 / root
        relu = _chain(lambda z: np.where(z > 0, z, slope * z), 2 / (1 + slope**2), n, draws)
        found = {}
        for name, S in (("tanh", tanh), ("relu", relu)):
            found[f"{name}_log"] = mean_of(np.log(S[:, 0, 0]))
            found[f"{name}_spread"] = mean_of((np.log(S[:, 0, 0]) - np.log(S[:, 0, 0]).mean()) ** 2)
            found[f"{name}_correlation"] = mean_of(_correlation(S))
        shapes: dict[str, dict[str, Any]] = {
            "tanh": {"activation": "tanh", "growth": 2.0},
            "relu": {"slopes": (0, -1)},
        }
        for name, given in shapes.items():
            paths = lg.finite_width.covariance_sde(
                START, **given, time=TIME, draws=2 * draws, steps=100, key=0
            )
            V = paths.covariance[:, -1]
            log = np.log(V[:, 0, 0])
            found[f"{name}_log_limit"] = mean_of(log)
            found[f"{name}_spread_limit"] = mean_of((log - log.mean()) ** 2)
            found[f"{name}_correlation_limit"] = mean_of(_correlation(V))
        return numbers(**found)

    def others(report: Report) -> xarray.Dataset:
        draws = settings.draws
        found = {f"printed_{n}": mean_of(_log_growth(n, 200)) for n in (NARROW, WIDE)}
        net = lg.mlp(3, "tanh", weight_std=STD)
        S = lg.finite_width.sample_kernels(net, X, width=WIDTH, draws=10 * draws, key=0)[:, 0, 0]
        found["cumulant"] = mean_of((S - S.mean()) ** 2)
        return numbers(**found)

    return [
        Part("shaped", f"shaped {settings} {TIME} {START.tolist()}", 5.0, shaped),
        Part("others", f"unshaped {settings} {TIME} {STD} {WIDTH}", 2.0, others),
    ]


def _printed_recursion() -> float:
    """Return κ₄ by the printed eq. (2.3.1), with σ_W² in place of σ_W⁴ in a layer's noise."""
    total, K = 0.0, STD**2 * float(X[0] @ X[0]) / X.shape[1]
    z, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    for _ in range(3):
        square = np.tanh(np.sqrt(K) * z) ** 2
        slope = STD**2 * weights @ (square * (z**2 - 1)) / (2 * K)
        variance = weights @ square**2 - (weights @ square) ** 2
        total = slope**2 * total + STD**2 * variance / WIDTH
        K = STD**2 * weights @ square
    return float(total)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that shaped networks follow the equation, and cumulants the recursion."""
    drawn, others = found["shaped"], found["others"]
    where = f"of {settings.draws} networks, N = {settings.width}, L/N = {TIME}"
    result = []
    for name in ("tanh", "relu"):
        for what, words in (
            ("log", "mean of log V"), ("spread", "variance of log V"),
            ("correlation", "mean correlation"),
        ):  # fmt: skip
            seen, limit = (pair_of(drawn, f"{name}_{what}{end}") for end in ("", "_limit"))
            gap = seen[0] - limit[0], float(np.hypot(seen[1], limit[1]))
            result.append(
                equals(
                    f"shaped {name} networks follow the covariance's equation (2.3.4): {words}",
                    f"{words} {where}, with the error of both",
                    (limit[0] + gap[0], gap[1]), limit[0], 0.1,
                )
            )  # fmt: skip
    first, last = (pair_of(others, f"printed_{n}") for n in (NARROW, WIDE))
    theory = lg.finite_width.width_corrections(lg.mlp(3, "tanh", weight_std=STD), X, width=WIDTH)
    seen = pair_of(others, "cumulant")
    return [
        *result,
        equals(
            "t + max(0, t)/√N with σ_W = 1 is well-posed as printed: at one L/N its log V at "
            f"N = {WIDE} is that at N = {NARROW}",
            f"mean of log V at N = {WIDE}, L/N = {TIME}", last, first[0], 0.1,
        ),
        equals(
            "κ₄ obeys the recursion with σ_W⁴", f"κ₄ of networks of width {WIDTH}", seen,
            float(theory.kernel_covariance[0, 0]), 0.1,
        ),
        equals(
            "κ₄ obeys eq. (2.3.1) with σ_W², as printed", f"κ₄ of networks of width {WIDTH}", seen,
            _printed_recursion(), 0.1,
        ),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    paths = lg.finite_width.covariance_sde(
        START, slopes=(0, -1), time=TIME, draws=20, steps=100, key=1
    )
    axes.plot(paths.times, np.array([_correlation(V) for V in paths.covariance]).T, color="C0")
    axes.set(xlabel="τ = ℓ/N", ylabel="correlation of two inputs, shaped relu", ylim=(-1, 1))
    return picture


FIGURE = Figure(
    name="002-2.3",
    title="Fourth cumulants, and shaped activations at fixed depth over width",
    source="Hanin, lectures on scaling limits of neural networks, section 2.3, Theorem 2.3.1 and "
    "eq. (2.3.4)",
    images=(),
    settings=Settings(300, 8000),
    fast=Settings(100, 4000),
    parts=_parts,
    claims=claims,
    draw=_draw,
)
