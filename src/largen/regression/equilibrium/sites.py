"""Points ξ at which averages over single neurons are computed, and their weights."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from largen.expectations import ActivationFunction
from largen.expectations.quasi_random import normal_points

STARTS, STEPS, MODES = 64, 200, 8  # of the ascent to the modes of a tilted neuron
APART = 0.3  # distance of two modes
FEW = 8  # dimensions in which a proposal may differ from the prior in all directions
INFLATED = 1.2  # variance of a proposal relative to that of the weighted sites
PRIOR = 0.1  # the prior's share of the proposal
ROUNDS_OF_FIT = 10  # of expectation maximisation
STRETCHED = 1.3  # the second moment above which a direction of a sphere is stretched
FAR = 12.0  # the largest |ξ| of a mode


class Sites(NamedTuple):
    """Points for averages over the prior of a neuron, ξ ~ N(0, 1), h = Aξ."""

    # The points; on the unit sphere if the radius is integrated in closed form.
    xi: Float[np.ndarray, "site direction"]
    log_weights: Float[np.ndarray, " site"]  # log density of the prior over that of the proposal
    dimension: int | None = None  # d, if the radius is integrated; None otherwise

    @property
    def prior(self) -> np.ndarray:
        """Weights under the prior, times the mean square of the radius."""
        weights = np.exp(self.log_weights)
        return weights * (self.dimension or 1) / weights.sum()

    @property
    def number(self) -> int:
        """Number of points that are not padding."""
        return int(np.isfinite(self.log_weights).sum())

    def padded(self, block: int) -> Sites:
        """Return a multiple of ``block`` sites, those that are added without weight."""
        more = -len(self.xi) % block
        xi = np.pad(self.xi, ((0, more), (0, 0)))
        return Sites(
            xi, np.pad(self.log_weights, (0, more), constant_values=-np.inf), self.dimension
        )

    def missing(self, kernel: np.ndarray, phi: np.ndarray) -> np.ndarray:
        """Return the prior's kernel E φφᵀ less that of the sites, from φ there."""
        return kernel - (phi * self.prior[:, None]).T @ phi


class Mixture(NamedTuple):
    """A Gaussian mixture as a proposal, equal to the prior outside the span of a basis.

    A proposal unlike the prior in all of many dimensions would not overlap with the tilted neurons.
    """

    basis: Float[np.ndarray, "direction coordinate"]  # orthonormal columns, (direction, coordinate)
    shares: Float[np.ndarray, " component"]  # probabilities of the components
    # centers, roots: their means in the span, and Cholesky factors of their covariances.
    centers: Float[np.ndarray, "component coordinate"]
    roots: Float[np.ndarray, "component coordinate coordinate"]

    def log_densities(self, u: np.ndarray) -> np.ndarray:
        """Return log densities of components, times their shares, over the prior's."""
        found = []
        for share, center, root in zip(self.shares, self.centers, self.roots, strict=True):
            white = np.linalg.solve(root, (u - center).T)
            size = np.sum(np.log(np.diag(root)))
            found.append(np.log(share) - np.sum(white**2, 0) / 2 - size + np.sum(u**2, 1) / 2)
        return np.array(found)

    def sites(self, count: int, rng: np.random.Generator) -> Sites:
        """Return about ``count`` sites: of each component a power of two, as its share says."""
        counts = 2 ** np.maximum(np.round(np.log2(self.shares * count)), 4).astype(int)
        drawn = self._replace(shares=counts / counts.sum())
        parts = []
        for number, center, root in zip(counts, self.centers, self.roots, strict=True):
            xi = normal_points(int(number), len(self.basis), rng)
            u = xi @ self.basis
            parts.append(xi + (center + u @ root.T - u) @ self.basis.T)
        xi = np.concatenate(parts)
        return Sites(xi, -np.logaddexp.reduce(drawn.log_densities(xi @ self.basis)))

    def fitted(self, sites: Sites, weights: np.ndarray) -> Mixture:
        """Return the mixture after expectation maximisation on weighted sites."""
        mixture, u, size = self, sites.xi @ self.basis, self.basis.shape[1]
        for _ in range(ROUNDS_OF_FIT):
            logs = mixture.log_densities(u)
            parts = np.exp(logs - np.logaddexp.reduce(logs)) * weights
            masses = parts.sum(1)
            kept = masses > 1e-3
            centers, covariances = [], []
            for part, mass in zip(parts[kept], masses[kept], strict=True):
                center = part @ u / mass
                moved = u - center
                counted = mass**2 / np.sum(part**2)
                spread = (moved * part[:, None]).T @ moved / mass
                # As few sites as there are coordinates do not say what a covariance is.
                pulled = counted * spread + (size + 2) * np.eye(size)
                centers.append(center)
                covariances.append(pulled / (counted + size + 2))
            shares = masses[kept] / masses[kept].sum()
            roots = np.linalg.cholesky(np.array(covariances))
            mixture = Mixture(self.basis, shares, np.array(centers), roots)
        return mixture

    def with_prior(self) -> Mixture:
        """Return the mixture with wider components, and the prior as another one."""
        size = self.basis.shape[1]
        return Mixture(
            self.basis,
            np.append(PRIOR, (1 - PRIOR) * self.shares),
            np.concatenate([np.zeros((1, size)), self.centers]),
            np.concatenate([np.eye(size)[None], np.sqrt(INFLATED) * self.roots]),
        )


