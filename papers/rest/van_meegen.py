"""Van Meegen and Sompolinsky 2025: what neurons code in linear, sigmoidal and relu networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.rest.distances import distance
from papers.verdicts import alternative, equals, exceeds, mean_of, near

DEPTHS, GAMMA = (1, 3), 2.0
NOISES = (1.0, 0.1, 0.01, 1e-3)  # the paper's limit is zero
ACTIVATIONS = ("erf", "relu")
EDGES = np.linspace(-20, 20, 101)  # of histograms


class Settings(NamedTuple):
    """Width of linear networks; sites, their scramblings, and draws for the histograms."""

    width: int
    sites: int
    replicates: int
    draws: int


def _task() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ten training samples of two classes in twelve dimensions, and six test samples."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((16, 12))
    return x[:10], np.sign(rng.standard_normal(10)), x[10:]


def _against_fixed(settings: Settings, net: Any, noise: float, width: int | None) -> list[float]:
    """Return the distance of means from those of fixed features, and how Φ grows along y."""
    x, y, tests = _task()
    given = lg.regression.adaptive_posterior(
        net, x, y, noise=noise, param=lg.mean_field(GAMMA), sites=settings.sites
    )
    fixed = lg.posterior(net, x, y, noise=noise).predict(tests).mean
    grown = (y @ given.feature_kernel @ y) / (y @ given.prior_kernel @ y)
    return [distance(given.predict(tests, width=width).mean, fixed)[0], float(grown)]


def _read_outs(settings: Settings, phi: str) -> tuple[list[float], np.ndarray]:
    """Return E z⁴/(E z²)² of read-out weights at rest on every set of sites, and a histogram."""
    rng = np.random.default_rng(0)
    x, y = np.random.default_rng(3).standard_normal((4, 2)), np.array([1.0, -1.0, 1.0, -1.0])
    given = lg.regression.adaptive_posterior(
        lg.mlp(1, phi), x, y, noise=0.02, param=lg.mean_field(), sites=settings.sites,
        replicates=settings.replicates,
    )  # fmt: skip
    assert isinstance(given, lg.regression.AdaptivePosterior)
    kurtosis, drawn = [], []
    for part in given.replicates:
        # z ~ N(γ₀s, 1) with s = α·φ(h); homogeneous neurons have a random radius r, s → rs.
        tilted, radius = part.maximum.tilted, part.problem.sites.dimension
        weights, s = tilted.weights, tilted.s[:, 0] * given.equilibrium.gamma
        second = weights @ (1 + s**2 * tilted.second)
        fourth = weights @ (3 + 6 * s**2 * tilted.second + s**4 * tilted.fourth)
        kurtosis.append(float(fourth / second**2))
        chosen = s[rng.choice(len(weights), settings.draws, p=weights / weights.sum())]
        if radius is not None:
            chosen = chosen * np.sqrt(rng.chisquare(radius, len(chosen)) / (1 - chosen**2))
        drawn.append(chosen + rng.standard_normal(len(chosen)))
    return kurtosis, np.histogram(np.concatenate(drawn), EDGES, density=True)[0]


def _compute(settings: Settings) -> xarray.Dataset:
    linear = [[_against_fixed(settings, lg.mlp(depth, "linear"), noise, settings.width)
               for noise in NOISES] for depth in DEPTHS]  # fmt: skip
    curved = [_against_fixed(settings, lg.mlp(1, "erf"), noise, None) for noise in NOISES]
    neurons = [_read_outs(settings, phi) for phi in ACTIVATIONS]
    return xarray.Dataset(
        {
            "linear": (("depth", "noise", "what"), linear),
            "erf": (("noise", "what"), curved),
            "kurtosis": (("phi", "replicate"), [kurtosis for kurtosis, _ in neurons]),
            "density": (("phi", "z"), [density for _, density in neurons]),
        },
        {"depth": list(DEPTHS), "noise": list(NOISES), "what": ["distance", "grown"],
         "phi": list(ACTIVATIONS), "z": (EDGES[1:] + EDGES[:-1]) / 2},
    )  # fmt: skip


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on means and features of linear networks, and on read-outs of others."""
    data, result = found["all"], []
    least, most = NOISES[-1], NOISES[0]
    for depth in DEPTHS:
        at = data["linear"].sel(depth=depth)
        where = f"linear, {depth} hidden, N = {settings.width}, γ₀ = {GAMMA:g}"
        small, large = (at.sel(noise=noise).values.tolist() for noise in (least, most))
        result += [
            near("the mean of linear networks is that of fixed features: relative distance",
                 f"κ = {least:g}, {where}", (small[0], 0.0), 0.0, 0.01),
            exceeds("despite strong features: the kernel along the targets, over that before",
                    f"κ = {least:g}, {where}", (small[1], 0.0), 2.0),
            alternative(near("and so it is at any noise of the targets: relative distance",
                             f"κ = {most:g}, {where}", (large[0], 0.0), 0.0, 0.01)),
        ]  # fmt: skip
    curved = data["erf"].sel(noise=least).values.tolist()
    where = "E z⁴/(E z²)² of read-out weights, infinite width, {}, κ = 0.02"
    erf, relu = (mean_of(data["kurtosis"].sel(phi=phi).values) for phi in ACTIVATIONS)
    return [
        *result,
        alternative(near("the mean of sigmoidal networks is that of fixed features: distance",
                         f"erf, one hidden layer of infinite width, κ = {least:g}",
                         (curved[0], 0.0), 0.0, 0.01)),
        exceeds("sigmoidal networks code redundantly, neurons in groups: 3 − kurtosis",
                where.format("erf"), (3 - erf[0], erf[1]), 1.0),
        exceeds("relu networks code sparsely, with few strong neurons: kurtosis",
                where.format("relu"), relu, 4.0),
        alternative(equals("neurons stay Gaussian, as in linear networks: kurtosis",
                           where.format("erf"), erf, 3.0, 0.1)),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture, data = Picture(figsize=(9, 3.2), layout="constrained"), found["all"]
    first, second, third = picture.subplots(1, 3)
    for depth in DEPTHS:
        for axes, what in ((first, "distance"), (second, "grown")):
            axes.plot(data["noise"], data["linear"].sel(depth=depth, what=what), "o-",
                      label=f"linear, {depth} hidden")  # fmt: skip
    for axes, what in ((first, "distance"), (second, "grown")):
        axes.plot(data["noise"], data["erf"].sel(what=what), "s-", color="gray", label="erf")
        axes.set(xscale="log", xlabel="noise κ")
    first.set(yscale="log", ylabel="mean: distance from fixed features")
    second.set(ylabel="kernel along targets, over prior's", ylim=(0, None))
    first.legend(fontsize=8)
    for phi in ACTIVATIONS:
        third.step(data["z"], data["density"].sel(phi=phi), where="mid", label=phi)
    z = data["z"].values
    third.plot(z, np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), ":", color="gray", label="prior")
    third.set(xlabel="read-out weight z", ylabel="density", yscale="log", ylim=(3e-5, 1))
    third.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="2406.16689-coding",
    title="Coding schemes at rest: analog in linear networks, redundant or sparse in others",
    source="van Meegen and Sompolinsky, Coding schemes in neural networks learning "
    "classification tasks, arXiv 2406.16689",
    images=(),
    settings=Settings(64, 2**13, 16, 20000),
    fast=Settings(64, 2**11, 8, 4000),
    parts=one_part(f"coding {DEPTHS} {GAMMA} {NOISES} {ACTIVATIONS} {EDGES[[0, 1, -1]]}", _compute),
    claims=claims,
    draw=_draw,
    notes=("the paper's limit is that of noise zero; linear networks are exact at their width",
           "a kurtosis of 3 is Gaussian, 1 is two groups of equal strength, and large ones are "
           "a few strong neurons among many weak ones"),
)  # fmt: skip
