"""The concave problem of one hidden layer at rest, and averages over its neurons.

Neurons are independent under a tilted prior, and the tilt α, one number for each target, maximises

    D(α) = γ²(α·y − ½ Σ κ_μ α_μ²) − log E exp(½γ²|s|²),   s_c = Σ_μ α_μc φ(h_μ),   h = Aξ.

The logarithm is a cumulant generating function, so that D is concave; the average over fixed points
with positive weights is one as well, at any number of points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.regression.equilibrium.sites import Sites

ITERATIONS = 100
SETTLED = 1e-12  # the relative step of Newton's method at which it stops


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
    # y, noise, gamma: targets, κ of each sample, and γ.
    y: Float[np.ndarray, "sample output"]
    noise: Float[np.ndarray, " sample"]
    gamma: float
    control: float  # 1 if missing is added, 0 if it is not

    def tilted(self, alpha: np.ndarray) -> Tilted | None:
        """Return the sites under the tilt α."""
        return tilt(self.sites, self.phi_h @ alpha, self.gamma)

    def value(self, alpha: np.ndarray, tilted: Tilted) -> float:
        """Return D(α)."""
        left = self.y - self.noise[:, None] * alpha / 2 - self.missing @ alpha / 2
        return float(self.gamma**2 * np.sum(alpha * left) - tilted.log_mean)

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

    def noisy(self, curvature: np.ndarray) -> np.ndarray:
        """Return V + κ as a matrix."""
        return flat(curvature) + np.diag(np.repeat(self.noise, self.y.shape[1]))


class Maximum(NamedTuple):
    """The maximum of D: α, D there, sites under the tilt, and whether Newton's method ended."""

    alpha: np.ndarray
    action: float
    tilted: Tilted
    iterations: int
    settled: bool


def maximise(problem: Problem, alpha: np.ndarray) -> Maximum:
    """Return the maximum of D by Newton's method with backtracking."""
    tilted = problem.tilted(alpha)
    while tilted is None:
        alpha = alpha / 2
        tilted = problem.tilted(alpha)
    value = problem.value(alpha, tilted)
    for iteration in range(1, ITERATIONS + 1):
        gradient = problem.y - problem.noise[:, None] * alpha - problem.outputs(alpha, tilted)
        root = np.linalg.cholesky(problem.noisy(problem.curvature(tilted)))
        white = np.linalg.solve(root, gradient.ravel())
        step = np.linalg.solve(root.T, white).reshape(alpha.shape)
        gain, length = problem.gamma**2 * float(white @ white), 1.0
        while True:
            moved = alpha + length * step
            found = problem.tilted(moved)
            # At the maximum, the gain is below the rounding errors of D.
            if found is not None:
                reached = problem.value(moved, found)
                if reached >= value + 1e-4 * length * gain - 1e-13 * max(1.0, abs(value)):
                    break
            length /= 2
            if length < 1e-10:
                return Maximum(alpha, value, tilted, iteration, False)
        alpha, tilted, value = moved, found, reached
        if np.abs(step).max() * length <= SETTLED * max(np.abs(alpha).max(), 1e-300):
            return Maximum(alpha, value, tilted, iteration, True)
    return Maximum(alpha, value, tilted, ITERATIONS, False)
