"""A Gaussian process conditioned on targets, independent of the source of its kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import is_traced
from largen.errors import InvalidInput
from largen.kernels.modes import decompose, flow_factors
from largen.regression.checks import noise_variance
from largen.regression.factor import LARGEST_CONDITION, Factor, factorise
from largen.regression.moments import flow_moments, in_blocks, posterior_moments, trained_moments
from largen.regression.noise import best_noise

MANY = 2048  # test samples whose covariance is computed in blocks


class Inference(NamedTuple):
    """A posterior obtained from the inverse of A = kernel + noise."""

    noise: np.ndarray  # variance of the noise, one number or one for each sample
    factor: Factor  # the factorization of A
    weights: np.ndarray  # A⁻¹y, (sample, output)
    # The NNGP kernel of the samples for trained networks; None for Bayesian inference.
    prior: np.ndarray | None

    @property
    def condition(self) -> float:
        """Estimated condition number of A."""
        return self.factor.condition

    @property
    def rank(self) -> int:
        """Number of eigenvalues of A that exceed rounding errors."""
        return self.factor.rank

    @property
    def status(self) -> str:
        """``"ok"`` or ``"singular"``."""
        return "singular" if self.factor.singular else "ok"

    def log_likelihood(self, y: np.ndarray) -> float:
        """Return log p of targets (sample, output); −∞ where A is singular."""
        if self.factor.singular:
            return -float("inf")
        constant = self.factor.log_determinant + len(y) * np.log(2 * np.pi)
        return float(-np.sum(y * self.weights) / 2 - y.shape[1] * constant / 2)

    def mean(self, cross: Any) -> Any:
        """Return the mean, (test_sample, output), from Θ* or K*, (test_sample, sample)."""
        return jnp.asarray(cross) @ jnp.asarray(self.weights)

    def moments(self, cross: Any, own: Any, prior_cross: Any) -> tuple[Any, Any]:
        """Return mean and covariance; only the variances where ``own`` is a diagonal."""
        if np.ndim(own) == 2 and len(own) >= MANY and not is_traced(cross, own):
            kernels = (None if k is None else np.asarray(k) for k in (self.prior, prior_cross))
            parts = self.factor.root, self.factor.singular, self.weights
            return in_blocks(*parts, np.asarray(cross), np.asarray(own), *kernels)
        given = jnp.asarray(self.factor.root), self.factor.singular, jnp.asarray(self.weights)
        if self.prior is None:
            return posterior_moments(*given, jnp.asarray(cross), jnp.asarray(own))
        kernels = (jnp.asarray(k) for k in (cross, own, self.prior, prior_cross))
        return trained_moments(*given, *kernels)


class Relaxation(NamedTuple):
    """Networks at given times of gradient flow, from the eigenmodes of the tangent kernel."""

    times: np.ndarray  # η₀t, (time,)
    several: bool  # whether results have an axis of times
    # vectors, gained, seen: V, g(t) and Vᵀy of regression.moments.flow_moments.
    vectors: np.ndarray
    gained: np.ndarray
    seen: np.ndarray
    # condition, rank: the condition number of the tangent kernel, and its rank: eigenvalues above
    # rounding.
    condition: float
    rank: int
    prior: np.ndarray | None  # the NNGP kernel of the samples; None if it was not given

    @property
    def status(self) -> str:
        """``"ok"`` or ``"singular"``; at finite times nothing is inverted."""
        lost = self.condition > LARGEST_CONDITION and np.isinf(self.times).any()
        return "singular" if lost else "ok"

    def mean(self, cross: Any) -> Any:
        """Return the mean, (test_sample, output), from Θ* of (test_sample, sample)."""
        along = jnp.asarray(cross) @ jnp.asarray(self.vectors)
        return self._at_times(jnp.einsum("im,tm,mc->tic", along, self.gained, self.seen))

    def moments(self, cross: Any, own: Any, prior_cross: Any) -> tuple[Any, Any]:
        """Return mean and covariance; only the variances where ``own`` is a diagonal."""
        modes = (jnp.asarray(a) for a in (self.vectors, self.gained, self.seen))
        kernels = (jnp.asarray(k) for k in (cross, own, self.prior, prior_cross))
        mean, spread = flow_moments(*modes, *kernels)
        return self._at_times(mean), self._at_times(spread)

    def _at_times(self, result: Any) -> Any:
        return result if self.several else result[0]


class Conditioned:
    """The condition number, rank and status of the training kernel of a posterior."""

    given: Inference | Relaxation

    @property
    def noise(self) -> np.ndarray:
        """Variance of the targets' noise; 0 for gradient flow."""
        return self.given.noise if isinstance(self.given, Inference) else np.zeros(())

    @property
    def status(self) -> str:
        """``"ok"`` or ``"singular"``."""
        return self.given.status

    @property
    def condition(self) -> float:
        """Estimated condition number of kernel and noise on the training samples."""
        return self.given.condition

    @property
    def rank(self) -> int:
        """Number of eigenvalues of kernel and noise that exceed rounding errors."""
        return self.given.rank


