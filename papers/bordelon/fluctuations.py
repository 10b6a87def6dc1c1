"""Appendix H in training: variances of outputs and of tangent kernels against the depth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray

import largen as lg
from largen.plots.style import size_axis
from papers.bordelon.finite_sizes import DATA
from papers.claims import Claim, above
from papers.powers import fitted_powers
from papers.record import Found, Part, Report
from papers.verdicts import WITHIN, near

RATE, STEPS = 0.3, 10
ONE = np.ones((1, 3))  # the input of tangent kernels that are drawn without weights
RESIDUAL, PLAIN, DRAWN = "trained tanh ResNet", "trained relu MLP", "tangent kernels, relu MLP"


class Sizes(NamedTuple):
    """Sizes of the networks.

    Attributes
    ----------
    widths, depths
        N and L of residual networks.
    plain
        L of plain networks, which have the largest of the widths.
    networks, kernels
        Of each size, the number of trained networks, and of those whose tangent kernel is measured
        at the start.
    drawn_width, drawn_depths, draws
        N, L and number of plain networks whose tangent kernels are drawn.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    plain: tuple[int, ...]
    networks: int
    kernels: int
    drawn_width: int
    drawn_depths: tuple[int, ...]
    draws: int


def variance_of(observed: np.ndarray) -> tuple[float, float]:
    """Return the variance over networks and its standard error, means over all other axes.

    The variance of S networks is the mean over networks of (x − ⟨x⟩)² S/(S − 1), and the spread of
    these squares over networks gives its error.

    Examples
    --------
    >>> value, error = variance_of(np.random.default_rng(0).standard_normal((4000, 3)))
    >>> bool(abs(value - 1) < 3 * error < 0.1)
    True
    """
    count = len(observed)
    own = np.square(observed - observed.mean(0)).reshape(count, -1).mean(1) * count / (count - 1)
    return float(own.mean()), float(own.std(ddof=1) / np.sqrt(count))


def run_of(name: str, depth: int, steps: int = STEPS) -> lg.Run:
    """Return the run; in plain networks, whose tangent kernel grows as L + 1, the rate falls so."""
    if name == RESIDUAL:
        net, param, rate = lg.residual_mlp(depth, "tanh"), lg.depth_mup(), RATE
    else:
        net, param = lg.mlp(depth, "relu", weight_std=2**0.5), lg.mean_field()
        rate = RATE / (depth + 1)
    return lg.Run(net, param, DATA, optimizer=lg.gd(rate), steps=steps)


def _trained(
    name: str, width: int, depth: int, networks: int, kernels: int
) -> dict[str, tuple[float, float]]:
    trained = lg.train(run_of(name, depth), width=width, seeds=networks, key=depth)
    outputs = trained.f_train[:, 1:].astype(np.float64)
    start = lg.train(
        run_of(name, depth, steps=1), width=width, seeds=kernels, key=depth, record=["ntk"],
        record_at=[0],
    )  # fmt: skip
    own = np.einsum("sii->si", start.ntk[:, 0].astype(np.float64))
    return {"outputs": variance_of(outputs), "kernel": variance_of(own / own.mean(0))}


def _drawn(width: int, depth: int, draws: int) -> dict[str, tuple[float, float]]:
    net = lg.mlp(depth, "relu", weight_std=2**0.5)
    drawn = lg.finite_width.sample_tangent_kernels(net, ONE, width=width, draws=draws, key=depth)
    kernels = drawn.ntk[:, 0, 0].astype(np.float64)
    return {"kernel": variance_of(kernels / kernels.mean())}


