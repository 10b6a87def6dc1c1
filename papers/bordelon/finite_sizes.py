"""Networks of several widths and depths, and their limits, for Figures 5 and B.7."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray

import largen as lg
from largen.runs import Trajectory
from papers.images import Images
from papers.record import Found, Part, Report

RATE, STEPS = 0.3, 15
RNG = np.random.default_rng(0)
DATA = lg.Dataset(RNG.standard_normal((4, 5)), np.array([1.0, -1.0, 1.0, -1.0]))


class Settings(NamedTuple):
    """Sizes of the trained networks and of the solved limits.

    Attributes
    ----------
    widths, depths
        N and L.
    networks
        The number of networks of each depth, by width.
    solved
        Depths at infinite width.
    limit
        Depths from which infinite depth is extrapolated.
    rtol, particles
        Relative tolerance of the limit, and the largest number of sample neurons per layer.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    networks: tuple[int, ...]
    solved: tuple[int, ...]
    limit: tuple[int, ...]
    rtol: float
    particles: int


DEFAULT = Settings(
    (32, 64, 128, 256), (4, 8, 16, 32), (192, 192, 96, 48), (4, 8, 16), (4, 8, 16), 1e-3, 2**17
)
FAST = Settings((16, 32, 64), (2, 4, 8), (64, 64, 64), (2, 4, 8), (2, 4, 8), 1e-2, 2**15)


def lines(settings: Settings, data: xarray.Dataset) -> Iterator[tuple[xarray.Dataset, dict]]:
    """Yield the networks of each width by increasing depth, and how their line is drawn.

    Infinite width comes last, in black.
    """
    for k, width in enumerate((*settings.widths, np.inf)):
        at = data.isel(network=np.flatnonzero(data["width"].values == width)).sortby("depth")
        words = ("N = ∞", "black") if np.isinf(width) else (f"N = {width}", f"C{k}")
        yield at, {"fmt": "o-", "ms": 4, **dict(zip(("label", "color"), words, strict=True))}


def run_of(blocks: float, lr: float = RATE) -> lg.Run:
    """Return the run: tanh, P = 4 random inputs, γ₀ = 1, branches L^(−1/2)."""
    net = lg.residual_mlp(blocks, "tanh")
    return lg.Run(net, lg.depth_mup(), DATA, optimizer=lg.gd(lr), steps=STEPS)


def solved_name(blocks: float) -> str:
    """Return the name of a limit of infinite width."""
    return "infinite depth" if blocks == math.inf else f"infinite width, depth {blocks}"


def parts(settings: Settings, images: Mapping[str, Images]) -> list[Part]:
    """Return one part for each limit and for each width and depth."""
    what = f"tanh, {STEPS} steps of {RATE}"

    def solved(blocks: float, report: Report) -> xarray.Dataset:
        if blocks == math.inf:
            theory = lg.theories.InfiniteDepth(
                depths=settings.limit, rtol=settings.rtol, max_particles=settings.particles
            )
            return lg.solve(run_of(blocks), theory=theory).to_xarray()
        return lg.solve(run_of(blocks), rtol=settings.rtol).to_xarray()

    def trained(width: int, depth: int, count: int, report: Report) -> xarray.Dataset:
        nets = lg.train(run_of(depth), width=width, seeds=count, key=depth, progress=report)
        return nets.to_xarray()

    found = [
        Part(
            solved_name(blocks),
            f"{what}, {blocks} blocks, {settings.limit if blocks == math.inf else ''} "
            f"{settings.rtol} {settings.particles if blocks == math.inf else ''}",
            40.0 if blocks == math.inf else 2.0 * blocks,
            partial(solved, blocks),
        )
        for blocks in (math.inf, *settings.solved)
    ]
    for width, count in zip(settings.widths, settings.networks, strict=True):
        for depth in settings.depths:
            name = f"width {width}, depth {depth}"
            cost = 2 + width**2 * depth * count * 1e-7
            own = partial(trained, width, depth, count)
            found.append(Part(name, f"{what}, {name}, {count} networks", cost, own))
    return found


def limit_of(found: Found) -> Trajectory:
    """Return the limit of infinite width and depth."""
    return Trajectory(found[solved_name(math.inf)], run_of(math.inf))


def solved_at(settings: Settings, found: Found) -> list[Trajectory]:
    """Return the limits of infinite width."""
    return [Trajectory(found[solved_name(b)], run_of(b)) for b in settings.solved]


def networks(
    settings: Settings, found: Found, widths: Sequence[int] | None = None
) -> list[Trajectory]:
    """Return the networks of all depths, for the given widths or by default for all."""
    return [
        Trajectory(found[f"width {n}, depth {l}"], run_of(l))
        for n in widths or settings.widths
        for l in settings.depths
    ]


def distances(settings: Settings, found: Found) -> xarray.Dataset:
    """Return distances of networks of all sizes, including N = ∞, from the limit."""
    nets = [*networks(settings, found), *solved_at(settings, found)]
    return lg.compare(limit_of(found), nets).to_xarray()
