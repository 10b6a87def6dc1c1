"""The rate 1/L + √(D/(LM)) + 1/√D at which residual networks approach their limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

from largen.experiments.claims import Claim
from papers.chaintron.networks import drawn_blocks, drawn_ends, trained
from papers.hanin.verdicts import near
from papers.images import Images
from papers.powers import fitted_powers
from papers.record import Figure, Found, Part, Report

RATE, STEPS, PINNED = 0.5, 6, 8
RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 5)).astype(np.float32)
Y = np.array([1.0, -1.0, 1.0, -1.0], np.float32)


class Settings(NamedTuple):
    """Sizes (D, M, L) for the fluctuations, depths for the bias, and how much is drawn.

    Attributes
    ----------
    sizes
        Width of the stream, hidden width and depth of networks.
    ends, blocks
        Read-ins with their read-outs, and sets of blocks drawn for each of them.
    shape, depths
        D and M for the bias, and depths that double; compared are each and the next.
    pairs
        Sets of blocks drawn for each depth, of one read-in.
    """

    sizes: tuple[tuple[int, int, int], ...]
    ends: int
    blocks: int
    shape: tuple[int, int]
    depths: tuple[int, ...]
    pairs: int


def fluctuations(h: np.ndarray) -> dict[str, float]:
    """Return variances of the stream over blocks, and over read-ins at the mean over blocks.

    The mean over blocks is that of infinitely many: what a finite number adds to the variance
    over read-ins is taken off.

    Parameters
    ----------
    h
        ``(end, block, sample, neuron)``, of neurons that all read-ins share.
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
    """Return the square of the difference of two means over blocks, with its error.

    Without what a finite number of networks adds: the mean over pairs b ≠ b′ of
    (h_b − h̃_b)·(h_b′ − h̃_b′), and its error by leaving out one after the other.

    Parameters
    ----------
    shallow, deep
        ``(block, sample, neuron)``.
    """
    off = (shallow - deep).reshape(len(shallow), -1)
    gram = off.astype(np.float64) @ off.T / off.shape[1]
    total, own, size = gram.sum(), np.diag(gram), len(gram)
    value = (total - own.sum()) / (size * (size - 1))
    left = total - 2 * gram.sum(1) + own - (own.sum() - own)
    left = left / ((size - 1) * (size - 2))
    return float(value), float(np.sqrt((size - 1) * np.mean((left - left.mean()) ** 2)))


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def fluctuating(size: tuple[int, int, int], report: Report) -> xarray.Dataset:
        width, hidden, depth = size
        found = []
        for e in range(settings.ends):
            ends = drawn_ends(e, width, X, PINNED)
            for b in range(settings.blocks):
                seed = e * settings.blocks + b
                blocks = drawn_blocks(seed, width, hidden, depth)
                found.append(np.asarray(trained(ends, blocks, X, Y, RATE, STEPS)[0])[:, :PINNED])
            report(e + 1, settings.ends)
        h = np.array(found).reshape(settings.ends, settings.blocks, len(X), PINNED)
        return xarray.Dataset(fluctuations(h.astype(np.float64)))

    def biased(report: Report) -> xarray.Dataset:
        width, hidden = settings.shape
        ends, streams = drawn_ends(0, width, X, PINNED), []
        for k, depth in enumerate(settings.depths):
            sets = (drawn_blocks(b, width, hidden, depth) for b in range(settings.pairs))
            streams.append([np.asarray(trained(ends, s, X, Y, RATE, STEPS)[0]) for s in sets])
            report(k + 1, len(settings.depths))
        h = np.array(streams)
        pairs = [bias(h[k], h[k + 1]) for k in range(len(h) - 1)]
        value, error = np.array(pairs).T
        return xarray.Dataset(
            {"value": ("depth", value), "error": ("depth", error)},
            {"depth": list(settings.depths[:-1])},
        )

    how = f"{STEPS} steps of {RATE}"
    counts = f"{settings.ends} × {settings.blocks}"
    found = [
        Part(
            _name(size),
            f"two-layer blocks, {how}, {_name(size)}, {counts}",
            float(np.prod(size)) * 1e-6 + 1,
            partial(fluctuating, size),
        )
        for size in settings.sizes
    ]
    key = f"bias, {how}, D, M = {settings.shape}, L = {settings.depths}, {settings.pairs}"
    return [*found, Part("bias", key, 10.0, biased)]