def parts(sizes: Sizes) -> list[Part]:
    """Return one part for each kind of network."""
    grids = {
        RESIDUAL: [(n, l) for n in sizes.widths for l in sizes.depths],
        PLAIN: [(sizes.widths[-1], l) for l in sizes.plain],
        DRAWN: [(sizes.drawn_width, l) for l in sizes.drawn_depths],
    }

    def compute(name: str, report: Report) -> xarray.Dataset:
        columns: dict[str, list[Any]] = {}
        for done, (width, depth) in enumerate(grids[name]):
            report(done, len(grids[name]))
            if name == DRAWN:
                found = _drawn(width, depth, sizes.draws)
            else:
                found = _trained(name, width, depth, sizes.networks, sizes.kernels)
            for what, (value, error) in found.items():
                columns.setdefault(what, []).append(value)
                columns.setdefault(f"{what}_error", []).append(error)
        widths, depths = np.array(grids[name]).T
        return xarray.Dataset(
            {what: ("size", np.array(values)) for what, values in columns.items()},
            {"width": ("size", widths), "depth": ("size", depths)},
        )

    key = f"{STEPS} steps of {RATE}, {sizes}"
    return [Part(name, f"{name}, {key}", 10.0, partial(compute, name)) for name in grids]


def powers(data: xarray.Dataset, what: str) -> dict[str, tuple[float, float]]:
    """Return the powers of depth and, if there are several, of width in a variance."""
    sizes = {
        axis: data[axis].values.astype(float)
        for axis in ("depth", "width")
        if len(np.unique(data[axis])) > 1
    }
    return fitted_powers(sizes, data[what].values, data[f"{what}_error"].values)


def claims(sizes: Sizes, found: Found) -> list[Claim]:
    """Return claims on the powers of width and depth in variances."""
    size = f"L = {sizes.depths[0]} … {sizes.depths[-1]}, N = {', '.join(map(str, sizes.widths))}"
    residual = f"{size}, {sizes.networks} networks of each size"
    outputs, kernel = (powers(found[RESIDUAL], what) for what in ("outputs", "kernel"))
    made = [
        near("tanh ResNet in training: Var f goes with the depth as L^p, p",
             residual, outputs["depth"], 0.0, 0.1),
        near("tanh ResNet: Var K/⟨K⟩² of the tangent kernel goes as L^p, p",
             f"{size}, {sizes.kernels} networks of each size", kernel["depth"], 0.0, 0.1),
    ]  # fmt: skip
    if "width" in outputs:
        says = "tanh ResNet in training: Var f falls as N^p, p"
        made.append(near(says, f"fitted together, {residual}", outputs["width"], -1.0, 0.1))
    value, error = powers(found[PLAIN], "outputs")["depth"]
    low, high = value - WITHIN * error, value + WITHIN * error
    where = f"L = {sizes.plain[0]} … {sizes.plain[-1]}, N = {sizes.widths[-1]}, "
    where += f"{sizes.networks} networks each; the power of L"
    says = "relu MLP in training: Var f grows with the depth"
    made.append(above(says, where, value, low, high))
    where = f"L = {sizes.drawn_depths[0]} … {sizes.drawn_depths[-1]}, N = {sizes.drawn_width}, "
    where += f"{sizes.draws} networks each"
    says = "relu MLP: Var K/⟨K⟩² of the tangent kernel goes as L^p, p"
    made.append(near(says, where, powers(found[DRAWN], "kernel")["depth"], 1.0, 0.15))
    return made


def draw(panels: Sequence[Any], found: Found) -> None:
    """Draw N times the variances of outputs and of tangent kernels against the depth."""
    for axes, what, title in zip(
        panels,
        ("outputs", "kernel"),
        (r"in training, $N$ Var $f$", r"$N$ Var $K/\langle K\rangle^2$"),
        strict=True,
    ):
        colour, drawn = 0, set[int]()
        for name in (RESIDUAL, PLAIN, DRAWN):
            data = found[name]
            for width in np.unique(data["width"]):
                if what not in data:
                    continue
                at = data.isel(size=np.flatnonzero(data["width"].values == width))
                axes.errorbar(
                    at["depth"], width * at[what], width * at[f"{what}_error"], fmt="o-", ms=4,
                    color=f"C{colour}", label=f"{name.split(',')[-1].strip()}, N = {width}",
                )  # fmt: skip
                colour += 1
                drawn |= set(at["depth"].values)
        size_axis(axes, np.array(sorted(drawn)), "depth $L$")
        axes.set(yscale="log", title=title)
        axes.legend(fontsize=7)
