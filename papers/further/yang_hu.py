"""Yang and Hu 2021: what moves with the width in four parameterizations."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.further.preactivations import preactivations
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, exceeds, mean_of, near, power

STEPS, LAYERS, RATE = 5, 2, 0.5
SCHEMES = {
    "NTK parameterization": lg.ntk(),
    "μP": lg.mup(),
    "standard, rate 1/N": lg.abc(a=(0, 0, 0), b=(0, 1, 1), c=1, name="standard, rate 1/N"),
    "standard, fixed rate": lg.standard(),
}
# Exponents of the width: changes of features and of outputs.
FEATURES = {"NTK parameterization": -0.5, "μP": 0.0, "standard, rate 1/N": -0.5}
# At a fixed rate their change grows without bound: in proportion to N as long as features do not
# saturate, and as √N behind saturated ones.
OUTPUTS = {"NTK parameterization": 0.0, "μP": 0.0, "standard, fixed rate": None}


class Settings(NamedTuple):
    """Widths, and networks of each."""

    widths: tuple[int, ...]
    seeds: int


def _run(name: str) -> lg.Run:
    x = np.random.default_rng(0).normal(size=(4, 3))
    data = lg.Dataset(x, np.array([1.0, -1.0, 1.0, -1.0]))
    # At a fixed rate standard networks diverge, so that only the first step is of interest.
    steps = 1 if name == "standard, fixed rate" else STEPS
    net = lg.mlp(LAYERS, "tanh", weight_std=1.0)
    return lg.Run(net, SCHEMES[name], data, optimizer=lg.gd(RATE), steps=steps)


def _moved(network, start, end, x):
    before, after = (jnp.tanh(preactivations(network, p, x, jnp.tanh)[-1]) for p in (start, end))
    outputs = network.outputs_of(end, x) - network.outputs_of(start, x)
    return jnp.sqrt(jnp.stack([((after - before) ** 2).mean(), (outputs**2).mean()]))


def _compute(settings: Settings) -> xarray.Dataset:
    found = {
        name: [
            [
                mean_of(each)
                for each in lg.networks.train_and_measure(
                    _run(name), n, _moved, seeds=settings.seeds, key=n
                ).T
            ]
            for n in settings.widths
        ]
        for name in SCHEMES
    }
    axes = ("scheme", "width", "moved", "what")
    return xarray.Dataset({"size": (axes, list(found.values()))}, {"scheme": list(found)})


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the powers of the width with which features and outputs move."""
    result, sizes = [], found["all"]["size"]
    for moved, (what, wanted) in enumerate((("features", FEATURES), ("outputs", OUTPUTS))):
        for name, exponent in wanted.items():
            pairs = sizes.sel(scheme=name).values[:, moved]
            steps = _run(name).steps
            seen = power(settings.widths, pairs)
            measured = f"exponent in N, widths {settings.widths}, step {steps}"
            result.append(
                exceeds(f"{name}: the change of {what} grows with the width: exponent",
                        measured, seen, 0.0)
                if exponent is None
                else near(f"{name}: {what} move as a power of the width", measured, seen,
                          exponent, 0.2)
            )  # fmt: skip
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.4), layout="constrained")
    for moved, (axes, wanted) in enumerate(
        zip(picture.subplots(1, 2), (FEATURES, OUTPUTS), strict=True)
    ):
        for name, exponent in wanted.items():
            pairs = found["all"]["size"].sel(scheme=name).values[:, moved]
            color = f"C{list(SCHEMES).index(name)}"
            law = power(settings.widths, pairs)[0] if exponent is None else exponent
            draw_power(axes, settings.widths, pairs, law, label=name, color=color)
        axes.set(xlabel="width $N$", ylabel=f"change of {('features', 'outputs')[moved]}")
        axes.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="2011.14522-dichotomy",
    title="Movement of features and outputs with the width in four parameterizations",
    source="Yang and Hu, Feature learning in infinite-width neural networks, arXiv 2011.14522",
    images=(),
    settings=Settings((64, 256, 1024), 40),
    fast=Settings((32, 128), 32),
    parts=one_part(f"movement {STEPS} {LAYERS} {RATE} {list(SCHEMES)}", _compute),
    claims=claims,
    draw=_draw,
    notes=("tanh, two hidden layers, four samples; outputs at a fixed rate after one step",),
)
