"""The nested saddle of several hidden layers at rest.

Neurons of the layer l have fields h ~ N(0, Φˡ⁻¹) a priori, tilted by exp(½φᵀΛˡφ), and with

    W_l(Φˡ⁻¹, Λˡ) = log E exp(½φᵀΛˡφ),   Λᴸ = γ²ααᵀ,

the saddle is that of

    S = Σ_{l<L} (½ Tr ΛˡΦˡ − W_l) + γ²(α·y − ½ Σ κ_μ α_μ²) − W_L

in all Φˡ, Λˡ and α (Lauditi, Bordelon and Pehlevan 2025, in the convention of largen):
Φˡ = 2∂W_l/∂Λˡ, Λˡ⁻¹ = 2∂W_l/∂Φˡ⁻¹. The last layer is the concave problem of one hidden layer whose
inputs have the kernel Φᴸ⁻¹.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations import ActivationFunction, pair_moments, second_moment
from largen.regression.equilibrium.dual import Maximum, Problem, maximise
from largen.regression.equilibrium.fits import Fit, Point
from largen.regression.equilibrium.sites import Sites

MEMORY = 6  # of Anderson's iteration
SWEEPS = 80
SETTLED = 1e-6  # relative change of Λ at which the iteration ends
RETREATS = 12  # halvings of a step to where averages are infinite
WEIGHT = 1e-10  # of Λ's rounding errors, by which differences of steps are regularised


class Neurons(NamedTuple):
    """A layer: φ, the deviation of the weights that read it, and the dimension of its sphere."""

    phi: ActivationFunction
    std: float
    dimension: int | None  # if φ is homogeneous and the radius is integrated
    smooth: bool  # whether φ' has no jumps


class Drawn(NamedTuple):
    """Sites of a layer, whose last coordinate is that of a test sample."""

    xi: Any
    log_weights: Any


class First(NamedTuple):
    """Fields h = Aξ of the first layer, and the prior's kernel of its features."""

    fields: Any  # A
    prior: Any


def prior_kernel(layer: Neurons, before: Any) -> Any:
    """Return E φφᵀ under N(0, Φ)."""
    q = jnp.diagonal(before)
    return prior_of(layer, q, q, before)


def prior_of(layer: Neurons, q1: Any, q2: Any, cross: Any) -> Any:
    """Return E φ(u)φ(v) for two sets of samples from their variances and covariances."""
    gap = (q1[:, None] + q2) / 2 - cross
    apart = pair_moments(layer.phi, q1[:, None], q2[None], jnp.maximum(gap, 0)).gap
    squares = [jnp.asarray(second_moment(layer.phi, q)) for q in (q1, q2)]
    return layer.std**2 * ((squares[0][:, None] + squares[1]) / 2 - apart)


def fields_of(before: Any) -> Any:
    """Return R with Φ = RRᵀ; the first layer has it."""
    return before.fields if isinstance(before, First) else jnp.linalg.cholesky(before)


def exponents_of(layer: Neurons, roots: Any, tilt: Any, at: Drawn) -> tuple[Any, Any]:
    """Return σφ(Rξ) and φᵀΛφ at the sites."""
    phi = layer.std * layer.phi(at.xi[:, : roots.shape[1]] @ roots.T)
    return phi, jnp.sum((phi @ tilt) * phi, 1)


def weighted(layer: Neurons, exponents: Any, at: Drawn) -> tuple[Any, Any, Any]:
    """Return log E exp(½φᵀΛφ), the weights of the sites, and those times mean squares of radii."""
    if layer.dimension is None:
        logs, square = exponents / 2, 1.0
    else:
        left = 1 - exponents  # NaN where the average is infinite
        logs, square = -layer.dimension / 2 * jnp.log(left), layer.dimension / left
    logs = at.log_weights + logs
    weights = jax.nn.softmax(logs)
    total = jax.nn.logsumexp(logs) - jax.nn.logsumexp(at.log_weights)
    return total, weights, weights * square


