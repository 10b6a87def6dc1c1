"""Hayou et al. 2021: residual networks with branches divided by the root of the depth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals, exceeds, mean_of, near

X = np.array([[1.0, 0.0], [0.5, 0.75**0.5]])  # two inputs of correlation ½
STEP = 1e-3  # to a third input, orthogonal to the first, for derivatives
GROWTH = 0.5  # σ_w²/2 of a branch with σ_w = 1
STABLE = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2", name="stable")
SCALES = {"plain": lg.ntk(), "stable": STABLE}
QUANTITIES = ("variance", "gradient", "gap")


class Settings(NamedTuple):
    """Numbers of blocks, width, and number of networks."""

    blocks: tuple[int, ...]
    width: int
    draws: int


def _measured(name: str, blocks: int, settings: Settings) -> list[tuple[float, float]]:
    """Return variance and squared derivative, over those without branches, and 1 − c."""
    net = lg.residual_mlp(blocks, "relu", weight_std=1.0)
    x = np.vstack([X, X[0] + np.array([0.0, STEP])])
    S = lg.finite_width.sample_kernels(
        net, x, width=settings.width, draws=settings.draws, param=SCALES[name], key=blocks
    )
    moved = S[:, 0, 0] + S[:, 2, 2] - 2 * S[:, 0, 2]
    correlation = S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1])
    # Without branches S is K/2 with K = |x|²/2.
    return [mean_of(4 * S[:, 0, 0]), mean_of(4 * moved / STEP**2), mean_of(1 - correlation)]


def _compute(settings: Settings) -> xarray.Dataset:
    found = [[_measured(name, L, settings) for L in settings.blocks] for name in SCALES]
    return xarray.Dataset(
        {"found": (("scale", "blocks", "quantity", "what"), found)},
        {"scale": list(SCALES), "blocks": list(settings.blocks), "quantity": list(QUANTITIES)},
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on variances, gradients and correlations at large depth."""
    seen = found["all"]["found"]
    first, before, last = settings.blocks[0], *settings.blocks[-2:]
    where = f"of {settings.draws} networks of width {settings.width}"

    def rate(quantity: str) -> tuple[float, float]:
        (low, own), (high, other) = seen.sel(
            scale="plain", blocks=[first, last], quantity=quantity
        ).values
        logs = np.log(high / low), np.hypot(own / low, other / high)
        return tuple(each / (last - first) for each in logs)

    def at_last(scale: str, quantity: str) -> tuple[float, float]:
        return tuple(seen.sel(scale=scale, blocks=last, quantity=quantity).values)

    def fall(scale: str) -> tuple[float, float]:
        (low, own), (high, other) = seen.sel(
            scale=scale, blocks=[before, last], quantity="gap"
        ).values
        logs = np.log(high / low), np.hypot(own / low, other / high)
        return tuple(each / np.log(last / before) for each in logs)

    says = {"variance": "variances", "gradient": "gradients"}
    return [
        *(
            equals(f"without scaling {words} grow exponentially with the depth, by 1 + σ_w²/2",
                   f"rate per block from {first} to {last} {where}", rate(quantity),
                   np.log(1 + GROWTH), 0.05)
            for quantity, words in says.items()
        ),
        *(
            equals(f"with branches L^(−1/2) {words} stay bounded, below the factor exp(σ_w²/2)",
                   f"factor behind {last} blocks {where}", at_last("stable", quantity),
                   np.exp(GROWTH), 0.05)
            for quantity, words in says.items()
        ),
        exceeds("without scaling inputs become indistinguishable: 1 − c falls as a power of L",
                f"minus the exponent between {before} and {last} blocks {where}",
                (-fall("plain")[0], fall("plain")[1]), 1.0),
        near("with branches L^(−1/2) inputs stay apart: exponent of 1 − c",
             f"exponent between {before} and {last} blocks {where}", fall("stable"), 0.0, 0.1),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(9, 3), layout="constrained")
    titles = ("variance", "squared gradient", "$1 - c$, from $0.5$ at the input")
    L = np.array(settings.blocks, float)
    for axes, quantity, title in zip(picture.subplots(1, 3), QUANTITIES, titles, strict=True):
        for name in SCALES:
            values, errors = found["all"]["found"].sel(scale=name, quantity=quantity).values.T
            axes.errorbar(L, values, WITHIN * errors, fmt="o", ms=4, label=name)
        if quantity != "gap":
            axes.plot(L, (1 + GROWTH) ** L, ":", color="C0")
            axes.plot(L, (1 + GROWTH / L) ** L, ":", color="C1")
            axes.set_yscale("log")
        axes.set(xlabel="blocks $L$", title=title)
    picture.axes[0].legend()
    picture.axes[2].set_ylim(0, 0.5)
    return picture


FIGURE = Figure(
    name="2010.12859-stable",
    title="Residual networks with and without branches divided by the root of the depth",
    source="Hayou et al., Stable ResNet, arXiv 2010.12859",
    images=(),
    settings=Settings((4, 16, 64, 128), 600, 200),
    fast=Settings((4, 12, 24), 60, 200),
    parts=one_part(f"stable residual networks {STEP} {GROWTH}", _compute),
    claims=claims,
    draw=_draw,
    notes=("relu, σ_w = 1; networks drawn by their distribution at this width, without weights",),
)
