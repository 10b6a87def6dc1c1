"""Figure 1.6 of the lectures on scaling limits: depth over width of deep linear networks."""

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
from papers.verdicts import equals, mean_of, numbers, pair_of

X = np.ones((1, 2))
SIZES = ((40, 80), (20, 40), (32, 16))  # layers and width: L/N of ½, ½ and 2


class Settings(NamedTuple):
    """Networks that are drawn."""

    draws: int


def _logs(layers: int, width: int, settings: Settings) -> np.ndarray:
    net = lg.mlp(layers, "linear")
    S = lg.finite_width.sample_kernels(net, X, width=width, draws=settings.draws, key=layers)
    return np.log(S[:, 0, 0])


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        found = {}
        for k, (layers, width) in enumerate(SIZES):
            logs = _logs(layers, width, settings)
            found[f"mean_{k}"] = mean_of(logs)
            found[f"variance_{k}"] = mean_of((logs - logs.mean()) ** 2)
        return numbers(**found)

    return [Part("drawn", f"deep linear {settings} {SIZES}", 1.0, compute)]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the dependence of log-norms on depth over width."""
    drawn = found["drawn"]
    result = []
    (layers, width), (_, other) = SIZES[:2]
    where = f"of {settings.draws} networks"
    for what, factor in (("mean", -1.0), ("variance", 2.0)):
        first, second = (pair_of(drawn, f"{what}_{k}") for k in (0, 1))
        ratio = second[0] / first[0]
        error = abs(ratio) * np.hypot(first[1] / first[0], second[1] / second[0])
        result += [
            equals(
                f"the {what} of log |z|² depends on L/N alone",
                f"at N = {other} over that at N = {width}, L/N = ½, {where}", (ratio, error), 1.0,
                0.1,
            ),
            equals(
                f"|z|² is about exp N(−L/2N, L/N), as printed: its {what}",
                f"{what} of log |z|² {where}, L = {layers}, N = {width}", first,
                factor / 2 * layers / width, 0.1,
            ),
            equals(
                f"|z|² is about exp N(−L/N, 2L/N): its {what}",
                f"{what} of log |z|² {where}, L = {layers}, N = {width}", first,
                factor * layers / width, 0.1,
            ),
        ]  # fmt: skip
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    t = np.linspace(0, 2.2, 50)
    axes.plot(t, -t, color="black", label="mean, −L/N")
    axes.plot(t, 2 * t, color="gray", label="variance, 2L/N")
    for k, (layers, width) in enumerate(SIZES):
        for what, marker in (("mean", "o"), ("variance", "s")):
            value, error = pair_of(found["drawn"], f"{what}_{k}")
            axes.errorbar(layers / width, value, 1.96 * error, fmt=marker, color=f"C{k}")
    axes.set(xlabel="L/N", ylabel="of log |z|²")
    axes.legend()
    return picture


FIGURE = Figure(
    name="002-1.6",
    title="Depth over width: norms of outputs of deep linear networks",
    source="Hanin, lectures on scaling limits of neural networks, section 1.3.3 and Figure 1.6",
    images=(),
    settings=Settings(40_000),
    fast=Settings(10_000),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=("the lectures' figure is a sketch; its axis is L/N",),
)
