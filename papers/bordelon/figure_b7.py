"""Figure B.7: variance, squared error and error of the mean, against width and depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from largen.experiments import PowerLaw, fit_exponent
from largen.plots.style import size_axis
from papers.bordelon import finite_sizes
from papers.bordelon.branches import linear_distances
from papers.bordelon.finite_sizes import Settings, distances, limit_of, networks, solved_at
from papers.bordelon.fluctuations import variance_of
from papers.claims import Claim
from papers.images import Images
from papers.powers import fitted_powers
from papers.record import Figure, Found, Part, Report
from papers.verdicts import near

LINEAR = (16, 32)  # depths of linear networks, whose distances are known exactly


def variances(settings: Settings, found: Found) -> xarray.Dataset:
    """Return Var(f) over networks and its error, ``(width, depth)``, means over all steps."""
    grid = (len(settings.widths), len(settings.depths))
    value, error = np.zeros(grid), np.zeros(grid)
    for i, width in enumerate(settings.widths):
        for j, depth in enumerate(settings.depths):
            f = found[f"width {width}, depth {depth}"]["f_train"].values[:, 1:]
            value[i, j], error[i, j] = variance_of(f)
    axes, sizes = ("width", "depth"), {"width": settings.widths, "depth": settings.depths}
    return xarray.Dataset(
        {"variance": (axes, value), "error": (axes, error)},
        {name: list(each) for name, each in sizes.items()},
    )


def _in_depth(data: xarray.Dataset, kind: str, width: float) -> PowerLaw:
    at = data.isel(network=np.flatnonzero(data["width"].values == width))
    error = at[f"{kind}_square_error"].values
    error = np.hypot(error, data.attrs["limit_error"] * 2 * at[kind].values)
    return fit_exponent(at["depth"].values.astype(float), at[f"{kind}_square"].values, error)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that the powers in the three panels are those of the caption."""
    spread = variances(settings, found)
    width, depth = (
        each.ravel().astype(float)
        for each in np.meshgrid(settings.widths, settings.depths, indexing="ij")
    )
    powers = fitted_powers(
        {"width": width, "depth": depth},
        spread["variance"].values.ravel(),
        spread["error"].values.ravel(),
    )
    data = distances(settings, found)
    report = lg.compare(limit_of(found), [*networks(settings, found), *solved_at(settings, found)])
    assert report.depth_exponents is not None
    mean, widest = report.depth_exponents["mean"], settings.widths[-1]
    single, endless = (_in_depth(data, "single", n) for n in (widest, np.inf))
    all_sizes = f"N = {settings.widths[0]} … {widest}, L = {settings.depths[0]} … "
    all_sizes += f"{settings.depths[-1]}"
    linear = found["linear"]
    (one, two), ends = linear["depth"].values[-2:], linear["distance"].values[-2:]
    exact = float(2 * np.log(ends[1] / ends[0]) / np.log(two / one))
    some = f"L = {settings.solved[0]} … {settings.solved[-1]}, N = ∞"
    return [
        near("(a) the variance falls as N^p, p", all_sizes, powers["width"], -1.0, 0.15),
        near(
            "(a) the variance goes with the depth as L^p, p", all_sizes, powers["depth"], 0.0, 0.15
        ),
        near(
            "(b) the full square error falls as L^p at large width, p",
            f"N = {widest}, L = {settings.depths[0]} … {settings.depths[-1]}",
            _doubled(single),
            -1.0,
            0.2,
        ),
        near("(131): at infinite width it falls as L^p, p", some, _doubled(endless), -2.0, 0.3),
        near("(131): … of linear networks", f"L = {one} to {two}, N = ∞", (exact, 0), -2.0, 0.1),
        near(
            "(c) the square error of the ensemble's mean falls as L^p, p",
            f"{all_sizes} and N = ∞, both powers fitted together",
            _doubled(mean),
            -2.0,
            0.4,
        ),
    ]  # fmt: skip


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def linear(report: Report) -> xarray.Dataset:
        return linear_distances("1/2", LINEAR)

    key = f"linear, α = 1/2, depths {LINEAR}"
    return [*finite_sizes.parts(settings, images), Part("linear", key, 5.0, linear)]


def _doubled(law: PowerLaw) -> tuple[float, float]:
    return 2 * law.value, 2 * law.error


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(11, 3.4), layout="constrained")
    first, second, third = picture.subplots(1, 3)
    spread, data = variances(settings, found), distances(settings, found)
    for k, depth in enumerate(settings.depths):
        at = spread.sel(depth=depth)
        first.errorbar(
            at["width"], at["variance"], at["error"], fmt="o-", ms=4, color=f"C{k}",
            label=f"L = {depth}",
        )  # fmt: skip
    size_axis(first, settings.widths, "width $N$")
    first.set(title=r"(a) $\Vert f - \langle f\rangle\Vert^2$")
    for axes, kind, title in (
        (second, "single", r"(b) $\Vert f - f_{\infty,\infty}\Vert^2$"),
        (third, "mean", r"(c) $\Vert\langle f\rangle - f_{\infty,\infty}\Vert^2$"),
    ):
        for at, line in finite_sizes.lines(settings, data):
            seen = at.isel(network=np.flatnonzero(at[f"{kind}_square"].values > 0))
            axes.errorbar(
                seen["depth"], seen[f"{kind}_square"], seen[f"{kind}_square_error"], **line
            )
        depths = np.array(settings.solved, float)
        start = float(data[f"{kind}_square"].max())
        axes.plot(depths, start * (depths / depths[0]) ** -2, ":", color="gray", label=r"$L^{-2}$")
        size_axis(axes, settings.depths, "depth $L$")
        axes.set(title=title)
    for axes in (first, second, third):
        axes.set(yscale="log")
        axes.legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-B7",
    title="Variance, square error and error of the mean against width and depth",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure B.7",
    images=(),
    settings=finite_sizes.DEFAULT,
    fast=finite_sizes.FAST,
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "the networks and the limit of Figure 5 as computed here",
        "at fixed width the full square error ends at the variance, so that no power of L is left, "
        "and at infinite width it falls as in (131): a power L⁻¹ is passed in between and lasts at "
        "no width",
    ),
)
