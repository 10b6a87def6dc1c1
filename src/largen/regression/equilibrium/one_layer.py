"""One hidden layer at rest: the posterior in the mean-field limit, features included."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from largen.bibliography import cites
from largen.errors import NumericalFailure
from largen.interrupts import interruptible
from largen.kernels.tiles import check_size
from largen.regression.equilibrium.dual import (
    Maximum,
    Problem,
    covariances,
    features,
    flat,
    maximise,
)
from largen.regression.equilibrium.network import Equilibrium, width_of
from largen.regression.equilibrium.predictions import AdaptivePrediction, shaped, test_inputs
from largen.regression.equilibrium.sites import (
    Mixture,
    Sites,
    mixture_at_modes,
    prior_mixture,
    sphere,
)
from largen.regression.equilibrium.trust import barrier_of, checked, status_of
from largen.scalars import flag, integer, numpy_generator

STAGES = 4  # of γ₀, from a quarter to the whole
ROUNDS = 4  # of proposals at the last γ₀
COARSE = 2048  # sites of these
SINGULAR = (
    "posterior: V + noise of the training samples is not positive definite. Take a larger noise or "
    "more sites of lg.regression.adaptive_posterior, or drop rows of x that are equal."
)


@dataclass(frozen=True)
class Replicate:
    """The dual problem on one set of sites, its maximum, V there, and a root of V + κ."""

    problem: Problem
    maximum: Maximum
    curvature: np.ndarray

    root: np.ndarray


@cites("lauditi2025adaptive", "rubin2025kernels")
@dataclass(frozen=True, eq=False, repr=False)
class AdaptivePosterior:
    """The posterior of one hidden layer in the mean-field limit; see :func:`adaptive_posterior`.

    Attributes
    ----------
    equilibrium
        The network as it was read: φ, γ₀ and standard deviations.
    x, y, noise
        Training samples, targets, and κ of each sample.
    dual
        α = (y − f)/κ, of the shape of the targets.
    dual_error
        Its standard error over scramblings.
    action, action_error
        S, the maximum of the dual problem, log p(y) = −N S + O(1), and its standard error.
    feature_kernel
        Φ = ⟨φφᵀ⟩ of the training samples under the posterior, (sample, sample).
    prior_kernel
        Φ before training, the NNGP kernel.
    effective_samples
        The smallest effective fraction of sites over scramblings.
    barrier
        The largest exponent ½γ₀²|s|² of a site with weight: training by noisy gradients does not
        reach the posterior in reasonable time where it exceeds about 10.
    status
        ``"ok"``, ``"low_effective_samples"`` or ``"not_converged"``.
    """

    equilibrium: Equilibrium
    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    dual: np.ndarray
    dual_error: np.ndarray
    action: float
    action_error: float
    feature_kernel: np.ndarray
    prior_kernel: np.ndarray
    effective_samples: float
    barrier: float
    status: str
    replicates: tuple[Replicate, ...]

    def log_likelihood(self, width: int) -> float:
        """Return log p(y) of networks of a width, up to terms of order 1/N.

        −N S − ½ log det(V + κ) + (PC/2) log(γ₀²N/2π), with P samples and C outputs: the
        exponent by large deviations and the Gaussian integral around it. The error of the
        sites is N times that of the action.

        Parameters
        ----------
        width
            N, the number of hidden neurons.
        """
        neurons, gamma = integer("width", width, at_least=1), self.equilibrium.gamma
        logs = [2 * np.sum(np.log(np.diag(each.root))) for each in self.replicates]
        constant = self.y.size * np.log(gamma**2 * neurons / (2 * np.pi))
        return float(-neurons * self.action + (constant - np.mean(logs)) / 2)

    @interruptible()
    def predict(
        self, x_test: ArrayLike, *, covariance: bool = False, width: int | None = None
    ) -> AdaptivePrediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        With V = Cov(zφ) of single neurons and t for training samples, and to leading order in 1/N,

            f_a = ⟨z φ_a⟩/γ₀,   γ₀²N Cov(f_a, f_b) = V_ab − V_at(V_tt + κ)⁻¹V_tb
            N(⟨f_a⟩_N − f_a) = −(2γ₀²)⁻¹ d/dJ_a log det(V_tt + κ),

        where J_a is the dual variable of sample a. The variance is not that of a Gaussian process
        with the adapted kernel Φ.

        Parameters
        ----------
        x_test, covariance
            As in :meth:`largen.regression.Posterior.predict`.
        width
            N, for mean and variance at this width, to the next order in 1/N; None for the limit,
            with the variance of γ₀√N f.
        """
        from scipy.stats import sem  # slow to import

        covariance, neurons = flag("covariance", covariance), width_of(width)
        x, dtype = test_inputs(x_test, self.x)
        count = self.y.reshape(len(self.y), -1).shape[1]
        check_size("x_test", len(x) * count, len(self.x) * count, 6, np.float64)
        if covariance:
            check_size("x_test", len(x) * count, len(x) * count, 4, np.float64)
        cross = self.equilibrium.kernel(x, self.x.astype(np.float64))
        own = self.equilibrium.kernel(x) if covariance else self.equilibrium.variances(x)
        parts = [self._moments(each, x, cross, own) for each in self.replicates]
        mean, spread, correction = (np.mean([part[i] for part in parts], 0) for i in range(3))
        error = sem([part[0] for part in parts])
        variance = np.einsum("acac->ac", spread) if covariance else spread
        variance = np.maximum(variance, 0)
        if neurons is not None:
            unit = self.equilibrium.gamma**2 * neurons
            mean, variance, spread = mean + correction / neurons, variance / unit, spread / unit
        full = spread if covariance else None
        single = self.y.ndim == 1
        return shaped(mean, variance, full, error, correction, single=single, dtype=dtype)

    def _moments(self, part: Replicate, x: np.ndarray, cross: np.ndarray, own: np.ndarray):
        """Return mean, (co)variance and 1/N correction at test samples on one set of sites."""
        problem, at = part.problem, part.maximum
        gamma, tilted = problem.gamma, at.tilted
        phi = self.equilibrium.features(problem.sites.xi @ self.equilibrium.columns(x).T)
        prior = problem.sites.prior[:, None]
        extra = problem.control * (cross - (phi * prior).T @ problem.phi_h)
        f_test, f = features(phi, tilted), features(problem.phi_h, tilted)
        mean = f_test + extra @ at.alpha
        between = covariances(phi, problem.phi_h, tilted, gamma, extra, (f_test, f))
        count = mean.shape[1]
        whitened = np.linalg.solve(part.root, flat(between).T).T
        if own.ndim == 2:
            missing = problem.control * (own - (phi * prior).T @ phi)
            spread = covariances(phi, phi, tilted, gamma, missing, (f_test, f_test))
            spread = spread - (whitened @ whitened.T).reshape(spread.shape)
        else:
            missing = problem.control * (own - np.sum(prior * phi**2, 0))
            weights = tilted.second[:, None] + (gamma * tilted.s) ** 2 * tilted.fourth[:, None]
            total = (phi**2).T @ (tilted.weights[:, None] * weights)
            spread = total - (gamma * f_test) ** 2 + missing[:, None]
            spread = spread - np.sum(whitened**2, 1).reshape(-1, count)
        slope = _slopes_of_log_det(part, phi, f_test, between - _spread(extra, count))
        trained = _slopes_of_log_det(
            part, problem.phi_h, f, part.curvature - _spread(problem.missing, count)
        )
        back = np.linalg.solve(part.root, trained.ravel())
        correction = -(slope - (whitened @ back).reshape(slope.shape)) / 2
        return mean, spread, correction

    def __repr__(self) -> str:
        return (
            f"AdaptivePosterior({len(self.x)} samples, gamma={self.equilibrium.gamma:g}, "
            f"{self.status}, effective samples {self.effective_samples:.2g}, "
            f"{self.equilibrium.net!r})"
        )