def prior_mixture(dimensions: int) -> Mixture:
    """Return the prior as a mixture."""
    return Mixture(np.eye(dimensions)[:, :1], np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))


class Stretched(NamedTuple):
    """A Gaussian on the unit sphere that is stretched in some directions, as a proposal."""

    root: Float[np.ndarray, "direction direction"]  # T of u = Tz/|Tz|

    def sites(self, count: int, rng: np.random.Generator) -> Sites:
        """Return points on the unit sphere, for activations that are homogeneous."""
        dimensions = len(self.root)
        z = normal_points(count, dimensions, rng)
        xi = z @ self.root.T
        sizes = np.linalg.norm(xi, axis=1, keepdims=True)
        # The density over the uniform one is |T|⁻¹|T⁻¹u|^(−d).
        logs = np.log(np.linalg.norm(z, axis=1) / sizes[:, 0])
        return Sites(xi / sizes, dimensions * logs + np.linalg.slogdet(self.root)[1], dimensions)

    def fitted(self, sites: Sites, shares: np.ndarray) -> Stretched:
        """Return a proposal with the second moments of tilted sites, where they are others."""
        moments = (sites.xi * shares[:, None]).T @ sites.xi
        values, vectors = np.linalg.eigh(moments)
        sizes = np.where(values > STRETCHED, np.sqrt(np.maximum(values, 1)), 1)
        return Stretched((vectors * sizes) @ vectors.T)


def sphere(dimensions: int) -> Stretched:
    """Return the prior's directions."""
    return Stretched(np.eye(dimensions))


def mixture_at_modes(
    fields: Float[np.ndarray, "sample direction"],
    alpha: Float[np.ndarray, "sample output"],
    gamma: float,
    phi: ActivationFunction,
    std: float,
    rng: np.random.Generator,
) -> Mixture:
    """Return a proposal at the maxima of ½γ²|s(ξ)|² − ½|ξ|², s = σαᵀφ(Aξ), by gradient ascent."""
    xi = 1.5 * rng.standard_normal((STARTS, fields.shape[1]))
    with jax.enable_x64(True):
        ascended = _ascended(phi, fields, gamma * std * alpha, xi)
    xi, height = (np.asarray(each) for each in ascended)
    modes = [np.zeros(fields.shape[1])]
    for i in np.argsort(-height):
        if min(np.linalg.norm(xi[i] - mode) for mode in modes) > APART:
            modes.append(xi[i])
        if len(modes) > MODES:
            break
    points = np.array(modes)
    if fields.shape[1] <= FEW:
        basis = np.eye(fields.shape[1])
    else:
        # The tilt is a function of the fields: their largest directions, and where the modes are.
        _, sizes, rows = np.linalg.svd(points, full_matrices=False)
        kept = sizes > 1e-3 * max(sizes[0], 1.0)
        basis = rows[kept].T if kept.any() else np.eye(fields.shape[1])[:, :1]
    size, count = basis.shape[1], len(points)
    roots = np.tile(np.eye(size), (count, 1, 1))
    return Mixture(basis, np.full(count, 1 / count), points @ basis, roots)


@partial(jax.jit, static_argnums=0)
def _ascended(phi: ActivationFunction, fields: Any, alpha: Any, xi: Any) -> tuple[Any, Any]:
    """Return where an ascent ends, and the exponents there."""

    def step(_: Any, xi: Any) -> Any:
        h = xi @ fields.T
        pull = (phi.derivative(h) * (phi(h) @ alpha @ alpha.T)) @ fields
        xi = 0.8 * xi + 0.2 * pull
        return xi * jnp.minimum(
            1, FAR / jnp.maximum(jnp.linalg.norm(xi, axis=1, keepdims=True), 1e-9)
        )

    xi = jax.lax.fori_loop(0, STEPS, step, xi)
    s = phi(xi @ fields.T) @ alpha
    return xi, jnp.sum(s**2, 1) / 2 - jnp.sum(xi**2, 1) / 2
