"""Section 5 of the lecture notes: the mean-field equations (64) and (65) beside networks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray

import largen as lg
from papers.claims import Claim
from papers.lectures import equations
from papers.record import Figure, Found, one_part
from papers.verdicts import equals, intervals, mean_of, numbers, pair_of

SOURCE = (
    "Pehlevan and Bordelon, lecture notes on infinite-width limits at the Princeton machine "
    "learning summer school, {}"
)
RNG = np.random.default_rng(1)
X = RNG.standard_normal((3, 4))
Y = np.array([1.0, -1.0, 0.5])
GAMMA = 2.0
TIMES = np.linspace(0.0, 2.0, 5)
LAYERS, LR, STEPS = 3, 0.05, 24  # of deep networks; hidden layers
KERNEL = X @ X.T / X.shape[1]


class Settings(NamedTuple):
    """Networks that are trained, and neurons that stand for the averages of (64)."""

    width: int
    seeds: int
    neurons: int


def _along(outputs: np.ndarray) -> np.ndarray:
    return outputs @ Y / np.linalg.norm(Y)


def _shallow() -> lg.Run:
    data = lg.Dataset(X, Y)
    flow = lg.gradient_flow()
    return lg.Run(
        lg.mlp(1, "tanh"), lg.mean_field(GAMMA), data, optimizer=flow, times=TIMES
    )  # fmt: skip


def _deep(activation: str) -> lg.Run:
    data = lg.Dataset(X, Y)
    return lg.Run(
        lg.mlp(LAYERS, activation), lg.mean_field(GAMMA), data, optimizer=lg.gd(LR), steps=STEPS
    )  # fmt: skip


def _compute(settings: Settings) -> xarray.Dataset:
    how: dict[str, Any] = {"width": settings.width, "seeds": settings.seeds}
    shallow = _along(lg.train(_shallow(), **how).f_train)
    deep = _along(lg.train(_deep("linear"), **how).f_train)
    kernels = lg.train(
        _deep("tanh"), record=["feature_kernel", "gradient_kernel", "ntk"], record_at=[0], **how
    )
    first = kernels.feature_kernel[:, 0, -1] + kernels.gradient_kernel[:, 0, 0] * KERNEL
    ys = Y / np.linalg.norm(Y)
    inputs = lg.train(_deep("linear"), record=["feature_kernel"], record_at=[0], **how)
    return numbers(
        half=mean_of(shallow[:, len(TIMES) // 2]),
        end=mean_of(shallow[:, -1]),
        deep=mean_of(deep[:, STEPS // 2]),
        ratio=mean_of((first @ ys @ ys) / (kernels.ntk[:, 0] @ ys @ ys)),
        first_layer=mean_of(np.trace(inputs.feature_kernel[:, 0, 0], axis1=-2, axis2=-1)),
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that outputs of networks are those of the equations, as printed and derived."""
    seen = found["all"]
    where = f"{settings.seeds} networks of width {settings.width}"
    fine = np.linspace(0.0, TIMES[-1], 400 + 1)
    predicted = _along(equations.tanh_neurons(KERNEL, Y, GAMMA, fine, settings.neurons))
    settled = {"layers": LAYERS, "gamma": GAMMA, "lr": LR, "steps": STEPS}
    right, printed = (
        _along(equations.deep_linear(KERNEL, Y, **settled, without_first=first))[STEPS // 2]
        for first in (False, True)
    )
    trace = float(np.trace(KERNEL))
    outputs = f"outputs along the targets, mean of {where}"
    return [
        *(
            equals(
                f"(64), one hidden layer of tanh: outputs at time {fine[k]:g}", outputs,
                pair_of(seen, name), float(predicted[k]), 0.03,
            )
            for name, k in (("half", len(fine) // 2), ("end", -1))
        ),
        equals(
            f"(65), {LAYERS} hidden linear layers, with A⁽⁰⁾ = 0: outputs after {STEPS // 2} "
            "steps", outputs, pair_of(seen, "deep"), float(right), 0.03,
        ),
        equals(
            f"(65) with A⁽¹⁾ = 0, as printed: outputs after {STEPS // 2} steps", outputs,
            pair_of(seen, "deep"), float(printed), 0.03,
        ),
        equals(
            "(65) as printed: outputs of deep networks move by Φ + GΦ⁽⁰⁾, of the last and the "
            "first hidden layer, alone: ratio to the tangent kernel",
            f"along the targets at initialisation, {LAYERS} hidden layers of tanh, {where}",
            pair_of(seen, "ratio"), 1.0, 0.03,
        ),
        *(
            equals(
                f"the first layer's h has the covariance Φ⁽⁰⁾ = {words}: its trace",
                f"Σ_μ |h_μ|²/N of {where}", pair_of(seen, "first_layer"), wanted, 0.03,
            )
            for words, wanted in (
                ("x·x/D", trace), ("x·x/√D, (65) as printed", trace * X.shape[1] ** 0.5),
            )
        ),
    ]  # fmt: skip


FIGURE = Figure(
    name="000-5",
    title="The mean-field equations of one hidden layer and of several",
    source=SOURCE.format("section 5"),
    images=(),
    settings=Settings(1024, 96, 40_000),
    fast=Settings(256, 48, 40_000),
    parts=one_part("equations (64) and (65)", _compute),
    claims=claims,
    draw=lambda settings, found: intervals(claims(settings, found)),
    notes=(
        "equations are integrated in NumPy, without theories of largen, and held against networks",
        "three samples, γ₀ = 2; (65) with the factor η₀/P in h and z, which is missing in print, "
        "and with B = 0 in the last hidden layer",
    ),
)