def infer(
    matrix: np.ndarray,
    prior: np.ndarray | None,
    targets: np.ndarray,
    noise: Any,
    weights: np.ndarray | None,
    bayesian: bool,
) -> Inference:
    """Condition on targets (sample, output), with noise ``noise``/weights or ``"auto"``."""
    if isinstance(noise, str):
        if noise != "auto":
            raise InvalidInput(f"noise: wanted a variance or 'auto', got {noise!r}.")
        by = "likelihood" if bayesian else "leave-one-out"
        variance = np.asarray(best_noise(matrix, targets, weights, by=by))
    else:
        variance = noise_variance(noise, len(targets))
    if weights is not None:
        variance = variance / weights
    factor = factorise(matrix + np.diag(np.broadcast_to(variance, len(targets))))
    return Inference(variance, factor, factor.solve(targets), prior)


def relax(
    tangent: np.ndarray,
    prior: np.ndarray | None,
    targets: np.ndarray,
    times: Any,
    weights: np.ndarray,
) -> Relaxation:
    """Return networks at given times of gradient flow on the loss (1/Σw) Σ ½w(f − y)².

    ẏ = −ΘD(f − y)/Σw with D = diag w has the modes of D^½ΘD^½ = UΛUᵀ, and V = D^½U. After an
    infinite time g = 1/λ, and modes of eigenvalue 0 keep their initial values.
    """
    at = np.atleast_1d(times)
    with jax.enable_x64(True):
        scale = np.sqrt(weights)
        modes = decompose(
            jnp.asarray(scale[:, None] * tangent * scale), jnp.zeros((0, len(targets)))
        )
        values = np.asarray(modes.values)
        learned = values > values[-1] / LARGEST_CONDITION
        finite = np.where(np.isinf(at), 0.0, at) / weights.sum()
        gained = np.asarray(flow_factors(modes.values, jnp.asarray(finite)).integral)
    forever = np.where(learned, 1 / np.where(learned, values, 1), 0)
    gained = np.where(np.isinf(at)[:, None], forever, gained)
    vectors = scale[:, None] * np.asarray(modes.vectors)
    condition = float(values[-1] / values[0]) if values[0] > 0 else float("inf")
    return Relaxation(
        at, np.ndim(times) > 0, vectors, gained, vectors.T @ targets, condition,
        int(learned.sum()), prior,
    )  # fmt: skip


def draw(mean: np.ndarray, covariance: Any, key: Any, draws: int) -> np.ndarray:
    """Draw functions with independent outputs, (draw, test_sample, output), in float64."""
    with jax.enable_x64(True):
        values, vectors = jnp.linalg.eigh(jnp.asarray(covariance))
        root = vectors * jnp.sqrt(jnp.maximum(values, 0))
        noise = jax.random.normal(key, (draws, *mean.shape), jnp.float64)
        return np.asarray(jnp.einsum("ij,sjc->sic", root, noise)) + mean
