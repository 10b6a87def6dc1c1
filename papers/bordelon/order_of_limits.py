"""Appendix H: fluctuations grow with the depth in plain networks, and not in residual ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture
from scipy import stats
from scipy.special import polygamma

import largen as lg
from largen.plots.style import size_axis
from papers.bordelon import fluctuations
from papers.claims import Claim
from papers.images import Images
from papers.powers import fitted_powers
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals, near

X = np.ones((1, 3))
LARGEST_Z = 3.5  # exceeded by chance, at any of the sizes, with probability 1 %


class Settings(NamedTuple):
    """Widths, depths and number of the networks whose norms are drawn; sizes of all others."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    draws: int
    others: fluctuations.Sizes


NETS: dict[str, Callable[..., Any]] = {
    "linear ResNet": partial(lg.residual_mlp, activation="linear"),
    "relu ResNet": partial(lg.residual_mlp, activation="relu"),
    "relu MLP": partial(lg.mlp, activation="relu", weight_std=2**0.5),
}


def exact(name: str, width: int, depth: int) -> float:
    """Return the exact Var log|h|² of networks whose layers are independent factors.

    By invariance under rotations each block of a linear network multiplies |h|² by the square of
    e + ξ/√(LN), with a unit vector e and N(0, 1) components ξ, and each layer of a relu network
    multiplies |φ(h)|² by (2/N)Σφ(z)², which is 2χ²_K/N with K of N neurons active. NaN for other
    networks.
    """
    if name == "linear ResNet":
        far = width * depth
        middle, spread = width + far, np.sqrt(2 * (width + 2 * far))
        squares = np.linspace(max(middle - 12 * spread, 1e-9), middle + 12 * spread, 20001)[1:]
        weight = stats.ncx2.pdf(squares, width, far)
        logs, weight = np.log(squares), weight / weight.sum()
        return float(polygamma(1, width / 2) + depth * (weight @ logs**2 - (weight @ logs) ** 2))
    if name == "relu MLP":
        active = np.arange(1, width + 1)
        weight = stats.binom.pmf(active, width, 0.5) / (1 - 0.5**width)
        mean = polygamma(0, active / 2)
        centred = mean - weight @ mean
        return float(depth * (weight @ (polygamma(1, active / 2) + centred**2)))
    return float("nan")


def _variance(logs: np.ndarray) -> tuple[float, float]:
    """Return the variance of independent observations and its standard error."""
    squares = np.square(logs - logs.mean())
    return float(squares.sum() / (len(logs) - 1)), float(squares.std() / np.sqrt(len(logs)))


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(name: str, report: Report) -> xarray.Dataset:
        axes, grid = ("width", "depth"), (len(settings.widths), len(settings.depths))
        found = {what: np.zeros(grid) for what in ("variance", "error", "exact")}
        for i, width in enumerate(settings.widths):
            for j, depth in enumerate(settings.depths):
                drawn = lg.finite_width.sample_kernels(
                    NETS[name](depth),
                    X,
                    width=width,
                    draws=settings.draws,
                    param=None if name == "relu MLP" else lg.depth_mup(),
                    key=100 * i + j,
                )
                pair = _variance(np.log(drawn[:, 0, 0]))
                found["variance"][i, j], found["error"][i, j] = pair
                found["exact"][i, j] = exact(name, width, depth)
                report(i * grid[1] + j + 1, grid[0] * grid[1])
        sizes = {"width": list(settings.widths), "depth": list(settings.depths)}
        return xarray.Dataset({key: (axes, value) for key, value in found.items()}, sizes)

    key = f"{settings.widths} {settings.depths} {settings.draws}"
    norms = [
        Part(name, f"variance of log norms, {name} {key}", 1.0, partial(compute, name))
        for name in NETS
    ]
    return [*norms, *fluctuations.parts(settings.others)]


