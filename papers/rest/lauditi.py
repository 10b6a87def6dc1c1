"""Lauditi, Bordelon and Pehlevan 2025: kernels that have adapted, in posteriors and under decay."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.rest.distances import distance, moved
from papers.verdicts import WITHIN, alternative, equals, near, pair_of

GAMMA, NOISE = 2.0, 0.1
TRAINED = 4  # samples in a plane; two more are for tests
# Three hidden layers of linear neurons, of whitened inputs with far more noise than signal.
DEPTH, LOUD, GAMMAS = 3, 100.0, (30.0, 33.0, 35.0, 35.6, 36.0, 37.0, 39.0)
ACROSS = 35.6, 36.0


class Settings(NamedTuple):
    """Width and draws of networks of the posterior; width, number and steps of trained ones."""

    width: int
    draws: int
    trained_width: int
    seeds: int
    steps: int


def _samples() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(3).standard_normal((6, 2)), np.array([1.0, -1.0, 1.0, -1.0])


def _regression(kernel: np.ndarray, ridge: float, y: np.ndarray) -> np.ndarray:
    """Return K(K + ridge)⁻¹y."""
    return kernel @ np.linalg.solve(kernel + ridge * np.eye(len(y)), y)


def _posterior(settings: Settings) -> dict[str, Any]:
    """Return outputs of networks from their posterior, and what kernels say of them."""
    (x, y), net, param = _samples(), lg.mlp(1, "tanh"), lg.mean_field(GAMMA)
    seen = x[:TRAINED]
    drawn = lg.regression.sample_posterior(
        net, seen, y, x, width=settings.width, noise=NOISE, param=param, draws=settings.draws
    )
    given = lg.regression.adaptive_posterior(net, seen, y, noise=NOISE, param=param)
    at = given.predict(x, width=settings.width)
    fixed = lg.posterior(net, seen, y, noise=NOISE).predict(x)
    kernel = drawn.feature_kernel
    spread = np.diag(kernel) - np.sum(kernel * np.linalg.solve(
        kernel + NOISE * np.eye(TRAINED), kernel), 0)  # fmt: skip
    return {
        "mean": (("sample", "what"), np.stack([drawn.mean, drawn.mean_error], 1)),
        "variance": (("sample", "what"), np.stack([drawn.variance, drawn.variance_error], 1)),
        "said_mean": ("sample", at.mean),
        "said_variance": ("sample", at.variance),
        "fixed_mean": ("sample", fixed.mean),
        "regression": ("trained", _regression(kernel, NOISE, y)),
        "kernel_variance": ("trained", spread / (GAMMA**2 * settings.width)),
    }


def _at_rest(settings: Settings, phi: str) -> dict[str, tuple[float, float]]:
    """Return distances of networks under decay from regression with their last kernels."""
    (x, y), decay = _samples(), NOISE / TRAINED
    data = lg.Dataset(x[:TRAINED], y)
    optimizer = lg.gd(0.3, weight_decay=decay)
    run = lg.Run(lg.mlp(1, phi), lg.mean_field(), data, optimizer=optimizer, steps=settings.steps)
    nets = lg.train(run, settings.trained_width, settings.seeds, 0,
                    record=["ntk", "feature_kernel"])  # fmt: skip
    found = nets.to_xarray().isel(record=-1)
    tangent, features = found["ntk"].values, found["feature_kernel"].isel(layer=0).values
    worst = {}
    for name, kernels, ridge in (("tangent", tangent, 2 * NOISE), ("features", features, NOISE)):
        each = [distance(f, _regression(k, ridge, y))[0]
                for f, k in zip(nets.f_train[:, -1], kernels, strict=True)]  # fmt: skip
        worst[f"{phi}_{name}"] = (float(np.max(each)), 0.0)
    return worst


def _compute(settings: Settings) -> xarray.Dataset:
    net, outputs = lg.mlp(DEPTH, "linear"), []
    x = np.array([[1.0]])
    for gamma in GAMMAS:
        given = lg.regression.adaptive_posterior(
            net, x, x[:, 0], noise=LOUD, param=lg.mean_field(gamma)
        )
        outputs.append(float(given.predict(x).mean[0]))
    found = {**_at_rest(settings, "linear"), **_at_rest(settings, "tanh")}
    numbers = {name: ("what", np.array(pair)) for name, pair in found.items()}
    return xarray.Dataset(
        {**_posterior(settings), **numbers, "deep": ("gamma", outputs)},
        {"what": ["value", "error"], "gamma": list(GAMMAS)},
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on regression with adapted kernels, and on what it does not give."""
    data = found["all"]
    (mean, error), (variance, spread) = data["mean"].values.T, data["variance"].values.T
    way = moved(mean, data["fixed_mean"].values, data["said_mean"].values, error)
    own = distance(mean[:TRAINED], data["regression"].values, error[:TRAINED])
    ratio = variance[:TRAINED] / data["kernel_variance"].values
    off = spread[:TRAINED] / data["kernel_variance"].values
    where = f"posterior of tanh networks, N = {settings.width}, γ₀ = {GAMMA:g}"
    rest = f"worst of {settings.seeds} networks trained to rest, N = {settings.trained_width}"
    outputs = data["deep"]
    jump = float(outputs.sel(gamma=ACROSS[1]) / outputs.sel(gamma=ACROSS[0]))
    return [
        equals("networks of the posterior move from fixed features as far as adapted kernels say",
               f"way of outputs over the predicted one, {where}", way, 1.0, 0.03),
        near("their mean is regression with their adapted kernel: relative distance",
             f"training samples, {where}", own, 0.0, 0.01),
        alternative(equals(
            "and their variance is that of a Gaussian process of this kernel: ratio",
            f"mean over training samples, {where}",
            (float(ratio.mean()), float(off.mean())), 1.0, 0.1)),
        near("under decay linear networks rest at K(K + 2κ)⁻¹y of their tangent kernel K: distance",
             f"linear, {rest}", pair_of(data, "linear_tangent"), 0.0, 1e-3),
        near("and networks of any activation at Φ(Φ + κ)⁻¹y of their features: distance",
             f"tanh, {rest}", pair_of(data, "tanh_features"), 0.0, 1e-3),
        alternative(near(
            "networks of any activation rest at K(K + 2κ)⁻¹y of their tangent kernel: distance",
            f"tanh, {rest}", pair_of(data, "tanh_tangent"), 0.0, 1e-3)),
        alternative(equals(
            "in deep linear networks features grow continuously with γ₀: ratio of outputs",
            f"at γ₀ = {ACROSS[1]:g} over {ACROSS[0]:g}, {DEPTH} hidden layers, κ = {LOUD:g}",
            (jump, 0.0), 1.0, 0.1)),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture, data = Picture(figsize=(9, 3.2), layout="constrained"), found["all"]
    first, second, third = picture.subplots(1, 3)
    mean, error = data["mean"].values.T
    at = np.arange(len(mean))
    first.plot(at, data["fixed_mean"], "x", color="gray", label="fixed features")
    first.plot(at, data["said_mean"], "_", ms=14, color="C0", label="adapted kernels")
    first.errorbar(at, mean, WITHIN * error, fmt="o", ms=4, color="black", label="networks")
    first.set(xlabel="sample", ylabel="mean output", ylim=(-0.8, 1.4))
    variance, spread = data["variance"].values.T
    second.plot(at, data["said_variance"], "_", ms=14, color="C0", label="neurons' variance V")
    second.plot(at[:TRAINED], data["kernel_variance"], "_", ms=14, color="C1",
                label="adapted kernel Φ")  # fmt: skip
    second.errorbar(at, variance, WITHIN * spread, fmt="o", ms=4, color="black", label="networks")
    second.set(xlabel="sample", ylabel="variance of outputs", yscale="log")
    third.plot(data["gamma"], data["deep"], "o-", color="C0")
    third.set(xlabel="γ₀", ylabel="output")
    third.set_title(f"{DEPTH} linear layers, κ = {LOUD:g}", fontsize=10)
    for axes in (first, second):
        axes.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="2502.07998-adapted",
    title="Regression with kernels that have adapted: posteriors, and rest under weight decay",
    source="Lauditi, Bordelon and Pehlevan, Adaptive kernel predictors from feature-learning "
    "infinite limits of neural networks, arXiv 2502.07998",
    images=(),
    settings=Settings(64, 800, 128, 2, 6000),
    fast=Settings(32, 200, 64, 2, 4000),
    parts=one_part(f"adapted {GAMMA} {NOISE} {DEPTH} {LOUD} {GAMMAS}", _compute),
    claims=claims,
    draw=_draw,
    notes=("κ is the ridge in units of the kernel: the decay times the number of samples",
           "networks of the posterior are drawn neuron by neuron, which crosses the barriers "
           "between modes of a neuron that Langevin dynamics does not"),
)  # fmt: skip
