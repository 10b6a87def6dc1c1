"""The concave problem of one hidden layer at rest, and averages over its neurons.

Neurons are independent under a tilted prior, and the tilt α, one number for each target, maximises

    D(α) = γ²(α·y − ½ Σ κ_μ α_μ²) − log E exp(½γ²|s|²),   s_c = Σ_μ α_μc φ(h_μ),   h = Aξ,

or has the conjugate of another loss in place of the squares, as in ``fits``.

The logarithm is a cumulant generating function, so that D is concave; the average over fixed points
with positive weights is one as well, at any number of points.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.regression.equilibrium.fits import Fit, Point
from largen.regression.equilibrium.sites import Sites

ITERATIONS = 100
STILL = 1e-9  # the relative step of g at which Newton's method stops


class Tilted(NamedTuple):
    """Sites under the tilt: s, weights that sum to 1, log E exp, and moments of the radius."""

    s: Float[np.ndarray, "site output"]
    weights: Float[np.ndarray, " site"]
    log_mean: float
    second: Float[np.ndarray, " site"]
    fourth: Float[np.ndarray, " site"]
    sixth: Float[np.ndarray, " site"]

    @property
    def effective(self) -> float:
        """The effective fraction of sites, 1/(S Σ w²)."""
        return float(1 / np.sum(self.weights**2) / len(self.weights))


def tilt(sites: Sites, s: np.ndarray, gamma: float) -> Tilted | None:
    """Return the weights of sites under exp(½γ²|s|²); None where its average is infinite.

    On the sphere of d dimensions E exp(½γ²R²|s|²) = (1 − γ²|s|²)^(−d/2) over the radius R, and then
    R²/(1 − γ²|s|²)⁻¹ is a χ²_d variable.
    """
    exponent = gamma**2 * np.sum(s**2, 1)
    if sites.dimension is None:
        logs = sites.log_weights + exponent / 2
        second = fourth = sixth = np.ones(len(s))
    else:
        left, d = 1 - exponent, sites.dimension
        if left.min() <= 0:
            return None
        logs = sites.log_weights - d / 2 * np.log(left)
        second, fourth = d / left, d * (d + 2) / left**2
        sixth = fourth * (d + 4) / left
    largest = logs.max()
    weights = np.exp(logs - largest)
    total = weights.sum()
    prior = np.logaddexp.reduce(sites.log_weights)
    log_mean = float(largest + np.log(total) - prior)
    return Tilted(s, weights / total, log_mean, second, fourth, sixth)


def features(phi_h: np.ndarray, tilted: Tilted) -> np.ndarray:
    """Return f_ac = ⟨φ_a s_c⟩, (sample, output)."""
    return phi_h.T @ ((tilted.weights * tilted.second)[:, None] * tilted.s)


def covariances(
    first: np.ndarray,
    second: np.ndarray,
    tilted: Tilted,
    gamma: float,
    extra: np.ndarray,
    outputs: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Return V = Cov(z_c φ_a, z_d φ_b), (sample, output, sample_2, output).

    V_ac,bd = ⟨φ_a φ_b (δ_cd + γ² s_c s_d)⟩ − γ² f_ac f_bd, with ``extra`` added to ⟨φ_a φ_b⟩.
    """
    f, g = outputs
    count = tilted.s.shape[1]
    found = -(gamma**2) * np.einsum("ac,bd->acbd", f, g)
    plain = tilted.weights * tilted.second
    for c in range(count):
        for d in range(c, count):
            weights = gamma**2 * tilted.weights * tilted.fourth * tilted.s[:, c] * tilted.s[:, d]
            block = (first * (weights + (c == d) * plain)[:, None]).T @ second
            block = block + extra if c == d else block
            found[:, c, :, d] += block
            if c != d:
                found[:, d, :, c] += block
    return found


def flat(matrix: np.ndarray) -> np.ndarray:
    """Return a tensor (sample, output, sample, output) as a matrix."""
    return matrix.reshape(matrix.shape[0] * matrix.shape[1], -1)


