"""Lee, Xiao et al. 2019: wide networks train as their linear models."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.linear_models import DATA, beside_linear_models, training
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, draw_power, equals, exceeds, mean_of, near, power

NET = lg.mlp(2, "tanh", weight_std=1.5)
BOUND = 0.5  # N^(−1/2) in Theorem 2.1


class Settings(NamedTuple):
    """Widths, networks of each, and width and number of those whose distribution is measured."""

    widths: tuple[int, ...]
    seeds: int
    width: int
    ensemble: int


def _weights_moved(network, start, end, x):
    """Return |θ_t − θ_0| after training, of all weights."""
    moved = [end[place]["weight"] - start[place]["weight"] for place in (0, 2, 4)]
    return jnp.sqrt(sum((each**2).sum() for each in moved))


def _compute(settings: Settings) -> xarray.Dataset:
    rows = []
    for n in settings.widths:
        own = beside_linear_models(NET, n, settings.seeds, n)
        moved = lg.networks.train_and_measure(
            training(NET), n, _weights_moved, seeds=settings.seeds, key=n
        )
        rows.append(
            [mean_of(each) for each in (own["distance"].values, own["change"].values, moved)]
        )
    nets = lg.train(training(NET), settings.width, settings.ensemble, 0)
    return xarray.Dataset(
        {
            "size": (("width", "quantity", "what"), rows),
            "outputs": (("seed", "sample"), nets.f_test[:, -1]),
        },
        {"quantity": ["distance", "kernel", "weights"]},
    )


def _limit() -> tuple[np.ndarray, np.ndarray]:
    data = lg.solve(training(NET)).to_xarray().isel(step=-1)
    return data["f_test"].values, data["f_test_std"].values


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that networks come to their linear models, and on these models' outputs."""
    size, outputs = found["all"]["size"], found["all"]["outputs"].values
    mean, std = _limit()
    z = (outputs - mean) / std
    # A network is one observation, since its outputs at several samples depend on one another.
    square = mean_of((z**2).mean(axis=1))
    where = f"widths {settings.widths}, {settings.seeds} networks each"
    words = {
        "distance": "networks come to their linear models at least as fast as N^(−1/2)",
        "kernel": "the tangent kernel's change falls at least as fast as N^(−1/2)",
    }
    result = []
    for name, says in words.items():
        value, error = power(settings.widths, size.sel(quantity=name).values)
        result.append(
            exceeds(f"{says}: minus the exponent", f"exponent in N, {where}",
                    (-value, error), BOUND - 0.05)
        )  # fmt: skip
    ensemble = f"of {settings.ensemble} networks of width {settings.width}"
    return [
        *result,
        near("weights move by a distance that does not grow with the width: exponent",
             f"exponent in N of |θ − θ₀| after training, {where}",
             power(settings.widths, size.sel(quantity="weights").values), 0.0, 0.2),
        near("outputs after training have the mean of Theorem 2.2: distance in deviations",
             f"mean over test samples {ensemble}", mean_of(z.mean(axis=1)), 0.0, 0.2),
        equals("and its variance: mean square in deviations",
               f"mean over test samples {ensemble}", square, 1.0, 0.25),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    left, right = picture.subplots(1, 2)
    names = {
        "distance": ("network and linear model", -1),
        "kernel": ("relative change of the kernel", -1),
        "weights": (r"$|\theta - \theta_0|$", 0.0),
    }
    for name, (label, law) in names.items():
        pairs = found["all"]["size"].sel(quantity=name).values
        draw_power(left, settings.widths, pairs, law, label=label)
    left.set(xlabel="width $N$; dotted: $N^{-1}$ and $N^0$", ylabel="after or during training")
    left.legend(fontsize=8)
    outputs, (mean, std) = found["all"]["outputs"].values, _limit()
    at = np.arange(len(mean))
    for sample, own in enumerate(outputs.T):
        right.plot(np.full(len(own), sample + 0.15), own, "_", color="C0", alpha=0.2, ms=9)
    right.plot([], [], "_", color="C0", label=f"networks of width {settings.width}")
    right.errorbar(at - 0.15, mean, WITHIN * std, fmt="o", color="black", label="limit, 95 %")
    right.plot(at, DATA.y_test, "x", color="C3", label="targets")
    right.set(xlabel="test sample", ylabel="output after training", xticks=at)
    right.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="1902.06720-linear",
    title="Networks and their linear models in training",
    source="Lee et al., Wide neural networks of any depth evolve as linear models under gradient "
    "descent, arXiv 1902.06720",
    images=(),
    settings=Settings((64, 192, 512), 24, 256, 200),
    fast=Settings((32, 128), 8, 64, 60),
    parts=one_part("linear models, tanh", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "tanh, two hidden layers, ten inputs, 30 steps of gradient descent; the theorem is an "
        "upper bound, and distances fall as 1/N here",
    ),
)
