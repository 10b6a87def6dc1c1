"""Dyer and Gur-Ari 2020: the tangent kernel's change in training is of order 1/N."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import largen as lg
from papers.further.linear_models import training

NETS = {
    "linear, 1 hidden layer": lg.mlp(1, "linear"),
    "tanh, 2 hidden layers": lg.mlp(2, "tanh", weight_std=1.5),
    "relu, 3 hidden layers": lg.mlp(3, "relu", weight_std=2**0.5),
}
SMOOTH = "tanh, 2 hidden layers"
ORDERS = {"constant kernel": -1.0, "second order": -2.0}


class Settings(NamedTuple):
    """Widths and networks of each; networks of each whose training is predicted."""

    widths: tuple[int, ...]
    seeds: int
    predicted: int


def _missed(width: int, seeds: int) -> list[tuple[float, float]]:
    """Return the largest errors of predictions with a constant kernel and to second order."""
    run, found = training(NETS[SMOOTH]), []
    for key in range(seeds):
        params = lg.init(
            run.net, run.param, width=width, inputs=run.data.inputs, key=key, dtype=np.float64
        )
        found.append(lg.predict_training(run, params).errors)
    print(found[0])
    raise SystemExit
