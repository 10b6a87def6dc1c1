"""Section 1.7 of the Les Houches lectures: convergence rates of variances and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals, mean_of, numbers, pair_of

ORDER, CHAOS, EDGE_AT = (1.0, 0.5), (2.5, 0.2), 0.5
AWAY = {"order": -0.3, "chaos": 0.2}  # initial distance of the correlation from c*
SPAN = (3, 7)  # layers between which distances from the fixed point are compared


class Settings(NamedTuple):
    """Width and number of the drawn networks; number of layers at the edge of chaos."""

    width: int
    draws: int
    layers: int


def _inputs(correlation: float) -> np.ndarray:
    return np.array([[1.0, 0.0], [correlation, np.sqrt(1 - correlation**2)]])


def stationary(constants: tuple[float, float], variance: float, correlation: float) -> np.ndarray:
    """Return two inputs whose first preactivations have this variance and correlation."""
    weight, bias = (each**2 for each in constants)
    own, both = (variance - bias) / weight, (variance * correlation - bias) / weight
    return np.sqrt(2 * own) * _inputs(both / own)


def _drawn(constants: tuple[float, float], x: np.ndarray, depth: int, settings: Settings):
    net = lg.mlp(depth, "tanh", weight_std=constants[0], bias_std=constants[1])
    return lg.finite_width.sample_kernels(
        net, x, width=settings.width, draws=settings.draws, key=depth
    )


def _rate(differences: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the decay rate per layer of the distance from the fixed point, in logarithms."""
    (first, own), (last, other) = differences
    layers = SPAN[1] - SPAN[0]
    error = np.hypot(own / first, other / last) / layers
    return float(np.log(first / last)) / layers, float(error)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def drawn(report: Report) -> xarray.Dataset:
        found = {}
        for name, constants in (("order", ORDER), ("chaos", CHAOS)):
            point = lg.criticality.variance_fixed_points("tanh", *constants)[-1]
            start = point.correlation + AWAY[name]
            x = stationary(constants, point.variance, start)
            differences = []
            for depth in SPAN:
                S = _drawn(constants, x, depth, settings)
                c = S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1])
                differences.append(mean_of(c - point.correlation))
            found[name] = _rate(differences)
        return numbers(**found)

    def limit(report: Report) -> xarray.Dataset:
        edge = lg.criticality.edge_of_chaos("tanh", [EDGE_AT])
        net = lg.mlp(
            settings.layers, "tanh", weight_std=float(edge.weight_std[0]),
            bias_std=float(edge.bias_std[0]),
        )  # fmt: skip
        found = lg.criticality.propagate(net, _inputs(0.5))
        return xarray.Dataset({"left": ("layer", found.gap[:, 0, 1] / found.variance.mean(axis=1))})

    return [
        Part("drawn", f"tanh correlations {settings} {ORDER} {CHAOS} {AWAY} {SPAN}", 10.0, drawn),
        Part("edge", f"tanh edge {settings.layers} {EDGE_AT}", 2.0, limit),
    ]


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that rates per layer are those of the lectures."""
    result = []
    for name, constants in (("order", ORDER), ("chaos", CHAOS)):
        point = lg.criticality.variance_fixed_points("tanh", *constants)[-1]
        seen = pair_of(found["drawn"], name)
        where = f"of {settings.draws} networks of width {settings.width}"
        result += [
            equals(
                f"{name}: correlations come to c* at the rate −log χ(c*), eq. (41)",
                f"rate per layer {where}", seen, 1 / point.correlation_depth, 0.1,
            ),
            equals(
                f"{name}: ξ_c = −log χ(c*), so that the rate is its inverse, eq. (43) as printed",
                f"rate per layer {where}", seen, point.correlation_depth, 0.1,
            ),
        ]  # fmt: skip
    left = found["edge"]["left"].values
    half = len(left) // 2
    exponent = float(np.log(left[half] / left[-1]) / np.log((len(left) - 1) / half))
    result.append(
        equals(
            "on the critical line correlations settle algebraically, as 1/ℓ for a smooth φ",
            f"local exponent between {half} and {len(left) - 1} layers", (exponent, 0.0), 1.0, 0.1,
        )
    )  # fmt: skip
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.5), layout="constrained")
    axes = picture.subplots()
    left = found["edge"]["left"].values
    layers = np.arange(1, len(left))
    axes.loglog(layers, left[1:], label="tanh at K* = 0.5")
    law = lg.criticality.edge_of_chaos("tanh", [EDGE_AT]).correlation_gap_after(layers, EDGE_AT)
    axes.loglog(layers, law, "--", color="gray", label="leading order")
    axes.set(xlabel="layer", ylabel="1 − c on the critical line")
    axes.legend()
    return picture


FIGURE = Figure(
    name="003-1.7",
    title="Depth scales of tanh networks in order, in chaos and between them",
    source="Bahri and Hanin, Les Houches lectures on deep learning at large and infinite width, "
    "section 1.7, eqs. (38)-(43)",
    images=(),
    settings=Settings(1000, 2500, 1000),
    fast=Settings(500, 200, 400),
    parts=_parts,
    claims=claims,
    draw=_draw,
)