class Problem(NamedTuple):
    """The dual problem on fixed sites."""

    sites: Sites
    phi_h: Float[np.ndarray, "site sample"]  # φ of the training samples' fields there
    # The exact prior kernel of features less that of the sites, which is added to all averages: at
    # γ → 0 they are then exact at any number of sites.
    missing: Float[np.ndarray, "sample sample"]
    fit: Fit
    gamma: float
    control: float  # 1 if missing is added, 0 if it is not

    def tilted(self, alpha: np.ndarray) -> Tilted | None:
        """Return the sites under the tilt α."""
        return tilt(self.sites, self.phi_h @ alpha, self.gamma)

    def value(self, point: Point, tilted: Tilted) -> float:
        """Return D(α)."""
        quadratic = np.sum(point.alpha * (self.missing @ point.alpha)) / 2
        return float(self.gamma**2 * (self.fit.value(point) - quadratic) - tilted.log_mean)

    def outputs(self, alpha: np.ndarray, tilted: Tilted) -> np.ndarray:
        """Return f at the training samples."""
        return features(self.phi_h, tilted) + self.missing @ alpha

    def kernel(self, tilted: Tilted) -> np.ndarray:
        """Return Φ = ⟨φφᵀ⟩ of the training samples."""
        weights = (tilted.weights * tilted.second)[:, None]
        return (self.phi_h * weights).T @ self.phi_h + self.missing

    def curvature(self, tilted: Tilted) -> np.ndarray:
        """Return V of the training samples, (sample, output, sample, output)."""
        # ⟨zφ⟩ of the sites alone: the kernel that is missing has no tilt.
        f = features(self.phi_h, tilted)
        given = self.phi_h, self.phi_h, tilted, self.gamma, self.missing
        return covariances(*given, (f, f))


class Maximum(NamedTuple):
    """The maximum of D: α, D there, sites under the tilt, and whether Newton's method ended."""

    point: Point
    action: float
    tilted: Tilted
    iterations: int
    settled: bool

    @property
    def alpha(self) -> np.ndarray:
        """α."""
        return self.point.alpha


def _near(new: np.ndarray, old: np.ndarray, rtol: float) -> bool:
    return bool(np.abs(new - old).max() <= rtol * max(np.abs(new).max(), 1e-300))


def maximise(problem: Problem, point: Point) -> Maximum:
    """Return the maximum of D, by stages if the loss has kinks."""
    stages = problem.fit.stages()
    found = _maximised(problem._replace(fit=stages[0]), stages[0].near(point, problem.fit))
    for before, fit in pairwise(stages):
        found = _maximised(problem._replace(fit=fit), fit.near(found.point, before))
    return found


def _maximised(problem: Problem, point: Point) -> Maximum:
    """Return the maximum of D by Newton's method with backtracking."""
    fit = problem.fit
    tilted = problem.tilted(point.alpha)
    while tilted is None:
        point = fit.halved(point)
        tilted = problem.tilted(point.alpha)
    value = problem.value(point, tilted)
    for iteration in range(1, ITERATIONS + 1):
        gradient = point.g - problem.outputs(point.alpha, tilted)
        curvature = flat(problem.curvature(tilted))
        root = fit.inverse(curvature.reshape(*fit.shape, *fit.shape), point).root
        white = root.T @ gradient.ravel()
        step = root @ white
        to_g = (curvature @ step).reshape(gradient.shape) - gradient
        step = step.reshape(gradient.shape)
        gain, length = problem.gamma**2 * float(white @ white), 1.0
        while True:
            moved = fit.moved(point, step, to_g, length)
            found = problem.tilted(moved.alpha)
            # At the maximum, the gain is below the rounding errors of D.
            if found is not None:
                reached = problem.value(moved, found)
                if reached >= value + 1e-4 * length * gain - 1e-13 * max(1.0, abs(value)):
                    break
            length /= 2
            if length < 1e-10:
                return Maximum(point, value, tilted, iteration, False)
        # Where a loss is flat, g may move and α may not.
        still = _near(moved.alpha, point.alpha, fit.rtol) and _near(moved.g, point.g, STILL)
        point, tilted, value = moved, found, reached
        if still:
            return Maximum(point, value, tilted, iteration, True)
    return Maximum(point, value, tilted, ITERATIONS, False)
