"""Poole et al. 2016: curves through deep tanh networks, in order and in chaos."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.preactivations import preactivations
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals, exceeds, mean_of, near

BIAS, ORDER, CHAOS = 0.3, 0.8, 2.5  # σ_b, and σ_w of both phases
LAYERS, SPAN = 20, (4, 8)  # layers, and those between which lengths grow


class Settings(NamedTuple):
    """Widths, networks of each, and points of the curve."""

    widths: tuple[int, ...]
    seeds: int
    points: int


def _circle(weight: float, points: int) -> np.ndarray:
    """Return points of a circle whose first preactivations have the variance K*."""
    size = (
        np.sqrt(
            2 * (lg.criticality.variance_fixed_points("tanh", weight, BIAS)[-1].variance - BIAS**2)
        )
        / weight
    )
    angle = 2 * np.pi * np.arange(points) / points
    return size * np.stack([np.cos(angle), np.sin(angle)], 1)


def _curve(weight: float, width: int, settings: Settings) -> list[np.ndarray]:
    """Return the curve's length in each layer, (seed, layer), and its last correlations."""
    x = _circle(weight, settings.points)
    net = lg.mlp(LAYERS, "tanh", weight_std=weight, bias_std=BIAS)
    network = lg.networks.finite_network(net, lg.ntk(), width=width, inputs=2)
    lengths, correlations = [], []
    for key in range(settings.seeds):
        h = np.stack(preactivations(network, network.init(key), x, np.tanh))
        steps = np.linalg.norm(np.roll(h, 1, axis=1) - h, axis=2)
        lengths.append(steps.sum(axis=1) / width**0.5)
        last = h[-1] / np.linalg.norm(h[-1], axis=1, keepdims=True)
        correlations.append(
            np.sum(last * np.roll(last, settings.points // 4, axis=0), axis=1).mean()
        )
    return [np.array(lengths), np.array(correlations)]


def _compute(settings: Settings) -> xarray.Dataset:
    found = {
        (name, n): _curve(weight, n, settings)
        for name, weight in (("order", ORDER), ("chaos", CHAOS))
        for n in settings.widths
    }
    widths = settings.widths
    lengths = [[found[name, n][0] for n in widths] for name in ("order", "chaos")]
    last = [found[name, widths[-1]][1] for name in ("order", "chaos")]
    return xarray.Dataset(
        {
            "length": (("phase", "width", "seed", "layer"), lengths),
            "correlation": (("phase", "seed"), last),
        },
        {"phase": ["order", "chaos"], "width": list(widths)},
    )


def _rate(lengths: xarray.DataArray) -> tuple[float, float]:
    """Return the growth rate of the length per layer."""
    first, last = SPAN
    logs = np.log(lengths.isel(layer=last - 1) / lengths.isel(layer=first - 1))
    return mean_of(np.asarray(logs) / (last - first))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the lengths of curves and on correlations."""
    data, result = found["all"], []
    widest = settings.widths[-1]
    where = f"{settings.seeds} networks of width {widest}"
    for name, weight in (("order", ORDER), ("chaos", CHAOS)):
        chi = lg.criticality.variance_fixed_points("tanh", weight, BIAS)[-1].chi_perp
        verb = "grows" if chi > 1 else "shrinks"
        result.append(
            equals(f"{name}: a curve's length {verb} exponentially with depth, by √χ a layer",
                   f"rate per layer from {SPAN[0]} to {SPAN[1]}, {where}",
                   _rate(data["length"].sel(phase=name, width=widest)), np.log(chi) / 2, 0.1)
        )  # fmt: skip
    low, high = (_rate(data["length"].sel(phase="chaos", width=n)) for n in settings.widths)
    ratio = high[0] / low[0]
    order, chaos = (mean_of(data["correlation"].sel(phase=p).values) for p in ("order", "chaos"))
    angle = f"of points at a right angle, behind {LAYERS} layers, {where}"
    return [
        *result,
        equals("chaos: the growth with depth does not depend on the width: ratio of rates",
               f"width {widest} over width {settings.widths[0]}",
               (ratio, ratio * np.hypot(low[1] / low[0], high[1] / high[0])), 1.0, 0.1),
        exceeds("order: all points become one: their correlation", f"correlation {angle}",
                order, 0.99),
        near("chaos: points decorrelate to the fixed point c* < 1", f"correlation {angle}",
             chaos, lg.criticality.variance_fixed_points("tanh", CHAOS, BIAS)[-1].correlation,
             0.05),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(9, 3.2), layout="constrained")
    first, second, third = picture.subplots(1, 3, width_ratios=[1.3, 1, 1])
    layers = np.arange(1, LAYERS + 1)
    for k, (name, weight) in enumerate((("order", ORDER), ("chaos", CHAOS))):
        chi = lg.criticality.variance_fixed_points("tanh", weight, BIAS)[-1].chi_perp
        seen = found["all"]["length"].sel(phase=name, width=settings.widths[-1])
        mean, error = seen.mean("seed"), seen.std("seed") / settings.seeds**0.5
        first.errorbar(layers, mean, WITHIN * error, fmt="o", ms=3, label=name)
        line = layers if chi < 1 else layers[:10]
        first.plot(line, float(mean[0]) * chi ** ((line - 1) / 2), ":", color=f"C{k}")
    first.set(xlabel="layer", ylabel="length of a circle's image", yscale="log")
    first.set_title(r"dotted: $\chi^{\ell/2}$", fontsize=10)
    first.legend()
    for axes, (name, weight), depth in zip(
        (second, third), (("order", ORDER), ("chaos", CHAOS)), (4, 8), strict=True
    ):
        net = lg.mlp(depth, "tanh", weight_std=weight, bias_std=BIAS)
        network = lg.networks.finite_network(net, lg.ntk(), width=500, inputs=2)
        h = preactivations(network, network.init(0), _circle(weight, 400), np.tanh)[-1]
        h = np.vstack([h, h[:1]])  # the curve is closed
        _, _, axis = np.linalg.svd(h - h.mean(axis=0), full_matrices=False)
        axes.plot(*(h @ axis[:2].T).T / 500**0.5, lw=0.9, color="C0" if weight < 1 else "C1")
        axes.set(title=f"{name}, layer {depth}", xticks=[], yticks=[], aspect="equal")
    return picture


FIGURE = Figure(
    name="1606.05340-chaos",
    title="The image of a circle in deep tanh networks, in order and in chaos",
    source="Poole et al., Exponential expressivity in deep neural networks through transient "
    "chaos, arXiv 1606.05340",
    images=(),
    settings=Settings((100, 800), 12, 400),
    fast=Settings((60, 200), 4, 100),
    parts=one_part(f"curves {BIAS} {ORDER} {CHAOS} {LAYERS} {SPAN}", _compute),
    claims=claims,
    draw=_draw,
    notes=("right: first two principal components of one network's preactivations, width 500",),
)
