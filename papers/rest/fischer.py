"""Fischer et al. 2024: kernels of finite networks, their fluctuations, and the likeliest ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.rest.distances import distance
from papers.verdicts import (
    alternative,
    draw_power,
    exceeds,
    mean_of,
    near,
    numbers,
    pair_of,
    power,
)

NOISE = 1.0
ROUNDS, RTOL, STEP = 3000, 1e-12, 0.7  # of the iteration for the likeliest kernel
# Samples and width: few samples, and samples in proportion to the width.
SIZES = ((10, 160), (10, 20), (20, 40), (40, 80))
INPUTS, TESTS = 60, 20


class Settings(NamedTuple):
    """Widths and draws of prior kernels; samples, width and draws of the posterior; tasks."""

    widths: tuple[int, ...]
    kernels: int
    samples: int
    width: int
    draws: int
    tasks: int


def likeliest_kernel(prior: np.ndarray, y: np.ndarray, noise: float, width: int) -> np.ndarray:
    """Return the stationary Φ of N I(Φ) + ½yᵀ(Φ + κ)⁻¹y + ½ log det(Φ + κ) of linear neurons.

    With I(Φ) = ½[tr C⁻¹Φ − log det C⁻¹Φ − P], Φ⁻¹ = C⁻¹ + [(Φ + κ)⁻¹ − ααᵀ]/N, α = (Φ + κ)⁻¹y.

    Examples
    --------
    >>> likeliest_kernel(np.eye(1), np.zeros(1), 1.0, 10**9).round(6).tolist()
    [[1.0]]
    """
    found, one = prior, np.eye(len(y))
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(found + noise * one)
        dual = inverse @ y
        back = (inverse - np.outer(dual, dual)) / width
        change = prior @ np.linalg.inv(one + back @ prior) - found
        found = found + STEP * change
        if np.abs(change).max() < RTOL * np.abs(prior).max():
            return found
    raise RuntimeError(f"the likeliest kernel is not found in {ROUNDS} rounds.")


def _means(samples: int, width: int, seed: int) -> list[float]:
    """Return distances of the exact mean of linear networks from theories of it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples + TESTS, INPUTS))
    y = x[:samples] @ rng.standard_normal(INPUTS) / INPUTS**0.5
    seen, tests, net = x[:samples], x[samples:], lg.mlp(1, "linear")
    given = lg.regression.adaptive_posterior(
        net, seen, y, noise=NOISE, param=lg.mean_field(width**-0.5)
    )
    exact, prior = given.predict(tests, width=width).mean, given.prior_kernel
    whitened = np.linalg.solve(prior, seen @ tests.T / INPUTS).T
    apart = []
    for kernel in (likeliest_kernel(prior, y, NOISE, width), prior):
        dual = np.linalg.solve(kernel + NOISE * np.eye(samples), y)
        apart.append(distance(exact, whitened @ kernel @ dual)[0])
    return apart


def _grown(settings: Settings) -> tuple[float, float]:
    """Return the kernel of erf networks along the targets over that before, with its error."""
    rng, n = np.random.default_rng(0), settings.samples
    x = rng.standard_normal((n, INPUTS))
    y = x @ rng.standard_normal(INPUTS) / INPUTS**0.5
    net = lg.mlp(1, "erf")
    drawn = lg.regression.sample_posterior(
        net, x, y, x[:1], width=settings.width, noise=NOISE,
        param=lg.mean_field(settings.width**-0.5), draws=settings.draws,
    )  # fmt: skip
    before = y @ np.asarray(lg.nngp_kernel(net, x), float) @ y
    weights = np.abs(np.outer(y, y))
    value = y @ drawn.feature_kernel @ y
    return float(value / before), float(np.sum(weights * drawn.feature_kernel_error) / before)


