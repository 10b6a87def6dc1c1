"""One hidden layer at rest under weight decay, where φ(ch) = cφ(h) for c > 0.

Such an activation is φ(h) = φ(1) max(h, 0) + φ(−1) max(−h, 0). All neurons of one direction
u = ξ/|ξ| and v = z/|z| act as one, whose size |ξ||z| costs what the decay of ξ and z costs. With κ
the decay times the number of samples, t = κ/γ₀, and ν a measure over directions, stationary
networks of the lowest energy solve the convex problem (Bach 2017)

    min_ν ½ Σ_μ |f_μ − y_μ|² + t ‖ν‖,   f = ∫ v φ(Au) dν(u, v),

whose dual is a projection: Δ = y − f is the point closest to y with |Σ_μ Δ_μ φ(Au)_μ| ≤ t for all
unit vectors u. It is solved by exchange: neurons that violate this join, and the projection on
finitely many half-spaces is a problem of nonnegative least squares (Lawson and Hanson 1974).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from largen.regression.equilibrium.network import Equilibrium

ROUNDS = 300  # of exchange
# Directions from which neurons ascend, beside those of the round before; many where few find none.
FEW, MANY = 16, 256
ASCENTS = 60  # steps of an ascent
STEPS = np.geomspace(1, 1e-4, 7)  # of which each ascent takes the best
JOINING = 24  # neurons that join in a round
NEAR = np.geomspace(1e-1, 1e-6, 6)  # distances at which a sample's kink is taken to be met
ALIKE = 1 - 1e-13  # the cosine above which two directions are one


class Resting(NamedTuple):
    """Networks at rest: neurons, residuals, and by how much the worst direction is too strong."""

    directions: Float[np.ndarray, "neuron weight"]  # unit vectors u
    # ⟨z|ξ|⟩/γ₀ of all neurons of a direction, so that f = Σ σφ(Au) weight.
    weights: Float[np.ndarray, "neuron output"]
    residual: Float[np.ndarray, "sample output"]  # Δ = y − f
    excess: float  # max |Δᵀφ(Au)|/t − 1, over the directions that were searched
    rounds: int

    def outputs(self, of: Equilibrium, x: np.ndarray) -> np.ndarray:
        """Return f at inputs, (sample, output)."""
        return of.features(of.columns(x) @ self.directions.T) @ self.weights

    def feature_kernel(self, of: Equilibrium, x: np.ndarray) -> np.ndarray:
        """Return Φ = ⟨φφᵀ⟩: at rest |ξ|² = |z| |ξ|, summed over the neurons of a direction."""
        phi = of.features(of.columns(x) @ self.directions.T)
        return (phi * (of.gamma * np.linalg.norm(self.weights, axis=1))) @ phi.T


def linear_at_rest(of: Equilibrium, x: np.ndarray, y: np.ndarray, kappa: float) -> Resting:
    """Return a linear network with one output at rest.

    Δ = (1 + μC)⁻¹y with γ₀²yᵀC(1 + μC)⁻²y = κ², or Δ = y if γ₀²yᵀCy ≤ κ²: all weights vanish.
    """
    from scipy.optimize import brentq

    fields = of.out_std * of.columns(x)
    values, vectors = np.linalg.eigh(fields @ fields.T)
    values, targets = np.maximum(values, 0), vectors.T @ y[:, 0]
    strength = np.sqrt(values) * np.abs(targets) * of.gamma / kappa

    def excess(log_mu: float) -> float:
        return float(np.log(np.sum((strength / (1 + np.exp(log_mu) * values)) ** 2)))

    nothing = np.zeros((0, fields.shape[1])), np.zeros((0, 1))
    if np.sum(strength**2) <= 1:
        return Resting(*nothing, y, 0.0, 0)
    low, high = -60.0 - np.log(values[-1]), 60.0 - np.log(values[-1])
    while excess(high) > 0:  # directions of small eigenvalues
        high += 60.0
    mu = np.exp(float(brentq(excess, low, high, xtol=1e-14)))  # pyright: ignore[reportArgumentType]
    residual = (vectors @ (targets / (1 + mu * values)))[:, None]
    along = (fields.T @ residual)[:, 0]
    size = np.linalg.norm(along)
    return Resting((along / size)[None], np.array([[mu * size]]), residual, 0.0, 0)


def homogeneous_at_rest(
    of: Equilibrium,
    x: np.ndarray,
    y: np.ndarray,
    kappa: float,
    rng: np.random.Generator,
    rtol: float,
) -> Resting:
    """Return a network of a homogeneous activation at rest, by exchange."""
    fields, bound = of.columns(x), kappa / of.gamma
    search = _Search(of, fields, rng)
    unit = np.sqrt(np.mean(y**2)) or 1.0
    y, bound = y / unit, bound / unit
    u, v = np.zeros((0, fields.shape[1])), np.zeros((0, y.shape[1]))
    residual, weights, excess, rounds = y, np.zeros(0), np.inf, 0
    while True:
        best, signs, sizes = search.strongest(residual, u, FEW)
        if sizes[0] <= (1 + rtol) * bound:
            best, signs, sizes = search.strongest(residual, u, MANY)
        excess = float(sizes[0] / bound - 1)
        if excess <= rtol or rounds == ROUNDS:
            break
        rounds += 1
        joining = sizes > bound
        u, v = np.concatenate([u, best[joining]]), np.concatenate([v, signs[joining]])
        phi = search.phi(u @ fields.T)
        atoms = (phi[:, :, None] * v[:, None, :]).reshape(len(u), -1)
        weights = _projection(atoms, y.ravel(), bound)
        residual = y - (weights @ atoms).reshape(y.shape)
        kept = weights > 0
        u, v, weights = u[kept], v[kept], weights[kept]
    return Resting(u, unit * weights[:, None] * v, unit * residual, max(excess, 0.0), rounds)


def _projection(atoms: np.ndarray, y: np.ndarray, bound: float) -> np.ndarray:
    """Return weights w ≥ 0 with which y − Σ w_i a_i is the point closest to y with all a·Δ ≤ t."""
    from scipy.optimize import nnls

    system = np.concatenate([-atoms.T, (atoms @ y - bound)[None]])
    target = np.append(np.zeros(len(y)), 1.0)
    found, _ = nnls(system, target, maxiter=100 * (len(atoms) + len(y)))
    left = target - system @ found
    return found / left[-1]


class _Search:
    """The strongest directions, maxima of |Δᵀφ(Au)| over unit vectors u, by ascent."""

    def __init__(self, of: Equilibrium, fields: np.ndarray, rng: np.random.Generator) -> None:
        self.fields, self.rng = fields, rng
        self.above, self.below = of.features(np.array([1.0, -1.0]))
        self.sizes = np.linalg.norm(fields, axis=1)

    def phi(self, h: np.ndarray) -> np.ndarray:
        """Return σφ(h)."""
        return h * self._slopes(h)

    def _slopes(self, h: np.ndarray) -> np.ndarray:
        return np.where(h > 0, self.above, -self.below)

    def strongest(
        self, residual: np.ndarray, known: np.ndarray, starts: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return different maxima, strongest first: u, the unit vectors v, and the values."""
        drawn = self.rng.standard_normal((starts, self.fields.shape[1]))
        u = _units(np.concatenate([known, drawn, residual.T @ self.fields]))
        u = self._ascended(u, residual)
        values = self._values(u, residual)
        chosen: list[np.ndarray] = []
        for i in np.argsort(-values):
            if len(chosen) < JOINING and all(u[i] @ other < ALIKE for other in chosen):
                chosen.append(u[i])
        u = np.array([self._on_kinks(each, residual) for each in chosen])
        s = self.phi(u @ self.fields.T) @ residual
        values = np.linalg.norm(s, axis=1)
        order = np.argsort(-values)
        return u[order], s[order] / np.maximum(values[order], 1e-300)[:, None], values[order]

    def _values(self, u: np.ndarray, residual: np.ndarray) -> np.ndarray:
        return np.linalg.norm(self.phi(u @ self.fields.T) @ residual, axis=-1)

    def _ascended(self, u: np.ndarray, residual: np.ndarray) -> np.ndarray:
        """Ascend from all directions, with the best of a few step sizes each time."""
        values = self._values(u, residual)
        rows = np.arange(len(u))
        for _ in range(ASCENTS):
            to = _units(self._gradient(u, residual))
            tried = _units((1 - STEPS[:, None, None]) * u + STEPS[:, None, None] * to)
            found = self._values(tried, residual)
            best = found.argmax(0)
            better = found[best, rows] > values
            if not better.any():
                break
            u = np.where(better[:, None], tried[best, rows], u)
            values = np.maximum(values, found[best, rows])
        return u

    def _gradient(self, u: np.ndarray, residual: np.ndarray) -> np.ndarray:
        """Return the gradient of ½|Δᵀφ(Au)|² at each of some directions."""
        h = u @ self.fields.T
        slopes = self._slopes(h)
        pull = (h * slopes) @ residual @ residual.T
        return (slopes * pull) @ self.fields

    def _on_kinks(self, u: np.ndarray, residual: np.ndarray) -> np.ndarray:
        """Ascend within the kinks that a direction is close to: many maxima lie exactly on them."""
        value = self._values(u[None], residual)[0]
        for near in NEAR:
            met = np.abs(self.fields @ u) < near * self.sizes
            if not 0 < met.sum() < len(u):
                continue
            normal = np.linalg.svd(self.fields[met], full_matrices=False)[2]
            off = residual * ~met[:, None]
            moved = u
            for _ in range(ASCENTS):
                to = self._gradient(moved[None], off)[0]
                before = moved
                moved = _units((to - (to @ normal.T) @ normal)[None])[0]
                if before @ moved > 1 - 1e-15:
                    break
            found = self._values(moved[None], residual)[0]
            if found > value:
                u, value = moved, found
        return u


def _units(vectors: np.ndarray) -> np.ndarray:
    """Return vectors divided by their lengths; zeros stay zeros."""
    sizes = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(sizes, 1e-300)
