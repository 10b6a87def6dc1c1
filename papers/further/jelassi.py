"""Jelassi et al. 2023: the largest rate of maximal updates falls with the depth as L^(−3/2)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.preactivations import preactivations
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, equals, mean_of, near, power

RATE, SIGMA = 1e-5, 2**0.5


class Settings(NamedTuple):
    """Depths, width over depth, and the widths at one depth; networks of each size."""

    depths: tuple[int, ...]
    ratio: int
    widths: tuple[int, ...]
    depth: int
    seeds: int


def _changed(network, start, end, x):
    first, last = (preactivations(network, params, x, jax.nn.relu)[-1] for params in (start, end))
    return ((last - first) ** 2).mean() / RATE**2


def _largest(depth: int, width: int, seeds: int) -> tuple[float, float]:
    """Return the rate at which the mean square of Δz in the last hidden layer is 1."""
    # |x|² is ⟨φ²⟩ of the hidden layers, so that the read-in's update counts as much as another's.
    data = lg.Dataset(np.ones((1, 1)), np.ones(1))
    net = lg.mlp(depth, "relu", weight_std=SIGMA)
    run = lg.Run(net, lg.mup(), data, optimizer=lg.gd(RATE), steps=1)
    square, error = mean_of(
        lg.networks.train_and_measure(run, width, _changed, seeds=seeds, key=depth)
    )
    return square**-0.5, error / 2 * square**-1.5


def _compute(settings: Settings) -> xarray.Dataset:
    last = max(settings.depths)
    deep = [
        _largest(L, L * settings.ratio, settings.seeds * min(4, last // L)) for L in settings.depths
    ]
    wide = [_largest(settings.depth, n, settings.seeds * 2) for n in settings.widths]
    return xarray.Dataset({"deep": (("depth", "what"), deep), "wide": (("width", "what"), wide)})


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the largest rate with bounded change of preactivations."""
    deep, wide = (found["all"][name].values for name in ("deep", "wide"))
    return [
        equals("the largest rate of maximal updates falls with the depth as a power",
               f"exponent in L, depths {settings.depths}, n = {settings.ratio}L",
               power(settings.depths, deep), -1.5, 0.1),
        near("it does not depend on the width, as a power", f"exponent in n, widths "
             f"{settings.widths}, L = {settings.depth}", power(settings.widths, wide), 0.0, 0.2),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(7.5, 3.2), layout="constrained")
    left, right = picture.subplots(1, 2, sharey=True)
    draw_power(left, settings.depths, found["all"]["deep"].values, -1.5)
    draw_power(right, settings.widths, found["all"]["wide"].values, 0.0, color="C1")
    left.set(xlabel="depth $L$, width in proportion", ylabel="largest rate $\\eta$")
    right.set(xlabel=f"width $n$ at $L = {settings.depth}$")
    left.set_title("dotted: $L^{-3/2}$", fontsize=10)
    return picture


FIGURE = Figure(
    name="2305.07810-depth",
    title="Largest rate of maximal updates of relu networks against the depth",
    source="Jelassi et al., Depth dependence of μP learning rates in relu MLPs, arXiv 2305.07810",
    images=(),
    settings=Settings((4, 8, 16, 32), 16, (64, 128, 256, 512), 8, 32),
    fast=Settings((4, 12), 8, (32, 128), 4, 24),
    parts=one_part(f"relu largest rates {RATE}", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "one sample and one step at a small rate, from which the change at others follows; widths "
        "in proportion to depths, so that corrections in L/n are the same at all of them",
    ),
)