def _compute(settings: Settings) -> xarray.Dataset:
    x = np.random.default_rng(0).standard_normal((2, 5))
    spread = []
    for k, n in enumerate(settings.widths):
        drawn = lg.finite_width.sample_kernels(
            lg.mlp(2, "erf"), x, width=n, draws=settings.kernels, key=k
        )[:, 0, 1]
        spread.append(mean_of((drawn - drawn.mean()) ** 2))
    means = [[_means(*size, seed) for seed in range(settings.tasks)] for size in SIZES]
    data = xarray.Dataset(
        {"spread": (("width", "what"), spread),
         "apart": (("size", "task", "theory"), means)},
        {"width": list(settings.widths), "what": ["value", "error"],
         "theory": ["likeliest", "fixed"],
         "size": [f"P = {samples}, N = {width}" for samples, width in SIZES]},
    )  # fmt: skip
    return data.merge(numbers(grown=_grown(settings)))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on fluctuations of kernels, on alignment, and on the likeliest kernel."""
    data = found["all"]
    law = power(settings.widths, data["spread"].values)
    size = f"N = {settings.width}, P = {settings.samples}"
    few, many = data["size"].values[[0, -1]]
    apart, linear = data["apart"], f"relative distance, {settings.tasks} tasks of linear networks"
    gained = apart.sel(theory="fixed") - apart.sel(theory="likeliest")
    likeliest, fixed = (
        mean_of(apart.sel(theory=theory, size=many).values) for theory in ("likeliest", "fixed")
    )
    return [
        near("kernels of networks have a variance of 1/width: power",
             f"erf, two hidden layers, N = {settings.widths[0]} … {settings.widths[-1]}",
             law, -1.0, 0.1),
        exceeds("samples align kernels with targets: kernel along these, over that before",
                f"posterior of erf networks, {size}", pair_of(data, "grown"), 1.0),
        *(
            exceeds("the likeliest kernel, as we read it, gives better means than that of infinite "
                    "width: how much closer", f"{linear}, {each}",
                    mean_of(gained.sel(size=each).values), 0.0)
            for each in (few, many)
        ),
        near("the likeliest kernel, as we read it, gives means for P in proportion to N",
             f"{linear}, {many}", likeliest, 0.0, 0.05),
        alternative(near("the kernel of infinite width gives means for P in proportion to N",
                         f"{linear}, {many}", fixed, 0.0, 0.01)),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture, data = Picture(figsize=(8, 3.2), layout="constrained"), found["all"]
    first, second = picture.subplots(1, 2)
    draw_power(first, settings.widths, data["spread"].values, -1.0)
    first.set(xlabel="width N", ylabel="variance of a prior kernel")
    for k, theory in enumerate(("likeliest", "fixed")):
        at = data["apart"].sel(theory=theory)
        for task in range(at.sizes["task"]):
            second.plot(np.arange(len(SIZES)), at.isel(task=task), "o", color=f"C{k}", ms=4,
                        label=None if task else theory)  # fmt: skip
    second.set_xticks(
        range(len(SIZES)), [str(each).replace(", ", "\n") for each in data["size"].values]
    )
    second.set(ylabel="distance from the exact mean", yscale="log")
    second.legend(title="kernel")
    return picture


FIGURE = Figure(
    name="2405.10761-likeliest",
    title="Kernels of finite networks: fluctuations, alignment, and the likeliest kernel",
    source="Fischer et al., Critical feature learning in deep neural networks, arXiv 2405.10761",
    images=(),
    settings=Settings((25, 50, 100, 200, 400), 20000, 24, 12, 800, 10),
    fast=Settings((25, 50, 100), 10000, 12, 8, 100, 4),
    parts=one_part(f"likeliest {NOISE} {SIZES} {INPUTS} {TESTS}", _compute),
    claims=claims,
    draw=_draw,
    notes=("the equation of the likeliest kernel is ours, after the abstract: a large deviation of "
           "the kernel with the Gaussian likelihood, its determinant included",
           "for linear networks the exact mean at a width is known",
           "where P grows with N, distances of both kernels fall slowly up to these sizes"),
)  # fmt: skip
