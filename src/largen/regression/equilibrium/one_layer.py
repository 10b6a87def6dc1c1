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
from largen.regression.equilibrium.fits import Convex, Fit, Inverse, Point, single
from largen.regression.equilibrium.network import Equilibrium, width_of
from largen.regression.equilibrium.predictions import (
    AdaptivePrediction,
    at_any_number,
    shaped,
    test_inputs,
)
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
    """The dual problem on one set of sites, its maximum, V there, and (V + κ/ℓ'')⁻¹."""

    problem: Problem
    maximum: Maximum
    curvature: np.ndarray
    inverse: Inverse


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
    fit
        The loss and what it has of the samples.
    dual
        α = −ℓ'(f)/κ, which is (y − f)/κ for squares, of the shape of the outputs.
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
    fit: Fit
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
        sites is N times that of the action. For other losses than squares it is the logarithm of
        the prior's average of exp(−(Nγ₀²/κ) Σ ℓ), −N S − ½ log det(1 + Vℓ''/κ).

        Parameters
        ----------
        width
            N, the number of hidden neurons.
        """
        neurons, gamma = integer("width", width, at_least=1), self.equilibrium.gamma
        log_det = np.mean([each.inverse.log_det for each in self.replicates])
        constant = self.fit.log_constant(gamma**2 * neurons)
        return float(-neurons * self.action + constant - log_det / 2)

    @interruptible()
    @at_any_number
    def predict(
        self, x_test: ArrayLike, *, covariance: bool = False, width: int | None = None
    ) -> AdaptivePrediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        With V = Cov(zφ) of single neurons and t for training samples, and to leading order in 1/N,

            f_a = ⟨z φ_a⟩/γ₀,   γ₀²N Cov(f_a, f_b) = V_ab − V_at(V_tt + κ)⁻¹V_tb
            N(⟨f_a⟩_N − f_a) = −(2γ₀²)⁻¹ d/dJ_a log det(V_tt + κ),

        where J_a is the dual variable of sample a. For other losses κ is κ/ℓ'' of each sample,
        and ℓ''' adds to the correction. The variance is not that of a Gaussian process with the
        adapted kernel Φ.

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
        count = self.fit.shape[1]
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
        parts = mean, variance, full, error, correction
        return shaped(*parts, single=self.fit.single, dtype=dtype)

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
        whitened = flat(between) @ part.inverse.root
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
        back = part.inverse.root.T @ trained.ravel()
        correction = -(slope - (whitened @ back).reshape(slope.shape)) / 2
        if isinstance(problem.fit, Convex):
            correction -= self._skewed(problem.fit, part, flat(between)).reshape(slope.shape)
        return mean, spread, correction

    @staticmethod
    def _skewed(fit: Convex, part: Replicate, between: np.ndarray) -> np.ndarray:
        """Return the part of the correction by ℓ''', with the covariance V − VWV of outputs."""
        V, W = flat(part.curvature), part.inverse.matrix
        own = (V - V @ W @ V).reshape(part.curvature.shape)
        moved = (between - between @ W @ V) @ fit.skewed(own, part.maximum.point).ravel()
        return moved / (2 * part.problem.gamma**2)

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
    rows, count = problem.fit.shape
    inverse = part.inverse.matrix
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
    fit: Fit,
    sites: int,
    replicates: int,
    key: jax.Array,
    throw: bool,
) -> AdaptivePosterior:
    """Return the posterior of one hidden layer from checked arguments."""
    rng = numpy_generator(key)
    rows = x.astype(np.float64)
    check_size("x", sites, rows.shape[1] + 3 * len(rows), replicates, np.float64)
    posed = Posed(of, rows, fit)
    start = fit.start()
    try:
        if of.homogeneous:
            proposal = sphere(posed.fields.shape[1])
        else:
            start, proposal = _proposal(posed, rng)
        drawn = [proposal.sites(sites, rng) for _ in range(replicates)]
        parts = tuple(posed.maximum(each, of.gamma, start) for each in drawn)
    except np.linalg.LinAlgError as error:
        raise NumericalFailure(SINGULAR) from error
    return _collected(posed, x, y, parts, throw)


def proposal_of(of: Equilibrium, rows: np.ndarray, fit: Fit, key: jax.Array) -> Mixture:
    """Return a Gaussian mixture that is close to the tilted neurons."""
    try:
        return _proposal(Posed(of, rows, fit), numpy_generator(key))[1]
    except np.linalg.LinAlgError as error:
        raise NumericalFailure(SINGULAR) from error


class Posed:
    """The dual problem of checked arguments, on any sites."""

    def __init__(self, of: Equilibrium, rows: np.ndarray, fit: Fit) -> None:
        self.of, self.fit = of, fit
        self.prior, self.fields = of.kernel(rows), of.columns(rows)

    def maximum(self, at: Sites, gamma: float, start: Point) -> Replicate:
        """Return the maximum on these sites."""
        phi = self.of.features(at.xi @ self.fields.T)
        missing = at.missing(self.prior, phi)
        try:
            return _replicate(Problem(at, phi, missing, self.fit, gamma, 1.0), start)
        except np.linalg.LinAlgError:
            # Few sites carry the weights: their prior kernel says nothing of their errors.
            return _replicate(Problem(at, phi, 0 * missing, self.fit, gamma, 0.0), start)


def _replicate(problem: Problem, start: Point) -> Replicate:
    found = maximise(problem, start)
    curvature = problem.curvature(found.tilted)
    return Replicate(problem, found, curvature, problem.fit.inverse(curvature, found.point))


def _proposal(posed: Posed, rng: np.random.Generator) -> tuple[Point, Mixture]:
    """Return α and a proposal that is close to the tilted neurons, raising γ₀ in stages."""
    of, fields, point = posed.of, posed.fields, posed.fit.start()
    mixture = prior_mixture(fields.shape[1])
    gammas = [of.gamma * (stage + 1) / STAGES for stage in range(STAGES)]
    for gamma in gammas + [of.gamma] * ROUNDS:
        at = mixture.sites(COARSE, rng)
        found = posed.maximum(at, gamma, point).maximum
        change = np.abs(found.alpha - point.alpha).max() / max(np.abs(found.alpha).max(), 1e-300)
        point = found.point
        modes = mixture_at_modes(fields, found.alpha, gamma, of.phi, of.out_std, rng)
        mixture = modes.fitted(at, found.tilted.weights).with_prior()
        if change < 1e-3 and found.tilted.effective > 0.2:
            break
    return point, mixture


def _collected(
    posed: Posed, x: np.ndarray, y: np.ndarray, parts: tuple[Replicate, ...], throw: bool
) -> AdaptivePosterior:
    """Average over scramblings, and check that they can be trusted."""
    from scipy.stats import sem

    of = posed.of
    alphas = np.array([single(part.maximum.alpha, posed.fit) for part in parts])
    actions = np.array([part.maximum.action for part in parts])
    sites = [part.maximum.tilted for part in parts]
    exponents = [of.gamma**2 * np.sum(at.s**2, 1) * at.second for at in sites]
    effective = min(at.effective for at in sites)
    result = AdaptivePosterior(
        equilibrium=of,
        x=x,
        y=y,
        noise=posed.fit.noise,
        fit=posed.fit,
        dual=alphas.mean(0),
        dual_error=sem(alphas),
        action=float(actions.mean()),
        action_error=float(sem(actions)),
        feature_kernel=np.mean([p.problem.kernel(p.maximum.tilted) for p in parts], 0),
        prior_kernel=posed.prior,
        effective_samples=effective,
        barrier=max(map(barrier_of, exponents, [at.weights for at in sites])),
        status=status_of(effective, all(part.maximum.settled for part in parts)),
        replicates=parts,
    )
    return checked(result, throw)
