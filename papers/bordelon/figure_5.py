"""Figure 5: networks approach the limit if both their width and their depth are large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from largen.experiments import fit_exponent
from largen.plots.style import size_axis
from papers.bordelon import dynamics, finite_sizes
from papers.bordelon.finite_sizes import RATE, Settings, distances, limit_of, networks, solved_at
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import near

OTHERS = (RATE / 2, 2 * RATE)  # rates whose learning curves are compared with those of RATE
SEEDS = 16


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    width = settings.widths[-1]

    def trained(lr: float, depth: int, report: Report) -> xarray.Dataset:
        run = finite_sizes.run_of(depth, lr)
        return lg.train(run, width=width, seeds=SEEDS, key=depth, progress=report).to_xarray()

    others = [
        Part(
            _name(lr, depth),
            f"tanh, {_name(lr, depth)}, width {width}, {SEEDS} networks",
            2 + width**2 * depth * SEEDS * 1e-7,
            partial(trained, lr, depth),
        )
        for lr in OTHERS
        for depth in settings.depths
    ]
    return [*finite_sizes.parts(settings, images), *others]


def _name(lr: float, depth: int) -> str:
    return f"rate {lr:g}, depth {depth}"


def _curves(settings: Settings, found: Found) -> dynamics.Curves:
    """Return the mean loss of the widest networks by rate and depth."""
    width = settings.widths[-1]

    def name_of(lr: float, depth: int) -> str:
        return f"width {width}, depth {depth}" if lr == RATE else _name(lr, depth)

    return {
        f"η₀ = {lr:g}": {
            depth: found[name_of(lr, depth)]["loss_train"].mean("seed").values[1:]
            for depth in settings.depths
        }
        for lr in sorted((RATE, *OTHERS))
    }


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that distances fall as N^(−1/2) and as 1/L, and that curves are alike."""
    report = lg.compare(limit_of(found), [*networks(settings, found), *solved_at(settings, found)])
    narrow = settings.widths[0]
    few = lg.compare(limit_of(found), networks(settings, found, [narrow])).to_xarray()
    square, error = few["single_square"].values, few["single_square_error"].values
    law = fit_exponent(np.array(settings.depths, float), square, error)
    widths, depths = report.exponents["single"], report.depth_exponents
    assert depths is not None
    in_depth = depths["single"]
    where = f"N = {narrow} … {settings.widths[-1]} and ∞, L = {settings.depths[0]} … "
    where += f"{settings.depths[-1]}, ⟨d²⟩ = (a N^p)² + (b L^q)²"
    return [
        dynamics.consistent("η₀", _curves(settings, found)),
        near(
            f"at N = {narrow} the width alone decides: the distance goes with the depth as L^p, p",
            f"root mean square over networks, L = {settings.depths[0]} … {settings.depths[-1]}",
            (law.value, law.error),
            0.0,
            0.1,
        ),
        near(
            "the distance of single networks falls as N^p, p",
            where,
            (widths.value, widths.error),
            -0.5,
            0.1,
        ),
        near(
            "the distance falls as L^q at large width, q",
            where,
            (in_depth.value, in_depth.error),
            -1.0,
            0.2,
        ),
    ]


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for k, (name, curves) in enumerate(_curves(settings, found).items()):
        for j, (depth, losses) in enumerate(curves.items()):
            style = ("-", "--", "-.", ":")[j % 4]
            label = f"L = {depth}" if k == 0 else name if j == 0 else None
            left.plot(np.arange(1, len(losses) + 1), losses, style, color=f"C{k}", label=label)
    left.set(xlabel="step", ylabel="loss", yscale="log", title=f"width {settings.widths[-1]}")
    left.legend(fontsize=7)
    for at, line in finite_sizes.lines(settings, distances(settings, found)):
        right.errorbar(at["depth"], at["single"], at["single_error"], **line)
    size_axis(right, settings.depths, "depth $L$")
    right.set(yscale="log", title="distance from the limit")
    right.set_ylabel(r"$\Vert f_{N,L} - f_{\infty,\infty}\Vert$")
    right.legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-5",
    title="Networks approach the limit of infinite width and depth",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure 5",
    images=(),
    settings=finite_sizes.DEFAULT,
    fast=finite_sizes.FAST,
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "fully connected, tanh, four samples, where the paper has convolutions and CIFAR-10",
        "the limit is solved, where the paper has networks of width 512 and depth 128 for it",
    ),
)
