"""Schoenholz et al. 2017: depth scales of correlations and gradients in tanh networks."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.hanin.correlations import stationary
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals, exceeds, mean_of

BIAS = 0.05**0.5  # σ_b
WEIGHTS = (1.1, 1.3, 1.5, 2.1, 2.5, 3.0)  # σ_w²; the edge is at 1.76
START = 0.1  # initial distance from c*, which the layers before FIRST equilibrate
FIRST = 3
ORDER, CHAOS = 1.3, 2.5  # σ_w² at which gradients are measured
LAYERS, SKIPPED = 30, 5


class Settings(NamedTuple):
    """Width and number of networks drawn for correlations, and for gradients."""

    width: int
    draws: int
    small: int
    gradients: int


def _point(square: float) -> lg.criticality.FixedPoint:
    return lg.criticality.variance_fixed_points("tanh", square**0.5, BIAS)[-1]


def _rate(square: float, settings: Settings) -> tuple[float, float]:
    """Return the rate per layer at which correlations come to c*, from two depths."""
    point = _point(square)
    start = point.correlation + (START if point.correlation < 0.9 else -START)
    x = stationary((square**0.5, BIAS), point.variance, start)
    last = FIRST + max(2, round(abs(point.correlation_depth)))
    found = []
    for depth in (FIRST, last):
        net = lg.mlp(depth, "tanh", weight_std=square**0.5, bias_std=BIAS)
        S = lg.finite_width.sample_kernels(
            net, x, width=settings.width, draws=settings.draws, key=depth
        )
        found.append(mean_of(S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1]) - point.correlation))
    (one, own), (two, other) = found
    return np.log(one / two) / (last - FIRST), np.hypot(own / one, other / two) / (last - FIRST)


def _gradients(square: float, settings: Settings) -> np.ndarray:
    """Return |∂f/∂W|² of the hidden layers, from the input to the output, (seed, layer)."""
    net = lg.mlp(LAYERS, "tanh", weight_std=square**0.5, bias_std=BIAS)
    network = lg.networks.finite_network(net, lg.ntk(), width=settings.small, inputs=2)
    x = stationary((square**0.5, BIAS), _point(square).variance, 0.9)[:1]
    gradient = jax.jit(jax.grad(lambda params: network.outputs_of(params, x)[0]))
    sizes = []
    for key in range(settings.gradients):
        found = gradient(network.init(key, np.float32))[2:-1:2]
        sizes.append([float((each["weight"] ** 2).sum()) for each in found])
    return np.array(sizes)


def _compute(settings: Settings) -> xarray.Dataset:
    return xarray.Dataset(
        {
            "rate": (("square", "what"), [_rate(each, settings) for each in WEIGHTS]),
            "gradient": (
                ("phase", "seed", "layer"), [_gradients(each, settings) for each in (ORDER, CHAOS)]
            ),
        },
        {"square": list(WEIGHTS), "phase": ["order", "chaos"]},
    )  # fmt: skip


def _edge() -> float:
    """Return σ_w² at which the phases meet."""
    line = lg.criticality.edge_of_chaos("tanh", np.linspace(0.05, 1.0, 400))
    return float(np.interp(BIAS, line.bias_std, line.weight_std)) ** 2


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on depth scales of correlations, variances and gradients."""
    data, where = found["all"], f"{settings.draws} networks of width {settings.width}"
    rates, errors = data["rate"].values.T
    wanted = np.array([1 / _point(each).correlation_depth for each in WEIGHTS])
    weights = (wanted / errors) ** 2
    ratio = float(np.average(rates / wanted, weights=weights)), float(weights.sum() ** -0.5)
    edge = _edge()
    near_edge = _point(edge - 1e-3)
    result = [
        equals("correlations come to c* within the depth ξ_c = −1/log χ: ratio of rates",
               f"weighted mean over σ_w² = {WEIGHTS}, {where} each", ratio, 1.0, 0.1),
        exceeds("ξ_c diverges at the line between order and chaos: layers",
                f"ξ_c at σ_w² = {edge:.3f} − 0.001", (near_edge.correlation_depth, 0.0), 100.0),
        exceeds("variances settle within few layers there, too: 1/ξ_q",
                "1/ξ_q at the same σ_w²", (1 / near_edge.variance_depth, 0.0), 0.1),
    ]  # fmt: skip
    for name, square in (("order", ORDER), ("chaos", CHAOS)):
        sizes = data["gradient"].sel(phase=name).values
        layers = LAYERS - 1 - 2 * SKIPPED  # measured
        factor, error = mean_of(sizes[:, SKIPPED] / sizes[:, -1 - SKIPPED])
        verb = "vanish" if name == "order" else "explode"
        result.append(
            equals(f"{name}: gradients {verb} towards the input, by χ a layer",
                   f"log of the mean factor of |∂f/∂W|² per layer, {settings.gradients} networks "
                   f"of width {settings.small}",
                   (np.log(factor) / (layers - 1), error / factor / (layers - 1)),
                   np.log(_point(square).chi_perp), 0.1)
        )  # fmt: skip
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.2), layout="constrained")
    left, right = picture.subplots(1, 2)
    squares, edge = np.linspace(1, 3.2, 90), _edge()
    points = [_point(each) for each in squares]
    left.plot(squares, [p.correlation_depth for p in points], label=r"$\xi_c$")
    left.plot(squares, [p.variance_depth for p in points], color="gray", label=r"$\xi_q$")
    rates, errors = found["all"]["rate"].values.T
    left.errorbar(WEIGHTS, 1 / rates, WITHIN * errors / rates**2, fmt="o", color="C0", ms=4)
    left.axvline(edge, color="black", ls=":", lw=0.8)
    left.set(xlabel=r"$\sigma_w^2$", ylabel="layers", ylim=(0, 40))
    left.legend()
    layers = np.arange(2, LAYERS + 1)
    for k, (name, square) in enumerate((("order", ORDER), ("chaos", CHAOS))):
        sizes = found["all"]["gradient"].sel(phase=name).mean("seed").values
        right.plot(layers, sizes / sizes[-1], "o", ms=3, label=rf"{name}, $\sigma_w^2 = {square}$")
        right.plot(layers, _point(square).chi_perp ** (LAYERS - layers * 1.0), ":", color=f"C{k}")
    right.set(xlabel=r"layer $\ell$; dotted: $\chi^{L-\ell}$", yscale="log")
    right.set_ylabel(r"$|\partial f/\partial W^\ell|^2$")
    right.legend()
    return picture


FIGURE = Figure(
    name="1611.01232-depth",
    title="Depth scales of correlations and gradients of tanh networks",
    source="Schoenholz et al., Deep information propagation, arXiv 1611.01232",
    images=(),
    settings=Settings(500, 1000, 200, 150),
    fast=Settings(200, 200, 100, 10),
    parts=one_part(f"depth scales {BIAS} {WEIGHTS} {START} {FIRST} {LAYERS} {SKIPPED}", _compute),
    claims=claims,
    draw=_draw,
    notes=("σ_b² = 0.05 as in the paper's figures",),
)
