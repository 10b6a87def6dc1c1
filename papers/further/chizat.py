"""Chizat, Oyallon and Bach 2019: training becomes lazy as the output's scale grows."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.linear_models import DATA
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, equals, exceeds, mean_of, power

QUANTITIES = {"outputs": -1.0, "parameters": -1.0, "both": -2.0}
STEPS, RATE, WIDTH = 200, 0.25, 50
X, Y = DATA.x_train, DATA.y_train
START = "network", "centred"  # F(θ₀) as it is drawn, and 0


class Settings(NamedTuple):
    """Scales α, and networks that are trained at each."""

    scales: tuple[float, ...]
    seeds: int


def _path(f, params, alpha):
    """Return αf and parameters along gradient descent on the loss of αf over α²."""

    def loss(params):
        return jnp.mean((alpha * f(params, X) - Y) ** 2) / (2 * alpha**2)

    def step(params, _):
        gradient = jax.grad(loss)(params)
        after = jax.tree.map(lambda p, g: p - RATE * g, params, gradient)
        return after, (alpha * f(params, X), params)

    return jax.lax.scan(step, params, length=STEPS)[1]


def _size(tree):
    """Return the largest norm along a path."""
    return jnp.sqrt(sum((each**2).sum(axis=tuple(range(1, each.ndim))) for each in tree)).max()


@partial(jax.jit, static_argnames=("network", "centred"))
def _distances(network, alpha, params, centred):
    """Return distances of αf and θ from the linear model's, and θ's from the start."""
    before = network.outputs_of(params, X) if centred else 0.0

    def f(own, x):
        return network.outputs_of(own, x) - before

    outputs, moved = _path(f, params, alpha)
    line, other = _path(lg.networks.linearize(f, params), params, alpha)
    leaves = [jax.tree.leaves(each) for each in (moved, other, params)]
    gone = [a - c for a, _, c in zip(*leaves, strict=True)]
    apart = [a - b for a, b, _ in zip(*leaves, strict=True)]
    return jnp.stack([_size([outputs - line]), _size(gone), _size(apart)])


def _compute(settings: Settings) -> xarray.Dataset:
    network = lg.networks.finite_network(
        lg.mlp(1, "tanh", weight_std=1.5), lg.ntk(), width=WIDTH, inputs=DATA.inputs
    )
    drawn = [network.init(key) for key in range(settings.seeds)]
    found = [
        [
            [_distances(network, alpha, params, name == "centred") for params in drawn]
            for alpha in settings.scales
        ]
        for name in START
    ]
    pairs = [[[mean_of(q) for q in np.transpose(own)] for own in rows] for rows in found]
    axes = ("start", "scale", "quantity", "what")
    coordinates = {"start": list(START), "quantity": list(QUANTITIES)}
    return xarray.Dataset({"distance": (axes, pairs)}, coordinates)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on powers of the scale α."""
    seen = found["all"]["distance"]
    says = {
        "outputs": "the distance of αF from the linear model falls as a power of α",
        "parameters": "the movement of parameters falls as a power of α",
        "both": "the distance of parameters from the linear model's falls as a power of α",
    }
    where = f"scales {settings.scales}, {settings.seeds} networks of width {WIDTH}"
    result = [
        equals(f"F = 0 at the start: {says[name]}", f"exponent in α, {where}",
               power(settings.scales, seen.sel(start="centred", quantity=name).values), law, 0.1)
        for name, law in QUANTITIES.items()
    ]  # fmt: skip
    outputs = power(settings.scales, seen.sel(start="network", quantity="outputs").values)
    return [
        *result,
        exceeds("F of order one at the start: training does not become lazy, the distance of αF "
                "does not fall: exponent", f"exponent in α, {where}", outputs, 0.0),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    labels = {
        "outputs": r"$|\alpha F(\theta) - \alpha \bar F(\bar\theta)|$",
        "parameters": r"$|\theta - \theta_0|$",
        "both": r"$|\theta - \bar\theta|$",
    }
    for axes, start in zip(picture.subplots(1, 2), reversed(START), strict=True):
        for name, law in QUANTITIES.items():
            pairs = found["all"]["distance"].sel(start=start, quantity=name).values
            wanted = law if start == "centred" else {"outputs": 1.0}.get(name, 0.0)
            draw_power(axes, settings.scales, pairs, wanted, label=labels[name])
        axes.set(xlabel=r"scale $\alpha$", title=f"$F(\\theta_0)$: {start}")
    picture.axes[0].legend(fontsize=8)
    picture.axes[0].set_title(r"$F(\theta_0) = 0$; dotted: $\alpha^{-1}$ and $\alpha^{-2}$")
    picture.axes[1].set_title(r"$F(\theta_0)$ as drawn; dotted: $\alpha$ and constants")
    return picture


FIGURE = Figure(
    name="1812.07956-lazy",
    title="Lazy training: distances from the linear model against the output's scale",
    source="Chizat et al., On lazy training in differentiable programming, arXiv 1812.07956",
    images=(),
    settings=Settings((2.0, 4.0, 8.0, 16.0, 32.0, 64.0), 12),
    fast=Settings((4.0, 32.0), 3),
    parts=one_part(f"lazy {STEPS} {RATE} {WIDTH}", _compute),
    claims=claims,
    draw=_draw,
    notes=("tanh, one hidden layer of fixed width, gradient descent on the loss of αF over α²",),
)
