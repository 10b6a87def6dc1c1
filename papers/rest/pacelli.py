"""Pacelli et al. 2023: one random scale of the kernel, for as many samples as neurons."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.rest.distances import closer, distance
from papers.verdicts import WITHIN, alternative, exceeds, near

NOISE, SIZE = 0.05, 2.0  # of the targets, a linear function of the input


class Settings(NamedTuple):
    """Activations, input dimension, training and test samples, width, networks of a chain."""

    activations: tuple[str, ...]
    inputs: int
    samples: int
    tests: int
    width: int
    draws: int


def _one(settings: Settings, phi: str) -> xarray.Dataset:
    rng, n = np.random.default_rng(0), settings.samples
    x = rng.standard_normal((n + settings.tests, settings.inputs))
    y = SIZE * x[:n] @ rng.standard_normal(settings.inputs) / settings.inputs**0.5
    given = lg.mlp(1, phi), x[:n], y
    options = {"width": settings.width, "noise": NOISE}
    # γ₀²N = 1: outputs of order one, as in the paper.
    drawn = lg.regression.sample_posterior(
        *given, x[n:], param=lg.mean_field(settings.width**-0.5), draws=settings.draws, **options
    )
    scaled = lg.regression.rescaled_posterior(*given, x[n:], **options)
    fixed = lg.posterior(*given, noise=NOISE).predict(x[n:])
    axes = ("theory", "test")
    return xarray.Dataset(
        {
            "mean": (("test", "what"), np.stack([drawn.mean, drawn.mean_error], 1)),
            "variance": (("test", "what"), np.stack([drawn.variance, drawn.variance_error], 1)),
            "said_mean": (axes, np.stack([scaled.mean, fixed.mean])),
            "said_variance": (axes, np.stack([scaled.variance, fixed.variance])),
        },
        {"theory": ["scaled", "fixed"], "what": ["value", "error"]},
    )


def _compute(settings: Settings) -> xarray.Dataset:
    parts = [_one(settings, phi) for phi in settings.activations]
    return xarray.concat(parts, "phi").assign_coords(phi=list(settings.activations))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on means and variances of networks, with a scale and without."""
    size = f"N = {settings.width}, P = {settings.samples}"
    result = []
    for phi in settings.activations:
        at, where = found["all"].sel(phi=phi), f"{phi} networks, {size}"
        for name, words in (("mean", "means"), ("variance", "variances")):
            value, error = at[name].values.T
            scaled, fixed = at[f"said_{name}"].values
            result += [
                near(f"a random scale of the kernel gives {words}: relative distance",
                     f"test samples, {where}", distance(value, scaled, error), 0.0, 0.1),
                exceeds(f"and better {words} than infinite width: how much closer",
                        f"relative distances on test samples, {where}",
                        closer(value, scaled, fixed, error), 0.0),
            ]  # fmt: skip
            if name == "variance":
                result.append(
                    alternative(near("the kernel of infinite width gives variances: distance",
                                     f"test samples, {where}", distance(value, fixed, error),
                                     0.0, 0.05))
                )  # fmt: skip
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(9, 5.4), layout="constrained")
    panels = picture.subplots(2, len(settings.activations), squeeze=False)
    for row, name in zip(panels, ("mean", "variance"), strict=True):
        for axes, phi in zip(row, settings.activations, strict=True):
            at = found["all"].sel(phi=phi)
            value, error = at[name].values.T
            for theory, color in (("fixed", "gray"), ("scaled", "C0")):
                axes.errorbar(at[f"said_{name}"].sel(theory=theory), value, WITHIN * error,
                              fmt="o", ms=3, color=color, label=theory)  # fmt: skip
            axes.axline((value.min(), value.min()), slope=1, color="black", lw=0.8)
            axes.set(xlabel=f"predicted {name}", ylabel=f"{name} of networks")
            axes.set_title(phi, fontsize=10)
    panels[0, 0].legend()
    return picture


FIGURE = Figure(
    name="2209.04882-scale",
    title="Means and variances of networks as wide as there are samples: a scale of the kernel",
    source="Pacelli et al., A statistical mechanics framework for Bayesian deep neural networks "
    "beyond the infinite-width limit, arXiv 2209.04882",
    images=(),
    settings=Settings(("linear", "erf", "relu"), 40, 48, 16, 24, 150000),
    fast=Settings(("linear",), 10, 12, 8, 8, 1500),
    parts=one_part(f"scale {NOISE} {SIZE}", _compute),
    claims=claims,
    draw=_draw,
    notes=("the scale is averaged over its law, where the paper takes its saddle; for linear "
           "networks the average is exact",
           "targets are a linear function of the inputs",
           "84 000 networks left one claim unclear, and 150 000 were drawn"),
)  # fmt: skip
