"""Figure 2: depth over width as the scale of fluctuations, compared with Theorem 5.1."""

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
from papers.verdicts import equals

X = np.array([[0.9, -0.4, 1.3]])
SIGMA = 2**0.5
RATIOS = (0.02, 0.05, 0.1, 0.2, 0.4)


class Settings(NamedTuple):
    """Width, depth and number of the drawn networks."""

    width: int
    depth: int
    draws: int


def _exact(depth: int, width: int) -> lg.finite_width.HomogeneousMoments:
    return lg.finite_width.homogeneous_moments(
        lg.mlp(depth, "relu", weight_std=SIGMA), X, width=width
    )


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def exact(report: Report) -> xarray.Dataset:
        found = [_exact(round(100 * t), 100) for t in RATIOS]
        ntk = [each.ntk_variance / each.ntk**2 + 1 for each in found]
        kernel = [each.kernel_variance / each.kernel**2 + 1 for each in found]
        return xarray.Dataset(
            {"ntk": ("ratio", ntk), "kernel": ("ratio", kernel)}, {"ratio": list(RATIOS)}
        )

    def drawn(report: Report) -> xarray.Dataset:
        net = lg.mlp(settings.depth, "relu", weight_std=SIGMA)
        found = lg.finite_width.sample_tangent_kernels(
            net, X, width=settings.width, draws=settings.draws, key=0
        )
        exact = _exact(settings.depth, settings.width)
        seen = {}
        for name, values in (("ntk", found.ntk), ("kernel", found.kernel)):
            mean = getattr(exact, name)
            ratio = (values[:, 0, 0] / mean) ** 2
            seen[name] = ratio.mean()
            seen[f"{name}_error"] = ratio.std() / np.sqrt(len(ratio))
        return xarray.Dataset(seen)

    return [
        Part("exact", f"relu moments {RATIOS}", 1.0, exact),
        Part("drawn", f"relu tangent kernels {settings}", 10.0, drawn),
    ]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that moments of drawn networks are the printed ones."""
    seen = {name: float(value) for name, value in found["drawn"].items()}
    t = settings.depth / settings.width
    exact = _exact(settings.depth, settings.width)

    def against(says: str, name: str, wanted: float) -> Claim:
        pair = seen[name], seen[f"{name}_error"]
        return equals(says, f"of drawn networks, L/n = {t:g}", pair, wanted, 0.03)

    kernel = exact.kernel_variance / exact.kernel**2 + 1
    ntk = exact.ntk_variance / exact.ntk**2 + 1
    deep = found["exact"]
    growth = float(np.log(deep["kernel"].values[-1]) / (5 * RATIOS[-1]))
    return [
        Claim(
            "fluctuations of the kernel grow as e^{5L/n}",
            "rate of log E S²/(E S)² over 5L/n at n = 100",
            growth, growth, growth, bool(abs(growth - 1) < 0.05),
        ),
        against("E S²/(E S)² is ∏(1 + 5/n)", "kernel", kernel),
        against("E Θ²/(E Θ)² is e^β with β = 5L/n (Theorem 5.1)", "ntk", np.exp(5 * t)),
        against("E Θ²/(E Θ)² is e^{5β} (Theorem 5.1, as printed)", "ntk", np.exp(25 * t)),
        against("E Θ²/(E Θ)² is the exact sum over pairs of layers", "ntk", ntk),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    data = found["exact"]
    t = np.linspace(0, max(RATIOS), 100)[1:]
    axes.plot(RATIOS, data["kernel"], "o", label="kernel")
    axes.plot(RATIOS, data["ntk"], "s", label="NTK")
    axes.plot(t, np.exp(5 * t), "--", color="gray", label="exp(5L/n)")
    axes.plot(
        t, [lg.finite_width.homogeneous_limits("relu", each).ntk for each in t], "-", color="black"
    )
    axes.set(xlabel="L/n", ylabel="second moment over squared mean", yscale="log")
    axes.legend()
    return picture


FIGURE = Figure(
    name="003-2",
    title="Depth over width as effective depth",
    source="Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width, "
    "Figure 2",
    images=(),
    settings=Settings(50, 6, 200_000),
    fast=Settings(50, 3, 60_000),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=("the lectures' figure is a sketch; its axis is L/n, and Theorem 5.1 gives the numbers",),
)