def _spread(matrix: np.ndarray, outputs: int) -> np.ndarray:
    """Return a kernel of samples for independent outputs."""
    return np.einsum("ab,cd->acbd", matrix, np.eye(outputs))


def _slopes_of_log_det(
    part: Replicate, phi: np.ndarray, f: np.ndarray, moved: np.ndarray
) -> np.ndarray:
    """Return γ₀⁻² ∂/∂J_b log det(V_tt + κ) at fixed tilt of the others, (sample, output).

    With M = V_tt + κ, q_cd = Σ φ_μ(M⁻¹)_μc,νd φ_ν and X = Σ q_cd(δ_cd + γ₀² s_c s_d), it is
    ⟨2 φ_b Σ_c q_ec s_c + X s_e φ_b⟩ − ⟨X⟩ f_be − 2 ∂f M⁻¹f.
    """
    problem, tilted = part.problem, part.maximum.tilted
    gamma, weights = problem.gamma, tilted.weights
    rows, count = problem.y.shape
    inverse_root = np.linalg.inv(part.root)
    inverse = inverse_root.T @ inverse_root
    blocks = inverse.reshape(rows, count, rows, count)
    q = np.empty((len(weights), count, count))
    for c in range(count):
        for d in range(count):
            q[:, c, d] = np.sum((problem.phi_h @ blocks[:, c, :, d]) * problem.phi_h, 1)
    turned = np.einsum("scd,sd->sc", q, tilted.s)
    trace = np.einsum("scc->s", q)
    tilt = gamma**2 * np.sum(turned * tilted.s, 1)
    second, fourth, sixth = tilted.second, tilted.fourth, tilted.sixth
    total = weights @ (trace * second + tilt * fourth)
    along = 2 * turned * fourth[:, None] + (trace * fourth + tilt * sixth)[:, None] * tilted.s
    trained = features(problem.phi_h, tilted)
    back = flat(moved) @ (inverse @ trained.ravel())
    return phi.T @ (weights[:, None] * along) - total * f - 2 * back.reshape(f.shape)