def _name(size: tuple[int, int, int]) -> str:
    return "D {}, M {}, L {}".format(*size)


def _table(settings: Settings, found: Found, what: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [found[_name(size)] for size in settings.sizes]
    return tuple(np.array([float(row[f"{what}{e}"]) for row in rows]) for e in ("", "_error"))  # type: ignore[return-value]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return the powers of the three terms."""
    D, M, L = (np.array(each, float) for each in zip(*settings.sizes, strict=True))
    over_blocks = fitted_powers({"D": D, "M": M, "L": L}, *_table(settings, found, "blocks"))
    over_ends = fitted_powers({"D": D}, *_table(settings, found, "ends"))
    data = found["bias"]
    depth = data["depth"].values.astype(float)
    in_depth = fitted_powers({"L": depth}, data["value"].values, data["error"].values)
    nets = f"{settings.ends} read-ins with {settings.blocks} sets of blocks each"
    made = [
        near(
            f"√(D/(LM)): the stream's deviation over blocks goes as {name}^p, p",
            f"root of its variance, all sizes together, {nets}",
            _halved(over_blocks[name]),
            wanted,
            0.1,
        )
        for name, wanted in (("D", 0.5), ("L", -0.5), ("M", -0.5))
    ]
    made.append(
        near(
            "1/√D: the deviation over read-ins of the mean over blocks goes as D^p, p",
            f"root of its variance at {PINNED} neurons that all networks share, {nets}",
            _halved(over_ends["D"]),
            -0.5,
            0.1,
        )
    )
    made.append(
        near(
            "1/L: means over blocks at depths L and 2L differ by L^p, p",
            f"D = {settings.shape[0]}, M = {settings.shape[1]}, L = {settings.depths[0]} … "
            f"{settings.depths[-1]}, {settings.pairs} sets of blocks",
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
    for axes, what, size, label, law in (
        (first, "blocks", np.sqrt(D / (L * M)), r"$\sqrt{D/(LM)}$", 1.0),
        (second, "ends", D, r"$D$", -0.5),
    ):
        value, error = _table(settings, found, what)
        seen = value > 0
        root = np.sqrt(value[seen])
        axes.errorbar(size[seen], root, error[seen] / (2 * root), fmt="o", ms=4)
        ends = np.array([size.min(), size.max()])
        middle = np.exp(np.mean(np.log(root) - law * np.log(size[seen])))
        axes.plot(ends, middle * ends**law, ":", color="gray")
        axes.set(xlabel=label, xscale="log", yscale="log")
    first.set_title("deviation of $h^L$ over blocks")
    second.set_title("deviation of its mean over read-ins")
    data = found["bias"]
    seen = data.isel(depth=np.flatnonzero(data["value"].values > 0))
    root = np.sqrt(seen["value"].values)
    third.errorbar(seen["depth"], root, seen["error"].values / (2 * root), fmt="o", ms=4)
    depth = data["depth"].values.astype(float)
    third.plot(depth, root[0] * (depth / depth[0]) ** -1.0, ":", color="gray")
    third.set(xlabel="$L$", xscale="log", yscale="log", title="means at depths $L$ and $2L$")
    return picture


_SIZES = tuple((D, M, L) for D in (32, 64, 128) for M in (32, 128) for L in (4, 16))

FIGURE = Figure(
    name="2603.18168-rate",
    title="The three terms of the rate 1/L + √(D/(LM)) + 1/√D in the stream",
    source="Chaintron, Chizat and Maass, ResNets of all shapes and sizes, arXiv 2603.18168",
    images=(),
    settings=Settings(_SIZES, 24, 4, (32, 64), (1, 2, 4, 8, 16), 256),
    fast=Settings(((16, 16, 2), (32, 16, 4), (16, 32, 4), (32, 32, 2)), 8, 3, (16, 16), (1, 2, 4), 32),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "the bound's terms one by one: the paper bounds their sum, in embedding space",
        "tanh, four samples, mean squared error; the paper has no names for our constants",
    ),
)  # fmt: skip
