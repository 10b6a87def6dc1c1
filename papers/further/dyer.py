"""Dyer and Gur-Ari 2020: the tangent kernel's change in training is of order 1/N."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.linear_models import beside_linear_models, training
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, equals, mean_of, power

NETS = {
    "linear, 1 hidden layer": lg.mlp(1, "linear"),
    "tanh, 2 hidden layers": lg.mlp(2, "tanh", weight_std=1.5),
    "relu, 2 hidden layers": lg.mlp(2, "relu", weight_std=2**0.5),
}
SMOOTH = "tanh, 2 hidden layers"
KINKED = "relu, 2 hidden layers"
ORDERS = {"constant kernel": -1.0, "second order": -2.0}


class Settings(NamedTuple):
    """Widths and networks of each, and the same for networks whose training is predicted."""

    widths: tuple[int, ...]
    seeds: int
    predicted_widths: tuple[int, ...]
    predicted: int


def _missed(width: int, seeds: int) -> list[tuple[float, float]]:
    """Return geometric means of the errors with a constant kernel and to second order."""
    run, found = training(NETS[SMOOTH]), []
    for key in range(seeds):
        params = lg.networks.init(
            run.net, run.param, width=width, inputs=run.data.inputs, key=key, dtype=np.float64
        )
        found.append(np.log(lg.training.predict_training(run, params).errors[[0, -1]]))
    pairs = [mean_of(each) for each in np.transpose(found)]
    return [(float(np.exp(log)), float(np.exp(log) * error)) for log, error in pairs]


def _compute(settings: Settings) -> xarray.Dataset:
    changes = [
        [
            mean_of(beside_linear_models(net, n, settings.seeds, n)["change"].values)
            for n in settings.widths
        ]
        for net in NETS.values()
    ]
    missed = [_missed(n, settings.predicted) for n in settings.predicted_widths]
    return xarray.Dataset(
        {
            "change": (("net", "width", "what"), changes),
            "error": (("small_width", "order", "what"), missed),
        },
        {"net": list(NETS), "order": list(ORDERS)},
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on powers of the width of the kernel's change and of what it leaves out."""
    data, widths = found["all"], settings.widths
    return [
        *(
            equals(f"{name}: the tangent kernel's change in training falls as 1/N",
                   f"exponent in N of the relative change, widths {widths}, {settings.seeds} "
                   "networks each", power(widths, data["change"].sel(net=name).values), -1.0, 0.2)
            for name in NETS if name != KINKED
        ),
        *(
            equals(f"{SMOOTH}: predictions {says} fail by a power of the width",
                   f"exponent in N of the error, widths {settings.predicted_widths}, "
                   f"{settings.predicted} networks each",
                   power(settings.predicted_widths, data["error"].sel(order=order).values),
                   ORDERS[order], 0.2)
            for order, says in (("constant kernel", "with the initial kernel"),
                                ("second order", "with the dynamics of order 1/N (O₃ and O₄)"))
        ),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    left, right = picture.subplots(1, 2)
    for name in NETS:
        pairs = found["all"]["change"].sel(net=name).values
        law = -0.75 if name == KINKED else -1.0
        draw_power(left, settings.widths, pairs, law, label=name)
    left.set(
        xlabel="width $N$; dotted: $N^{-1}$, relu $N^{-3/4}$",
        ylabel="relative change of the tangent kernel",
    )
    for order, law in ORDERS.items():
        pairs = found["all"]["error"].sel(order=order).values
        draw_power(right, settings.predicted_widths, pairs, law, label=order)
    right.set(xlabel="width $N$; dotted: $N^{-1}$, $N^{-2}$", ylabel="error of predicted outputs")
    for axes in (left, right):
        axes.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="1909.11304-order",
    title="The tangent kernel's change in training, and predictions that follow it",
    source="Dyer and Gur-Ari, Asymptotics of wide networks from Feynman diagrams, arXiv 1909.11304",
    images=(),
    settings=Settings((64, 192, 512), 64, (64, 192, 512), 160),
    fast=Settings((32, 128), 8, (32, 128), 4),
    parts=one_part("orders of 1/N", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "NTK parameterization, ten inputs, 30 steps of gradient descent",
        "relu for comparison: of its neurons a share of order N^(−1/2) changes sign, and their sum "
        "of random signs moves the kernel of one network by N^(−3/4)",
    ),
)
