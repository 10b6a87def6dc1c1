"""Section 2.2 of the lectures on scaling limits: Gaussian processes and the first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import xarray

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals, intervals, mean_of, numbers, pair_of

X = np.array([[0.9, -0.4, 1.3, 0.2]])
SIGMA = 2**0.5
WIDTHS = (20, 30, 15)
SIZES = (32, 128)  # widths at which moments of averages over neurons are compared
_AT_ONCE = 10_000


class Settings(NamedTuple):
    """Networks that are drawn."""

    draws: int


def _shares(draws: int) -> np.ndarray:
    """Return η_ℓ|∂z/∂W^ℓ|² of every layer of relu networks with one rate each, (draw, layer)."""
    rng = np.random.default_rng(0)
    rates = lg.finite_width.layer_learning_rates(
        lg.mlp(len(WIDTHS), "relu", weight_std=SIGMA), X, width=WIDTHS
    ).rates
    found = []
    for _ in range(-(-draws // _AT_ONCE)):
        z, values, weights = X[0], [np.broadcast_to(X[0], (_AT_ONCE, X.shape[1]))], []
        z = values[0]
        for number, (before, n) in enumerate(pairwise((X.shape[1], *WIDTHS, 1))):
            W = SIGMA / np.sqrt(before) * rng.standard_normal((_AT_ONCE, n, before))
            weights.append(W)
            z = np.einsum("rij,rj->ri", W, z)
            if number < len(WIDTHS):
                z = np.maximum(z, 0)
                values.append(z)
        g = np.ones((_AT_ONCE, 1))
        squares = []
        for W, value in zip(weights[::-1], values[::-1], strict=True):
            squares.append(np.sum(g**2, axis=1) * np.sum(value**2, axis=1))
            g = np.einsum("ri,rij->rj", g, W) * (value > 0)
        found.append(np.stack(squares[::-1], axis=1) * rates)
    return np.concatenate(found)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        shares = _shares(settings.draws)
        found = {f"share_{k}": mean_of(shares[:, k]) for k in range(shares.shape[1])}
        found["total"] = mean_of(shares.sum(axis=1))
        net = lg.mlp(3, "tanh", weight_std=1.3, bias_std=0.2)
        for n in SIZES:
            S = lg.finite_width.sample_kernels(net, X, width=n, draws=settings.draws, key=n)[
                :, 0, 0
            ]
            centred = S - S.mean()
            found[f"second_{n}"] = mean_of(centred**2)
            found[f"third_{n}"] = mean_of(centred**3)
            found[f"fourth_{n}"] = mean_of(centred**4)
        return numbers(**found)

    return [Part("drawn", f"first step {settings} {WIDTHS} {SIZES}", 1.0, compute)]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that rates and moments are those of section 2.2."""
    drawn, layers = found["drawn"], len(WIDTHS) + 1
    where = f"of {settings.draws} networks of widths {WIDTHS}"
    point = lg.criticality.critical_initialization("relu", depth=10)
    result = [
        equals(
            "criticality of relu: Kaiming's σ_W² = 2 (section 2.2.2)", "σ_w² of the critical point",
            (point.weight_std**2, 0.0), 2.0, 1e-9,
        ),
        equals(
            "rates of order 1/(L N_{ℓ−1}) make outputs move by order one (section 2.2.3)",
            f"tangent kernel with these rates {where}", pair_of(drawn, "total"), 1.0, 0.05,
        ),
    ]  # fmt: skip
    result += [
        equals(
            f"every layer has the same share in it: that of layer {k + 1} of {layers}",
            f"share {where}", pair_of(drawn, f"share_{k}"), 1 / layers, 0.05,
        )
        for k in range(layers)
    ]  # fmt: skip
    for name, power in (("second", 1), ("third", 2), ("fourth", 2)):
        first, last = (pair_of(drawn, f"{name}_{n}") for n in SIZES)
        ratio = np.log(last[0] / first[0]) / np.log(SIZES[1] / SIZES[0])
        error = np.hypot(first[1] / first[0], last[1] / last[0]) / np.log(SIZES[1] / SIZES[0])
        result.append(
            equals(
                f"{name} moments of averages over neurons fall as N^−⌈k/2⌉ (Theorem 2.2.3)",
                f"exponent between widths {SIZES} of {settings.draws} networks",
                (float(ratio), float(error)), -power, 0.1,
            )
        )  # fmt: skip
    return result


FIGURE = Figure(
    name="002-2.2",
    title="Averages over neurons, and learning rates of the first step",
    source="Hanin, lectures on scaling limits of neural networks, section 2.2 and Theorem 2.2.3",
    images=(),
    settings=Settings(600_000),
    fast=Settings(40_000),
    parts=_parts,
    claims=claims,
    draw=lambda settings, found: intervals(claims(settings, found)),
)
