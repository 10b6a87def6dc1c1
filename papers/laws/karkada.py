"""Karkada et al. 2025: a kernel's eigenvalues and learning curves from the data's covariance."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from math import prod
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, alternative, equals, label_sizes

NET = lg.mlp(1, "relu", weight_std=2**0.5)
# The kernel is |x||x'|k(cos): derivatives of k = [√(1 − t²) + t(π − arccos t)]/π at t = 0.
DERIVATIVES = (1 / np.pi, 1 / 2, 1 / np.pi, 0.0, 1 / np.pi)
MANY = 10**9
# Powers of the covariance's decay: many directions, and few.
DECAYS = {"high": 0.25, "low": 1.5}
TARGETS = {"linear": (1,), "quadratic": (0, 1)}  # products of different principal components


class Settings(NamedTuple):
    """Dimensions, samples of the pool, sizes of training sets, and draws of these."""

    dimensions: int
    pool: int
    sizes: tuple[int, ...]
    draws: int


def _variances(settings: Settings, decay: float) -> np.ndarray:
    gamma = np.arange(1, settings.dimensions + 1.0) ** -decay
    return gamma / gamma.sum()


def _ansatz(gamma: np.ndarray) -> dict[tuple[int, ...], float]:
    """Return c_|α| Π γ_i^(α_i) at the norm 1 of degrees up to 2, and the largest of 4, by α."""
    found = {}
    for degree, most in ((0, 1), (1, len(gamma)), (2, len(gamma)), (4, 8)):
        for alpha in combinations_with_replacement(range(min(len(gamma), most)), degree):
            found[alpha] = DERIVATIVES[degree] * prod(gamma[list(alpha)])
    return found


def _said(gamma: np.ndarray, target: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """Return errors from the covariance; what of the kernel's trace has no mode is a ridge."""
    modes = _ansatz(gamma)
    power = [1.0 if alpha == target else 0.0 for alpha in modes]
    task = lg.regression.Spectrum(np.array(list(modes.values())), np.array(power))
    ridge = max(1.0 - sum(modes.values()), 0.0)
    curve = lg.regression.random_feature_curve(task, sizes=sizes, widths=[MANY], ridge=ridge)
    return curve.mse_test[:, 0]


def _odd_part(x: np.ndarray, components: tuple[int, ...]) -> np.ndarray:
    """Return the part of the kernel that is odd in each of these components, by reflections."""
    total = np.zeros((len(x), len(x)))
    for signs in product((1.0, -1.0), repeat=len(components)):
        reflected = x.copy()
        reflected[:, list(components)] *= signs
        total += prod(signs) * np.asarray(lg.nngp_kernel(NET, x, reflected), float)
    return total / 2 ** len(components)


def _one(settings: Settings, decay: float) -> xarray.Dataset:
    """Return eigenvalues and errors of Gaussian data, from the covariance and in fact."""
    rng, gamma = np.random.default_rng(0), _variances(settings, decay)
    z = rng.standard_normal((settings.pool, settings.dimensions))
    x = z * np.sqrt(gamma * settings.dimensions)
    kernel = np.asarray(lg.nngp_kernel(NET, x), float)
    size = np.mean(np.diag(kernel))
    kernel, modes, seen = kernel / size, _ansatz(gamma), {}
    for alpha in ((0,), (1,), (0, 1)):
        phi = np.prod(z[:, list(alpha)], axis=1)
        # A Rayleigh quotient, less what a sample has with itself, of the part of the kernel that is
        # odd in each of these components: the others are orthogonal to the mode, but not in a
        # finite sample.
        odd = _odd_part(x, alpha) / size
        cross = (odd - np.diag(np.diag(odd))) @ phi
        each, norm = phi * cross / (len(z) - 1), np.mean(phi**2)
        value = each.mean() / norm**2
        spread = np.std(each / norm**2 - value * phi**2 / norm)
        seen[alpha] = value, 2 * spread / len(z) ** 0.5
    found, said = [], []
    for target in TARGETS.values():
        y = np.prod(z[:, list(target)], axis=1)
        curve = lg.regression.learning_curve(
            kernel, y=y, sizes=settings.sizes, measure=settings.draws
        ).data
        pair = (curve["measured_test"].values, curve["measured_test_error"].values)
        found.append(np.stack(pair, axis=1))
        said.append(_said(gamma, target, settings.sizes))
    return xarray.Dataset(
        {
            "eigenvalue": (("mode", "what"), np.array(list(seen.values()))),
            "said_eigenvalue": ("mode", [modes[alpha] for alpha in seen]),
            "error": (("target", "size", "what"), np.array(found)),
            "said_error": (("target", "size"), np.array(said)),
            "directions": ((), 1 / np.sum(gamma**2)),
        },
        {"mode": ["z₁", "z₂", "z₁z₂"], "target": list(TARGETS), "size": list(settings.sizes)},
    )


def _compute(settings: Settings) -> xarray.Dataset:
    parts = [_one(settings, decay) for decay in DECAYS.values()]
    return xarray.concat(parts, "data").assign_coords(data=list(DECAYS))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on eigenvalues and learning curves, for many and for few directions."""
    result, n = [], settings.sizes[-1]
    for data in DECAYS:
        at = found["all"].sel(data=data)
        where = f"Gaussian data of {float(at['directions']):.0f} effective dimensions"
        each = [
            equals(f"the eigenvalue of {mode} is c γ…, from the covariance alone", where,
                   at["eigenvalue"].sel(mode=mode).values.tolist(),
                   float(at["said_eigenvalue"].sel(mode=mode)), 0.1)
            for mode in at["mode"].values
        ] + [
            equals(f"the covariance predicts the learning curve of a {target} target",
                   f"test error from {n} samples, {where}",
                   at["error"].sel(target=target, size=n).values.tolist(),
                   float(at["said_error"].sel(target=target, size=n)), 0.15)
            for target in TARGETS
        ]  # fmt: skip
        # The paper's condition is that norms of samples hardly differ.
        result += each if data == "high" else [alternative(claim) for claim in each]
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8, 3.2), layout="constrained")
    for axes, data in zip(picture.subplots(1, 2), DECAYS, strict=True):
        at = found["all"].sel(data=data)
        for k, target in enumerate(TARGETS):
            mean, error = at["error"].sel(target=target).values.T
            axes.plot(at["size"], at["said_error"].sel(target=target), color=f"C{k}")
            axes.errorbar(at["size"], mean, WITHIN * error, fmt="o", ms=4, color=f"C{k}",
                          label=target)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="samples", ylabel="test error")
        label_sizes(axes, settings.sizes)
        axes.set_title(f"{float(at['directions']):.0f} effective dimensions", fontsize=10)
        axes.legend()
    return picture


FIGURE = Figure(
    name="2510.14878-covariance",
    title="Learning curves from the covariance of the data: Hermite polynomials as eigenfunctions",
    source="Karkada et al., Predicting kernel regression learning curves from only raw data "
    "statistics, arXiv 2510.14878",
    images=(),
    settings=Settings(60, 2400, (50, 100, 200, 400, 800), 10),
    fast=Settings(60, 600, (50, 100, 200), 10),
    parts=one_part(f"covariance {NET} {DECAYS} {TARGETS}", _compute),
    claims=claims,
    draw=_draw,
    notes=("where few directions have the variance, norms of samples differ, and with them the "
           "kernel of relu, |x||x'| times a function of the angle: the ansatz fails there",),
)  # fmt: skip