def solve_one_layer(
    of: Equilibrium,
    x: np.ndarray,
    y: np.ndarray,
    noise: np.ndarray,
    sites: int,
    replicates: int,
    key: jax.Array,
    throw: bool,
) -> AdaptivePosterior:
    """Return the posterior of one hidden layer from checked arguments."""
    rng = numpy_generator(key)
    rows = x.astype(np.float64)
    targets = y.reshape(len(y), -1)
    check_size("x", sites, rows.shape[1] + 3 * len(rows), replicates, np.float64)
    posed = Posed(of, rows, targets, noise)
    start = np.zeros_like(targets)
    try:
        if of.homogeneous:
            proposal = sphere(posed.fields.shape[1])
        else:
            start, proposal = _proposal(posed, rng)
        drawn = [proposal.sites(sites, rng) for _ in range(replicates)]
        parts = tuple(posed.maximum(each, of.gamma, start) for each in drawn)
    except np.linalg.LinAlgError as error:
        raise NumericalFailure(SINGULAR) from error
    return _collected(of, x, y, noise, posed.prior, parts, throw)


def proposal_of(
    of: Equilibrium, rows: np.ndarray, targets: np.ndarray, noise: np.ndarray, key: jax.Array
) -> Mixture:
    """Return a Gaussian mixture that is close to the tilted neurons."""
    try:
        return _proposal(Posed(of, rows, targets, noise), numpy_generator(key))[1]
    except np.linalg.LinAlgError as error:
        raise NumericalFailure(SINGULAR) from error


class Posed:
    """The dual problem of checked arguments, on any sites."""

    def __init__(
        self, of: Equilibrium, rows: np.ndarray, targets: np.ndarray, noise: np.ndarray
    ) -> None:
        self.of, self.targets, self.noise = of, targets, noise
        self.prior, self.fields = of.kernel(rows), of.columns(rows)

    def maximum(self, at: Sites, gamma: float, start: np.ndarray) -> Replicate:
        """Return the maximum on these sites."""
        phi = self.of.features(at.xi @ self.fields.T)
        missing = at.missing(self.prior, phi)
        given = self.targets, self.noise, gamma
        try:
            return _replicate(Problem(at, phi, missing, *given, 1.0), start)
        except np.linalg.LinAlgError:
            # Few sites carry the weights: their prior kernel says nothing of their errors.
            return _replicate(Problem(at, phi, 0 * missing, *given, 0.0), start)


def _replicate(problem: Problem, start: np.ndarray) -> Replicate:
    found = maximise(problem, start)
    curvature = problem.curvature(found.tilted)
    return Replicate(problem, found, curvature, np.linalg.cholesky(problem.noisy(curvature)))


def _proposal(posed: Posed, rng: np.random.Generator) -> tuple[np.ndarray, Mixture]:
    """Return α and a proposal that is close to the tilted neurons, raising γ₀ in stages."""
    of, fields, alpha = posed.of, posed.fields, np.zeros_like(posed.targets)
    mixture = prior_mixture(fields.shape[1])
    gammas = [of.gamma * (stage + 1) / STAGES for stage in range(STAGES)]
    for gamma in gammas + [of.gamma] * ROUNDS:
        at = mixture.sites(COARSE, rng)
        found = posed.maximum(at, gamma, alpha).maximum
        change = np.abs(found.alpha - alpha).max() / max(np.abs(found.alpha).max(), 1e-300)
        alpha = found.alpha
        modes = mixture_at_modes(fields, alpha, gamma, of.phi, of.out_std, rng)
        mixture = modes.fitted(at, found.tilted.weights).with_prior()
        if change < 1e-3 and found.tilted.effective > 0.2:
            break
    return alpha, mixture


def _collected(
    of: Equilibrium,
    x: np.ndarray,
    y: np.ndarray,
    noise: np.ndarray,
    prior: np.ndarray,
    parts: tuple[Replicate, ...],
    throw: bool,
) -> AdaptivePosterior:
    """Average over scramblings, and check that they can be trusted."""
    from scipy.stats import sem

    alphas = np.array([part.maximum.alpha for part in parts])
    actions = np.array([part.maximum.action for part in parts])
    sites = [part.maximum.tilted for part in parts]
    exponents = [of.gamma**2 * np.sum(at.s**2, 1) * at.second for at in sites]
    effective, error = min(at.effective for at in sites), sem(alphas)
    result = AdaptivePosterior(
        equilibrium=of,
        x=x,
        y=y,
        noise=noise,
        dual=alphas.mean(0).reshape(y.shape),
        dual_error=error.reshape(y.shape),
        action=float(actions.mean()),
        action_error=float(sem(actions)),
        feature_kernel=np.mean([p.problem.kernel(p.maximum.tilted) for p in parts], 0),
        prior_kernel=prior,
        effective_samples=effective,
        barrier=max(map(barrier_of, exponents, [at.weights for at in sites])),
        status=status_of(effective, all(part.maximum.settled for part in parts)),
        replicates=parts,
    )
    return checked(result, throw)
