"""Section 2.2 and Theorem 4.2 of the Les Houches lectures: fourth cumulants at finite width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import (
    equals,
    intervals,
    mean_of,
    numbers,
    pair_of,
    ratio_of_moments,
)

X = np.array([[0.9, -0.4, 1.3]])
LINEAR = (5, 20)  # hidden layers and width
WIDTHS = (32, 64, 128)
STD, BIAS, LAYERS, WIDTH = 1.3, 0.2, 4, 100
DEPTHS = {"tanh": (1.0, 2 / 3), "relu": (2**0.5, 5.0)}  # σ_w, and C_σ of its class


class Settings(NamedTuple):
    """Number of drawn networks, and number of layers for the growth with depth."""

    draws: int
    layers: int


def _net(layers: int, name: str = "tanh") -> lg.layers.Layer:
    return lg.mlp(layers, name, weight_std=STD, bias_std=BIAS)


def _kernels(net: lg.layers.Layer, width: int, draws: int) -> np.ndarray:
    return lg.finite_width.sample_kernels(net, X, width=width, draws=draws, key=width)[:, 0, 0]


def _variance(S: np.ndarray) -> tuple[float, float]:
    return mean_of((S - S.mean()) ** 2)


def _relative(name: str, layers: int) -> float:
    """Return the width times V/K²."""
    net = lg.mlp(layers, name, weight_std=DEPTHS[name][0])
    found = lg.finite_width.width_corrections(net, np.ones((1, 1)), width=1)
    return float(found.kernel_covariance[0, 0] / found.kernel[0, 0] ** 2)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def drawn(report: Report) -> xarray.Dataset:
        linear = _kernels(lg.mlp(LINEAR[0], "linear"), LINEAR[1], settings.draws)
        deep = _kernels(_net(LAYERS), WIDTH, settings.draws)
        found = {"linear": ratio_of_moments(linear), "deep": _variance(deep)}
        for n in WIDTHS:
            found[f"width_{n}"] = _variance(_kernels(_net(2), n, settings.draws))
        one = _kernels(_net(1), WIDTH, settings.draws)
        # E f − ⟨f⟩_G of f = z⁴ is 3 Var S.
        value, error = _variance(one)
        found["observable"] = (3 * value, 3 * error)
        return numbers(**found)

    def rates(report: Report) -> xarray.Dataset:
        first, last = settings.layers, 2 * settings.layers
        found = {
            name: ((_relative(name, last) - _relative(name, first)) / (last - first), 0.0)
            for name in DEPTHS
        }
        return numbers(**found)

    return [
        Part("drawn", f"kernels of networks {settings.draws} {STD} {BIAS}", 5.0, drawn),
        Part("rates", f"cumulants by depth {settings.layers}", 2.0, rates),
    ]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that fourth cumulants are those of the lectures."""
    drawn, (layers, n) = found["drawn"], LINEAR
    where = f"of {settings.draws} networks"
    theory = lg.finite_width.width_corrections(_net(LAYERS), X, width=WIDTH)
    V = [
        float(
            lg.finite_width.width_corrections(_net(count), X, width=WIDTH).kernel_covariance[0, 0]
        )
        for count in (1, 2)
    ]
    values, errors = np.array([pair_of(drawn, f"width_{w}") for w in WIDTHS]).T
    logs = np.log(WIDTHS)
    centred = (logs - logs.mean()) / np.sum((logs - logs.mean()) ** 2)
    slope = float(centred @ np.log(values)), float(np.hypot.reduce(centred * errors / values))
    result = [
        equals(
            "deep linear networks: G₄/G₂² is (1 + 2/n)^l, eq. (56)",
            f"E z⁴/3(E z²)² {where}, n = {n}, l = {layers}", pair_of(drawn, "linear"),
            (1 + 2 / n) ** layers, 0.02,
        ),
        equals(
            "neurons become independent as the width grows: κ₄ falls as a power of it, Theorem 4.1",
            f"exponent from widths {WIDTHS}", slope, -1.0, 0.1,
        ),
        equals(
            "κ₄ obeys the recursion of Theorem 4.2",
            f"κ₄ {where}, n = {WIDTH}", pair_of(drawn, "deep"),
            float(theory.kernel_covariance[0, 0]), 0.1,
        ),
        equals(
            "E f with κ₄ of the layer of f itself",
            f"E z⁴ − 3(E z²)² {where}, one hidden layer", pair_of(drawn, "observable"),
            3 * V[0], 0.03,
        ),
        equals(
            "E f with κ₄ of the next layer, Theorem 4.2 as printed",
            f"E z⁴ − 3(E z²)² {where}, one hidden layer", pair_of(drawn, "observable"),
            3 * V[1], 0.03,
        ),
    ]  # fmt: skip
    for name, (_, wanted) in DEPTHS.items():
        result.append(
            equals(
                f"{name} at criticality: κ₄/K² grows linearly in l/n with the constant",
                f"rate per layer between {settings.layers} and {2 * settings.layers}",
                pair_of(found["rates"], name), wanted, 0.02,
            )
        )  # fmt: skip
    return result


FIGURE = Figure(
    name="003-4.2",
    title="Fourth cumulants of networks of finite width",
    source="Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width, "
    "section 2.2, Theorems 4.1 and 4.2 and the exercise behind the latter",
    images=(),
    settings=Settings(200_000, 400),
    fast=Settings(40_000, 200),
    parts=_parts,
    claims=claims,
    draw=lambda settings, found: intervals(claims(settings, found)),
)
