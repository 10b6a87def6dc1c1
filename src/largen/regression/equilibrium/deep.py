"""Several hidden layers at rest: the posterior in the mean-field limit, features included."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.bibliography import cites
from largen.errors import NoTheory, NumericalFailure
from largen.expectations.nodes import kinks_of
from largen.interrupts import interruptible
from largen.kernels.tiles import check_size
from largen.progress import Report, reporter
from largen.regression.equilibrium.fits import Fit, single
from largen.regression.equilibrium.linear_modes import Branch
from largen.regression.equilibrium.nested import (
    First,
    Nested,
    Neurons,
    Saddle,
    prior_kernel,
    sites_under,
)
from largen.regression.equilibrium.network import Equilibrium, width_of
from largen.regression.equilibrium.one_layer import COARSE
from largen.regression.equilibrium.predictions import (
    AdaptivePrediction,
    at_any_number,
    shaped,
    test_inputs,
)
from largen.regression.equilibrium.response import Base, Column, forward, variances
from largen.regression.equilibrium.sites import (
    Mixture,
    Stretched,
    mixture_at_modes,
    prior_mixture,
    sphere,
)
from largen.regression.equilibrium.trust import barrier_of, check_sites, checked, status_of
from largen.scalars import flag, numpy_generator

UPWARDS = (0.25, 0.5, 0.75, 1.0)  # stages of γ₀, from the fixed kernel
BACK = (1.25, 2.0, 1.25, 1.0)  # from where another branch may be the only one
MOST_NUMBERS = 2**18  # sites times samples, in all replicates that variances are averaged over
MIDWAY = 2  # how many times the way to a stage is halved
SMOOTH, ROUGH = 16, 64  # sites of a sample on the way, the latter where φ' jumps
# Relative change of Λ at which solutions end: on the way, and to find out whether there are two.
ROUGHLY, CLOSELY = 1e-3, 1e-5
APART = 1e-3  # relative distance of α in two branches on the same sites
SINGULAR = (
    "posterior: averages over neurons are infinite or a kernel plus noise is singular on the way "
    "to this gamma. Take a larger noise, a smaller gamma, or drop rows of x that are equal."
)

Proposal = Mixture | Stretched


@cites("lauditi2025adaptive", "rubin2025kernels")
@dataclass(frozen=True, eq=False, repr=False)
class DeepPosterior:
    """The posterior of several hidden layers in the limit; see :func:`adaptive_posterior`.

    Attributes
    ----------
    equilibrium
        The network as it was read: φ and standard deviations of its layers, and γ₀.
    x, y, noise
        Training samples, targets, and κ of each sample.
    fit
        The loss and what it has of the samples.
    dual, dual_error
        α = −ℓ'(f)/κ, which is (y − f)/κ for squares, and its standard error over scramblings.
    branches
        All stationary points (scale, action) that were found, the lowest action first, which is the
        limit: from the fixed kernel upwards in γ₀, and downwards from 2γ₀. The scale is
        (αᵀΦα/αᵀKα)^(1/L) with the kernel K of the prior.
    action, action_error
        S of the limit, log p(y) = −N S + O(1), and its standard error.
    feature_kernels
        Φˡ of all hidden layers under the posterior, (layer, sample, sample), with the variances of
        the weights that read them.
    prior_kernel
        Φ of the last layer before training, the NNGP kernel.
    tilts
        Λˡ of all hidden layers, (layer, sample, sample).
    effective_samples
        The smallest effective fraction of sites over layers and scramblings.
    barrier
        The largest exponent ½φᵀΛφ of a site with weight.
    sweeps
        Iterations of the last solution.
    status
        ``"ok"``, ``"several_branches"``, ``"low_effective_samples"`` or ``"not_converged"``.
    """

    equilibrium: Equilibrium
    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    fit: Fit
    dual: np.ndarray
    dual_error: np.ndarray
    branches: tuple[Branch, ...]
    action: float
    action_error: float
    feature_kernels: np.ndarray
    prior_kernel: np.ndarray
    tilts: np.ndarray
    effective_samples: float
    barrier: float
    sweeps: int
    status: str
    replicates: tuple[tuple[Nested, Saddle], ...]

    @property
    def feature_kernel(self) -> np.ndarray:
        """Φ of the last hidden layer."""
        return self.feature_kernels[-1]

    @interruptible()
    @at_any_number
    def predict(
        self, x_test: ArrayLike, *, width: int | None = None, variance: bool = True
    ) -> AdaptivePrediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        f_b = Φᴸ_bt α, where test samples have no tilt, and γ₀²N Var f_b = df_b/dJ_b, the response
        of the saddle to a source of f_b. Covariances and corrections in 1/N are not implemented,
        and None.

        Parameters
        ----------
        x_test
            As in :meth:`largen.regression.Posterior.predict`.
        width
            N, for the variance of f; None for that of γ₀√N f. The mean is that of the limit in both
            cases, and networks differ from it by O(1/N).
        variance
            Whether to compute variances, which are None otherwise. They take most of the time: a
            linear system for each test sample, which is solved in fewer replicates where there are
            many training samples.
        """
        from scipy.stats import sem

        neurons, spreads = width_of(width), flag("variance", variance)
        x, dtype = test_inputs(x_test, self.x)
        check_size("x_test", len(self.replicates[0][0].drawn[0].xi), len(x), 12, np.float64)
        with jax.enable_x64(True):
            sizes = [len(posed.drawn[0].xi) * len(self.x) for posed, _ in self.replicates]
            used = spreads * max(1, MOST_NUMBERS // max(sizes))
            given = enumerate(self.replicates)
            parts = [self._moments(*each, x, number < used) for number, each in given]
        found = np.array([part[0] for part in parts])
        unit = 1.0 if neurons is None else self.equilibrium.gamma**2 * neurons
        spread = None
        if spreads:
            spread = np.maximum(np.mean([part[1] for part in parts[:used]], 0), 0)[:, None] / unit
        mean, error = found.mean(0)[:, None], sem(found)[:, None]
        return shaped(mean, spread, None, error, None, single=self.fit.single, dtype=dtype)

    def _moments(
        self, posed: Nested, at: Saddle, x: np.ndarray, spreads: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        fields = self.equilibrium.columns(x)
        cross = fields @ posed.first.fields.T
        own = np.sum(fields**2, 1)
        columns = jax.tree.map(jnp.asarray, Column(fields, cross, own, (), ()))
        base = _base(posed, at)
        f, columns = forward(posed.layers, base, columns)
        if not spreads:
            return np.asarray(f), np.zeros(0)
        try:
            spread = variances(posed.layers, base, columns)
        except np.linalg.LinAlgError as error:
            raise NumericalFailure(f"predict: {error}.") from error
        return np.asarray(f), spread

    def __repr__(self) -> str:
        return (
            f"DeepPosterior({len(self.x)} samples, gamma={self.equilibrium.gamma:g}, "
            f"{self.status}, effective samples {self.effective_samples:.2g}, "
            f"{self.equilibrium.net!r})"
        )


def _base(posed: Nested, at: Saddle) -> Base:
    """Return the saddle as arrays of JAX."""
    curvature = at.problem.curvature(at.maximum.tilted)
    given = Base(
        tilts=at.tilts,
        kernels=at.kernels,
        alpha=at.maximum.alpha[:, 0],
        first=posed.first,
        sites=posed.sites,
        inverse=at.problem.fit.inverse(curvature, at.maximum.point).matrix,
        gamma=float(posed.gamma),
    )
    return jax.tree.map(jnp.asarray, given)


class _Explorer:
    """Solutions on few sites, with proposals that follow the tilted neurons.

    ``tell``: called after each stage, and each replicate.
    """

    def __init__(self, of: Equilibrium, x: np.ndarray, fit: Fit, rng: Any, tell: Any) -> None:
        self.of, self.fit, self.rng, self.tell = of, fit, rng, tell
        fields, rows = of.columns(x), len(x)
        # Of the fields behind the first layer, the last coordinate is that of a test sample.
        sizes = [fields.shape[1], *[rows + 1] * (of.hidden - 1)]
        spheres = [of.homogeneous_at(layer) for layer in range(of.hidden)]
        self.layers = tuple(
            Neurons(phi, std, size if on_sphere else None, not kinks_of(phi))
            for phi, std, size, on_sphere in zip(of.phis, of.stds, sizes, spheres, strict=True)
        )
        self.smooth = all(layer.smooth for layer in self.layers[1:])
        self.few = max(COARSE, (SMOOTH if self.smooth else ROUGH) * rows)
        prior = prior_kernel(self.layers[0], jnp.asarray(fields @ fields.T))
        self.first = First(fields, np.asarray(prior))
        starts = zip(sizes, spheres, strict=True)
        self.proposals: list[Proposal] = [
            sphere(size) if on_sphere else prior_mixture(size) for size, on_sphere in starts
        ]
        self.tilts: Any = np.zeros((of.hidden - 1, rows, rows))
        self.point, self.stage = fit.start(), 0.0

    def posed(self, gamma: float, sites: int) -> Nested:
        """Return the problem on fresh sites."""
        # Equal numbers of sites, since functions are compiled for each number.
        drawn = tuple(
            proposal.sites(sites, self.rng).padded(sites // 2) for proposal in self.proposals
        )
        return Nested(self.layers, self.first, drawn, self.fit, gamma)

    def follow(self, stages: tuple[float, ...]) -> None:
        """Solve stage after stage, from the solution of before."""
        for stage in stages:
            self._reach(stage, MIDWAY)
            self.tell()

    def _reach(self, stage: float, midway: int) -> None:
        """Solve a stage, by way of the middle if it cannot be reached at once."""
        posed = self.posed(stage * self.of.gamma, self.few)
        try:
            found = posed.solve(self.tilts, self.point, ROUGHLY)
        except np.linalg.LinAlgError:
            if not midway:
                raise
            self._reach((self.stage + stage) / 2, midway - 1)
            self._reach(stage, midway - 1)
            return
        self.tilts, self.point, self.stage = found.tilts, found.maximum.point, stage
        self.proposals = self._refitted(posed, found)

    def _refitted(self, posed: Nested, at: Saddle) -> list[Proposal]:
        refitted = []
        for i, (proposal, sites) in enumerate(zip(self.proposals, posed.drawn, strict=True)):
            _, weights, shares = _tilted(posed, at, i)
            if isinstance(proposal, Stretched):
                refitted.append(proposal.fitted(sites, shares))
                continue
            fields = np.asarray(self.first.fields)
            if i:
                fields = np.pad(np.linalg.cholesky(at.kernels[i - 1]), ((0, 0), (0, 1)))
            values, vectors = np.linalg.eigh(at.all_tilts[i])
            factor = vectors * np.sqrt(np.maximum(values, 0))
            layer = self.layers[i]
            modes = mixture_at_modes(fields, factor, 1.0, layer.phi, layer.std, self.rng)
            refitted.append(modes.fitted(sites, weights).with_prior())
        return refitted


def _tilted(posed: Nested, at: Saddle, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what ``sites_under`` has of a layer."""
    before = (posed.first, *at.kernels)[layer]
    given = posed.layers[layer], before, at.all_tilts[layer], posed.sites[layer]
    return tuple(np.asarray(part) for part in sites_under(*given))  # pyright: ignore[reportReturnType]


def solve_deep(
    of: Equilibrium,
    x: np.ndarray,
    y: np.ndarray,
    fit: Fit,
    sites: int,
    replicates: int,
    key: jax.Array,
    throw: bool,
    progress: bool | Report | None = None,
) -> DeepPosterior:
    """Return the posterior of several hidden layers from checked arguments."""
    rows = x.astype(np.float64)
    if fit.shape[1] > 1:
        raise NoTheory(
            "y: networks of several hidden layers are implemented for one output; condition on one "
            "column at a time, or take one hidden layer."
        )
    check_size("x", sites, x.shape[1] + 6 * len(x) * of.hidden, replicates, np.float64)
    parts, solved = len(UPWARDS) + replicates + len(BACK) + 1, count(1)
    with jax.enable_x64(True), reporter(progress, "posterior") as report:
        report(0, parts)
        try:
            rng = numpy_generator(key)
            explorer = _Explorer(of, rows, fit, rng, lambda: report(next(solved), parts))
            check_sites(len(x), sites, explorer.smooth)
            found = [_replicated(explorer, UPWARDS, sites, replicates)]
        except np.linalg.LinAlgError as error:
            raise NumericalFailure(SINGULAR) from error
        for stage in BACK:
            with suppress(np.linalg.LinAlgError):  # the next stage may be reached from before
                explorer.follow((stage,))
        with suppress(np.linalg.LinAlgError):
            posed, (_, at) = explorer.posed(of.gamma, explorer.few), found[0][0]
            near = posed.solve(at.tilts, at.maximum.point, CLOSELY)
            other = posed.solve(explorer.tilts, explorer.point, CLOSELY)
            moved = np.linalg.norm(other.maximum.alpha - near.maximum.alpha)
            if other.settled and moved > APART * np.linalg.norm(near.maximum.alpha):
                parts += replicates
                found.append(_replicated(explorer, (1.0,), sites, replicates))
        report(parts, parts)
        prior = of.kernel(rows)
        found.sort(key=lambda parts: np.mean([at.action for _, at in parts]))
        return _collected(of, x, y, fit, prior, found, throw)


Parts = tuple[tuple[Nested, Saddle], ...]


def _replicated(
    explorer: _Explorer, stages: tuple[float, ...], sites: int, replicates: int
) -> Parts:
    explorer.follow(stages)
    tilts, point, found = explorer.tilts, explorer.point, []
    for _ in range(replicates):
        posed = explorer.posed(explorer.of.gamma, sites)
        found.append((posed, posed.solve(tilts, point)))
        explorer.tell()
        tilts = np.mean([at.tilts for _, at in found], 0)
    return tuple(found)


def _branch(of: Equilibrium, prior: np.ndarray, parts: Parts) -> Branch:
    alpha = np.mean([at.maximum.alpha[:, 0] for _, at in parts], 0)
    kernel = np.mean([at.problem.kernel(at.maximum.tilted) for _, at in parts], 0)
    gain = (alpha @ kernel @ alpha) / max(float(alpha @ prior @ alpha), 1e-300)
    return Branch(float(gain ** (1 / of.hidden)), float(np.mean([at.action for _, at in parts])))


def _collected(
    of: Equilibrium,
    x: np.ndarray,
    y: np.ndarray,
    fit: Fit,
    prior: np.ndarray,
    found: list[Parts],
    throw: bool,
) -> DeepPosterior:
    """Average the branch of the lowest action over scramblings, and check it."""
    from scipy.stats import sem

    parts = found[0]
    alphas = np.array([single(at.maximum.alpha, fit) for _, at in parts])
    actions = np.array([at.action for _, at in parts])
    effective, barriers = [], []
    for posed, at in parts:
        for layer in range(of.hidden):
            exponents, weights, _ = _tilted(posed, at, layer)
            effective.append(1 / np.sum(weights**2) / posed.drawn[layer].number)
            barriers.append(barrier_of(exponents, weights))
    settled = all(at.settled for _, at in parts)
    branches = "ok" if len(found) == 1 else "several_branches"
    dual = alphas.mean(0)
    last = of.gamma**2 * np.outer(dual, dual)
    kernels = [[*at.kernels, at.problem.kernel(at.maximum.tilted)] for _, at in parts]
    result = DeepPosterior(
        equilibrium=of,
        x=x,
        y=y,
        noise=fit.noise,
        fit=fit,
        dual=dual,
        dual_error=sem(alphas),
        branches=tuple(_branch(of, prior, each) for each in found),
        action=float(actions.mean()),
        action_error=float(sem(actions)),
        feature_kernels=np.mean(kernels, 0),
        prior_kernel=prior,
        tilts=np.array([*np.mean([at.tilts for _, at in parts], 0), last]),
        effective_samples=float(min(effective)),
        barrier=max(barriers),
        sweeps=parts[-1][1].sweeps,
        status=status_of(min(effective), settled, branches),
        replicates=parts,
    )
    return checked(result, throw)