def _powers(data: xarray.Dataset) -> dict[str, tuple[float, float]]:
    """Return the power of the depth, and that of the width if there are several widths."""
    width, depth = np.meshgrid(data["width"], data["depth"], indexing="ij")
    sizes = {"depth": depth.ravel().astype(float)}
    if data.sizes["width"] > 1:
        sizes["width"] = width.ravel().astype(float)
    return fitted_powers(sizes, data["variance"].values.ravel(), data["error"].values.ravel())


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on fluctuations, and on whether the limits commute."""
    made = []
    sizes = f"N = {settings.widths[0]} … {settings.widths[-1]}, L = {settings.depths[0]} … "
    sizes += f"{settings.depths[-1]}, {settings.draws} networks each"
    for name, in_depth in (("linear ResNet", 0.0), ("relu ResNet", 0.0), ("relu MLP", 1.0)):
        powers = _powers(found[name])
        says = f"{name}: Var log|h|² goes with the depth as L^p, p"
        made.append(
            near(says, f"fitted together with the width's, {sizes}", powers["depth"], in_depth, 0.1)
        )
    for name, law, unit in (
        ("linear ResNet", 6.0, lambda L: 1.0),
        ("relu MLP", 5.0, lambda L: L),
    ):
        data = found[name]
        last = data.isel(width=-1, depth=-1)
        N, L = int(last["width"]), int(last["depth"])
        pair = tuple(N * float(last[what]) / unit(L) for what in ("variance", "error"))
        words = "N Var log|h|²" + ("" if name == "linear ResNet" else "/L")
        made.append(
            equals(f"{name}: {words} to leading order", f"N = {N}, L = {L}", pair, law, 0.1)
        )
        z = float(np.abs((data["variance"] - data["exact"]) / data["error"]).max())
        made.append(
            Claim(
                f"{name}: Var log|h|² is that of independent factors, layer by layer",
                f"largest z-score of drawn networks about it, {sizes}",
                z, z, z, z < LARGEST_Z,
            )
        )  # fmt: skip
    return [*fluctuations.claims(settings.others, found), *made]


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(9, 6.4), layout="constrained")
    above, below = picture.subfigures(2, 1, squeeze=False)[:, 0]
    fluctuations.draw(above.subplots(1, 2), found)
    shared = below.subplots(1, len(NETS), sharey=True)
    for axes, name in zip(shared, NETS, strict=True):
        data = found[name]
        for k, width in enumerate(settings.widths):
            at, colour = data.sel(width=width), f"C{k}"
            axes.errorbar(
                settings.depths, at["variance"], at["error"], fmt="o", ms=4, color=colour,
                label=f"N = {width}",
            )  # fmt: skip
            axes.plot(settings.depths, at["exact"], "-", color=colour, lw=1)
        size_axis(axes, settings.depths, "depth $L$")
        axes.set(title=name, yscale="log")
    shared[0].set_ylabel(r"Var $\log|h|^2$")
    shared[0].legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-H",
    title="Fluctuations grow with the depth in plain networks, and not in residual ones",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Appendix H",
    images=(),
    settings=Settings(
        (64, 256),
        (8, 24, 64),
        12000,
        fluctuations.Sizes(
            (32, 64, 128), (4, 8, 32), (2, 4, 8), 3000, 8000, 512, (4, 8, 16, 32), 4000
        ),
    ),
    fast=Settings(
        (64,),
        (4, 8, 16),
        1000,
        fluctuations.Sizes((32,), (4, 16), (2, 8), 128, 128, 512, (4, 16), 1000),
    ),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "the appendix says that variances of kernels do not grow with the depth; no figure has it",
        "above: outputs after each of the first steps, on four random inputs, where γ₀ = 1",
        "rates of plain networks are divided by L + 1, as which their tangent kernel grows",
        "below: if Var log|h|² does not grow with L, width and depth go to infinity in any order",
        "h is what the read-out reads, φ(h) of the stream in relu networks",
        "lines are exact, from independent factors; dots are drawn networks",
    ),
)
