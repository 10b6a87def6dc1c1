"""The rate 1/L + √(D/(LM)) + 1/√D at which residual networks approach their limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

from papers.chaintron.networks import drawn_blocks, drawn_ends, regrouped, trained
from papers.claims import Claim
from papers.images import Images
from papers.powers import fitted_powers
from papers.record import Figure, Found, Part, Report
from papers.verdicts import near

RATE, STEPS, PINNED = 0.25, 4, 8
RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 5)).astype(np.float32)
Y = np.array([1.0, -1.0, 1.0, -1.0], np.float32)


class Settings(NamedTuple):
    """Sizes (D, M, L) of networks: width of the stream, hidden width and depth.

    Attributes
    ----------
    sizes, draws
        Sizes for the fluctuations over blocks; the number of read-ins, each with its read-out, and
        of sets of blocks for each.
    wide, wide_draws
        Sizes and numbers of draws for the fluctuations over read-ins, with LM large so that the
        blocks contribute little.
    shape, depths, sets
        D and LM for the error in depth; depths that double, with the same LM neurons in all
        networks; the number of sets of neurons.
    """

    sizes: tuple[tuple[int, int, int], ...]
    draws: tuple[int, int]
    wide: tuple[tuple[int, int, int], ...]
    wide_draws: tuple[int, int]
    shape: tuple[int, int]
    depths: tuple[int, ...]
    sets: int


def fluctuations(h: np.ndarray) -> dict[str, float]:
    """Return the stream's variance over blocks, and the variance over read-ins of its block mean.

    The variance over read-ins is corrected for the finite number of sets of blocks, whose
    contribution is subtracted.

    Parameters
    ----------
    h
        The stream ``(end, block, sample, neuron)`` at the neurons that all read-ins share.
    """
    ends, blocks = h.shape[:2]
    per_end = h.var(1, ddof=1).mean((1, 2))
    over_blocks = per_end.mean()
    means = h.mean(1)
    off = means - means.mean(0)
    per_mean = np.square(off).mean((1, 2)) * ends / (ends - 1) - per_end / blocks
    root = ends**0.5
    return {
        "blocks": float(over_blocks),
        "blocks_error": float(per_end.std(ddof=1) / root),
        "ends": float(per_mean.mean()),
        "ends_error": float(per_mean.std(ddof=1) / root),
    }


def bias(shallow: np.ndarray, deep: np.ndarray) -> tuple[float, float]:
    """Return the squared difference of two means over blocks, with its error.

    The estimate has no bias from the finite number of networks: it is the mean over pairs b ≠ b′
    of (h_b − h̃_b)·(h_b′ − h̃_b′). Its jackknife error is too large if the difference is not
    resolved.

    Parameters
    ----------
    shallow, deep
        The streams of the networks of the two depths, ``(block, sample, neuron)``.
    """
    off = (shallow - deep).reshape(len(shallow), -1)
    gram = off.astype(np.float64) @ off.T / off.shape[1]
    total, own, size = gram.sum(), np.diag(gram), len(gram)
    value = (total - own.sum()) / (size * (size - 1))
    left = total - 2 * gram.sum(1) + own - (own.sum() - own)
    left = left / ((size - 1) * (size - 2))
    return float(value), float(np.sqrt((size - 1) * np.mean((left - left.mean()) ** 2)))


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def fluctuating(
        size: tuple[int, int, int], draws: tuple[int, int], report: Report
    ) -> xarray.Dataset:
        width, hidden, depth = size
        found = []
        for e in range(draws[0]):
            ends = drawn_ends(e, width, X, PINNED)
            for b in range(draws[1]):
                blocks = drawn_blocks(e * draws[1] + b, width, hidden, depth)
                h, _ = trained(ends, blocks, X, Y, RATE, STEPS)
                found.append(np.asarray(h)[:, :PINNED])
            report(e + 1, draws[0])
        h = np.array(found).reshape(*draws, len(X), PINNED)
        return xarray.Dataset(fluctuations(h.astype(np.float64)))

    def biased(report: Report) -> xarray.Dataset:
        width, neurons = settings.shape
        ends, streams = drawn_ends(0, width, X, PINNED), []
        for b in range(settings.sets):
            blocks = drawn_blocks(b, width, neurons, 1)
            each = [regrouped(blocks, depth) for depth in settings.depths]
            streams.append([np.asarray(trained(ends, s, X, Y, RATE, STEPS)[0]) for s in each])
            report(b + 1, settings.sets)
        h = np.swapaxes(np.array(streams), 0, 1)
        pairs = [bias(h[k], h[k + 1]) for k in range(len(h) - 1)]
        value, error = np.array(pairs).T
        return xarray.Dataset(
            {"value": ("depth", value), "error": ("depth", error)},
            {"depth": list(settings.depths[:-1])},
        )

    how = f"two-layer blocks, {STEPS} steps of {RATE}"
    found = [
        Part(
            _name(size),
            f"{how}, {_name(size)}, {draws}",
            (float(np.prod(size)) * 1e-6 + 0.01) * np.prod(draws),
            partial(fluctuating, size, draws),
        )
        for sizes, draws in (
            (settings.sizes, settings.draws),
            (settings.wide, settings.wide_draws),
        )
        for size in sizes
    ]
    key = f"depth, {how}, D, LM = {settings.shape}, L = {settings.depths}, {settings.sets} sets"
    return [*found, Part("depth", key, 10.0, biased)]


def _name(size: tuple[int, int, int]) -> str:
    return "D {}, M {}, L {}".format(*size)


Sizes = Sequence[tuple[int, int, int]]


def _table(sizes: Sizes, found: Found, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a variance at all sizes, with its errors."""
    rows = [found[_name(size)] for size in sizes]
    value, error = (np.array([float(row[f"{what}{e}"]) for row in rows]) for e in ("", "_error"))
    return value, error


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the powers of the three terms."""
    D, M, L = (np.array(each, float) for each in zip(*settings.sizes, strict=True))
    over_blocks = fitted_powers({"D": D, "M": M, "L": L}, *_table(settings.sizes, found, "blocks"))
    widths = np.array([size[0] for size in settings.wide], float)
    over_ends = fitted_powers({"D": widths}, *_table(settings.wide, found, "ends"))
    data = found["depth"]
    depth = data["depth"].values.astype(float)
    in_depth = fitted_powers({"L": depth}, data["value"].values, data["error"].values)
    made = [
        near(
            f"√(D/(LM)): the stream's standard deviation over blocks goes as {name}^p, p",
            f"root of its variance, all sizes together, {settings.draws[0]} read-ins with "
            f"{settings.draws[1]} sets of blocks each",
            _halved(over_blocks[name]),
            wanted,
            0.1,
        )
        for name, wanted in (("D", 0.5), ("L", -0.5), ("M", -0.5))
    ]
    made.append(
        near(
            "1/√D: the standard deviation over read-ins of the mean over blocks goes as D^p, p",
            f"root of its variance at {PINNED} neurons that all networks share, D = "
            f"{settings.wide[0][0]} … {settings.wide[-1][0]}, {settings.wide_draws[0]} read-ins "
            f"with {settings.wide_draws[1]} sets of blocks each",
            _halved(over_ends["D"]),
            -0.5,
            0.15,
        )
    )
    made.append(
        near(
            "1/L: means over blocks at depths L and 2L of the same LM neurons differ by L^p, p",
            f"D = {settings.shape[0]}, LM = {settings.shape[1]}, L = {settings.depths[0]} … "
            f"{settings.depths[-1]}, {settings.sets} sets of neurons",
            _halved(in_depth["L"]),
            -1.0,
            0.15,
        )
    )
    return made


def _halved(pair: tuple[float, float]) -> tuple[float, float]:
    return pair[0] / 2, pair[1] / 2


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(10, 3.3), layout="constrained")
    first, second, third = picture.subplots(1, 3)
    D, M, L = (np.array(each, float) for each in zip(*settings.sizes, strict=True))
    widths = np.array([size[0] for size in settings.wide], float)
    for axes, what, sizes, size, label, law in (
        (first, "blocks", settings.sizes, np.sqrt(D / (L * M)), r"$\sqrt{D/(LM)}$", 1.0),
        (second, "ends", settings.wide, widths, r"$D$", -0.5),
    ):
        value, error = _table(sizes, found, what)
        seen = value > 0
        root = np.sqrt(value[seen])
        axes.errorbar(size[seen], root, error[seen] / (2 * root), fmt="o", ms=4)
        ends = np.array([size.min(), size.max()])
        middle = np.exp(np.mean(np.log(root) - law * np.log(size[seen])))
        axes.plot(ends, middle * ends**law, ":", color="gray")
        axes.set(xlabel=label, xscale="log", yscale="log")
    first.set_title("standard deviation of $h^L$ over blocks")
    second.set_title("standard deviation of its mean over read-ins")
    data = found["depth"]
    seen = data.isel(depth=np.flatnonzero(data["value"].values > 0))
    root = np.sqrt(seen["value"].values)
    third.errorbar(seen["depth"], root, seen["error"].values / (2 * root), fmt="o", ms=4)
    depth = data["depth"].values.astype(float)
    third.plot(depth, root[0] * (depth / depth[0]) ** -1.0, ":", color="gray")
    third.set(xlabel="$L$", xscale="log", yscale="log", title="means at depths $L$ and $2L$")
    return picture


_SIZES = tuple((D, M, L) for D in (32, 64, 128) for M in (32, 128) for L in (4, 16))
_WIDE = tuple((D, 512, 8) for D in (32, 64, 128, 256))
_FEW = ((16, 16, 2), (32, 16, 4), (16, 32, 4), (32, 32, 2))

FIGURE = Figure(
    name="2603.18168-rate",
    title="The three terms of the rate 1/L + √(D/(LM)) + 1/√D in the stream",
    source="Chaintron, Chizat and Maass, ResNets of all shapes and sizes, arXiv 2603.18168",
    images=(),
    settings=Settings(_SIZES, (24, 4), _WIDE, (640, 3), (32, 4096), (4, 8, 16, 32, 64), 24),
    fast=Settings(
        _FEW, (8, 3), ((8, 64, 4), (16, 64, 4), (32, 64, 4)), (16, 3), (16, 256), (1, 2, 4, 8), 8
    ),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "the bound's terms one by one, in the stream behind the last block after training",
        "tanh, four samples, mean squared error, all weights trained",
    ),
)