# What depends on kernels alone is compiled apart from what depends on the number of sites.
compiled_prior = jax.jit(prior_kernel, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _slopes_of_prior(layer: Neurons, before: Any, tilt: Any) -> Any:
    """Return ∂ Tr ΛE φφᵀ/∂Φ under N(0, Φ)."""
    found = jax.grad(lambda given: jnp.sum(tilt * prior_kernel(layer, given)))(before)
    return (found + found.T) / 2


def prior_behind(layer: Neurons, before: Any) -> Any:
    """Return the prior's kernel of a layer."""
    return before.prior if isinstance(before, First) else compiled_prior(layer, before)


def value(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    """Return W = log E exp(½φᵀΛφ), with ½ Tr Λ(K − K̂) for the sites' error at first order."""
    return (
        _value_of_sites(layer, before, tilt, at) + jnp.sum(tilt * prior_behind(layer, before)) / 2
    )


@partial(jax.jit, static_argnums=0)
def _value_of_sites(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    exponents = exponents_of(layer, fields_of(before), tilt, at)[1]
    first = weighted(layer, 0 * exponents, at)[2] @ exponents
    return weighted(layer, exponents, at)[0] - first / 2


def of_sites(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> tuple[Any, Any]:
    """Return φ at the sites and ⟨φφᵀ⟩ over them."""
    phi, exponents = exponents_of(layer, fields_of(before), tilt, at)
    shares = weighted(layer, exponents, at)[2]
    return phi, (phi * shares[:, None]).T @ phi


def kernel_behind(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    """Return Φ = 2∂W/∂Λ, of the sites only what differs from the prior's."""
    return prior_behind(layer, before) + _moved_kernel(layer, before, tilt, at)


@partial(jax.jit, static_argnums=0)
def _moved_kernel(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    phi, exponents = exponents_of(layer, fields_of(before), tilt, at)
    shares, untilted = (weighted(layer, each * exponents, at)[2] for each in (1, 0))
    return (phi * (shares - untilted)[:, None]).T @ phi


def tilt_behind(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    """Return Λ of the layer before, 2∂W/∂Φ.

    Of the average over sites only what is of the second order in Λ; the first order is exact.
    """
    of_sites = _by_derivatives if layer.smooth else _by_moments
    return of_sites(layer, before, tilt, at) + _slopes_of_prior(layer, before, tilt)


@partial(jax.jit, static_argnums=0)
def _by_moments(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    """Return R⁻ᵀ⟨ξξᵀ − 1⟩R⁻¹, for any φ; its errors grow with the number of samples."""
    roots = fields_of(before)
    exponents = exponents_of(layer, roots, tilt, at)[1]
    xi = at.xi[:, : len(roots)]

    def shares(scale: Any) -> Any:
        return weighted(layer, scale * exponents, at)[2]

    untilted, first = jax.jvp(shares, (0.0,), (1.0,))
    moved = (xi * (shares(1.0) - untilted - first)[:, None]).T @ xi
    half = jax.scipy.linalg.solve_triangular(roots, moved, lower=True, trans=1)
    return jax.scipy.linalg.solve_triangular(roots, half.T, lower=True, trans=1)


@partial(jax.jit, static_argnums=0)
def _by_derivatives(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> Any:
    """Return ⟨aaᵀ + Λφ'φ'ᵀ + diag(φ''Λφ)⟩, a = φ'Λφ elementwise, where φ' has no jumps."""
    roots = fields_of(before)
    h = at.xi[:, : roots.shape[1]] @ roots.T
    phi, (slope, curved) = layer.std * layer.phi(h), layer.phi.derivatives(h)
    slope, pull = layer.std * slope, phi @ tilt
    exponents = jnp.sum(pull * phi, 1)
    untilted = weighted(layer, 0 * exponents, at)[1]
    _, weights, shares = weighted(layer, exponents, at)
    moved, a = (weights - untilted)[:, None], slope * pull
    found = (a * shares[:, None]).T @ a + tilt * ((slope * moved).T @ slope)
    return found + jnp.diag(layer.std * jnp.sum(moved * curved * pull, 0))


def tilts_behind(layers: Any, kernels: Any, tilts: Any, sites: Any) -> tuple[Any, ...]:
    """Return Λ of all layers but the last, from Λ of the layer that each of them feeds."""
    given = zip(layers[1:], kernels, tilts, sites[1:], strict=True)
    return tuple(tilt_behind(*each) for each in given)


@partial(jax.jit, static_argnums=0)
def sites_under(layer: Neurons, before: Any, tilt: Any, at: Drawn) -> tuple[Any, Any, Any]:
    """Return exponents φᵀΛφ times mean squares of radii, weights, and weights times these."""
    exponents = exponents_of(layer, fields_of(before), tilt, at)[1]
    _, weights, shares = weighted(layer, exponents, at)
    return exponents * shares / jnp.maximum(weights, 1e-300), weights, shares


class Saddle(NamedTuple):
    """A stationary point of S on fixed sites."""

    tilts: tuple[np.ndarray, ...]  # Λˡ of all layers but the last
    kernels: tuple[np.ndarray, ...]  # Φˡ of all layers but the last
    problem: Problem
    maximum: Maximum
    action: float
    sweeps: int
    settled: bool

    @property
    def all_tilts(self) -> tuple[np.ndarray, ...]:
        """Λˡ of all layers; that of the last one is γ²ααᵀ."""
        alpha = self.maximum.alpha
        return (*self.tilts, self.problem.gamma**2 * alpha @ alpha.T)


class Nested(NamedTuple):
    """The problem on fixed sites."""

    layers: tuple[Neurons, ...]
    first: First
    drawn: tuple[Sites, ...]
    fit: Fit
    gamma: float

    @property
    def sites(self) -> tuple[Drawn, ...]:
        """Sites of all layers."""
        return tuple(Drawn(each.xi, each.log_weights) for each in self.drawn)

    def kernels(self, tilts: Any) -> list[Any]:
        """Return A and Φˡ of all layers but the last."""
        found: list[Any] = [self.first]
        for layer, tilt, at in zip(self.layers, tilts, self.sites, strict=False):
            found.append(kernel_behind(layer, found[-1], tilt, at))
        return found

    def last(self, before: Any) -> Problem:
        """Return the concave problem of the last layer."""
        layer, at = self.layers[-1], self.drawn[-1]
        roots = np.asarray(jnp.linalg.cholesky(before))
        if not np.isfinite(roots).all():
            raise np.linalg.LinAlgError("the kernel of a hidden layer is singular")
        phi = layer.std * np.asarray(layer.phi(at.xi[:, : len(roots)] @ roots.T))
        missing = at.missing(np.asarray(prior_behind(layer, before)), phi)
        return Problem(at, phi, missing, self.fit, self.gamma, 1.0)

    def swept(self, tilts: Any, point: Point) -> tuple[list[Any], list[Any], Problem, Maximum]:
        """Return kernels forward, the maximum of the last layer, and tilts backward."""
        kernels = self.kernels(tilts)
        problem = self.last(kernels[-1])
        found = maximise(problem, point)
        last = self.gamma**2 * found.alpha @ found.alpha.T
        behind = tilts_behind(self.layers, kernels[1:], (*tilts[1:], last), self.sites)
        return kernels, list(behind), problem, found

    def solve(self, start: Any, point: Point, rtol: float = SETTLED) -> Saddle:
        """Return the stationary point that Anderson's iteration reaches."""
        samples = self.fit.shape[0]
        shape = (len(self.layers) - 1, samples, samples)
        kept: list[Any] = [point]

        def step(flat: np.ndarray) -> np.ndarray:
            found = self.swept(flat.reshape(shape), kept[0])
            kept[:] = [found[-1].point, found]
            return np.asarray(found[1]).ravel()

        flat, sweeps, settled = anderson(step, np.asarray(start, float).ravel(), rtol)
        tilts = flat.reshape(shape)
        kernels, _, problem, maximum = kept[1]
        action = maximum.action
        for layer, before, tilt, kernel, at in zip(
            self.layers, kernels, tilts, kernels[1:], self.sites, strict=False
        ):
            action += float(np.sum(tilt * kernel) / 2 - value(layer, before, tilt, at))
        matrices = tuple(np.asarray(each) for each in kernels[1:])
        done = settled and maximum.settled
        return Saddle(tuple(tilts), matrices, problem, maximum, action, sweeps, done)


def anderson(
    step: Callable[[np.ndarray], np.ndarray], start: np.ndarray, rtol: float
) -> tuple[np.ndarray, int, bool]:
    """Return a fixed point by Anderson's iteration, the number of steps, and whether it ended."""
    points: list[np.ndarray] = []
    steps: list[np.ndarray] = []
    x, moved, retreats = start, start, 0
    for sweep in range(1, SWEEPS + 1):
        try:
            with np.errstate(all="ignore"):
                moved = step(x) - x
            usable = bool(np.isfinite(moved).all())
        except np.linalg.LinAlgError:
            usable = False
        if not usable:
            retreats += 1
            if retreats > RETREATS or (not points and not x.any()):
                raise np.linalg.LinAlgError("no average over neurons is finite")
            x = (x + points[-1]) / 2 if points else x / 2
            points, steps = points[-1:], steps[-1:]
            continue
        points, steps = [*points[-MEMORY:], x], [*steps[-MEMORY:], moved]
        if np.linalg.norm(moved) <= rtol * np.linalg.norm(x + moved) + 1e-300:
            return x, sweep, True
        if len(points) == 1:
            x = x + moved / 2
            continue
        of_steps, of_points = np.diff(steps, axis=0).T, np.diff(points, axis=0).T
        shares = np.linalg.lstsq(of_steps, moved, rcond=WEIGHT)[0]
        x = x + moved - (of_points + of_steps) @ shares
    return points[-1], SWEEPS, False
