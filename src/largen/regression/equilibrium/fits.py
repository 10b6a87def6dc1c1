"""What the training samples say of the outputs: squared errors, or any convex loss.

With the loss ℓ of a sample and κ, the posterior has exp(−(Nγ²/κ) Σ ℓ(f_μ)), and the dual problem
Fenchel's conjugate, −Σ ℓ*(−κα)/κ. The outputs g with −ℓ'(g) = κα are kept beside the dual variables
α: then ℓ*(−κα) = −κα·g − ℓ(g), which needs no conjugate, and steps in g never leave the domain of
ℓ*. With the curvatures H = ℓ''(g) a step of Newton's method is

    δα = W(g − f),   δg = f − g + Vδα,   W = (V + κH⁻¹)⁻¹ = √H(√H V √H + κ)⁻¹√H,

where H may be singular.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from largen.errors import InvalidInput
from largen.runs.losses import Loss, check_loss

# Moreau's parameters of losses with kinks, in units of outputs: from easy problems to the last one.
SMOOTHED = np.geomspace(1, 1e-6, 7)
FLAT = np.array([-2.3, -1.1, -0.37, 0.0, 0.41, 1.7, 2.9])  # outputs at which curvature is searched
STEPS_TO_HALF = 12
HALVINGS = 80  # of an interval in which a proximal point is searched


class Point(NamedTuple):
    """Dual variables, and the outputs g at which −ℓ'(g) = κα."""

    alpha: Float[np.ndarray, "sample output"]
    g: Float[np.ndarray, "sample output"]


class Inverse(NamedTuple):
    """W = (V + κH⁻¹)⁻¹ = AAᵀ, and log det(V + κ), or log det(1 + VH/κ) of other losses."""

    root: Float[np.ndarray, "number number_2"]  # A
    log_det: float

    @property
    def matrix(self) -> np.ndarray:
        """W."""
        return self.root @ self.root.T


@dataclass(frozen=True, eq=False)
class Squares:
    """ℓ = ½(f − y)², of any variance κ ≥ 0."""

    y: Float[np.ndarray, "sample output"]
    noise: Float[np.ndarray, " sample"]
    single: bool  # whether the output of a sample is a number

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of outputs."""
        return self.y.shape  # pyright: ignore[reportReturnType]

    # The relative step of α at which Newton's method stops; the next one would be about its square.
    rtol = 1e-9

    def start(self) -> Point:
        """Return where Newton's method begins."""
        return Point(np.zeros_like(self.y), self.y)

    def stages(self) -> tuple[Squares, ...]:
        """Return problems from an easy one to this one."""
        return (self,)

    def near(self, point: Point, stage: Fit) -> Point:
        """Return the point with the dual variables that a point of another stage has."""
        return point

    def halved(self, point: Point) -> Point:
        """Return a point of smaller dual variables."""
        return self.moved(point, -point.alpha / 2, point.g, 1.0)

    def moved(self, point: Point, step: np.ndarray, to_g: np.ndarray, length: float) -> Point:
        """Return the point after steps of α and g."""
        alpha = point.alpha + length * step
        return Point(alpha, self.y - self.noise[:, None] * alpha)

    def value(self, point: Point) -> float:
        """Return −Σ ℓ*(−κα)/κ."""
        return float(np.sum(point.alpha * (self.y + point.g)) / 2)

    def inverse(self, curvature: np.ndarray, point: Point) -> Inverse:
        """Return (V + κ)⁻¹ of a tensor V."""
        size = self.y.size
        noisy = curvature.reshape(size, size) + np.diag(np.repeat(self.noise, self.y.shape[1]))
        root = np.linalg.cholesky(noisy)
        log_det = 2 * float(np.sum(np.log(np.diag(root))))
        return Inverse(np.linalg.inv(root).T, log_det)

    def skewed(self, covariance: np.ndarray, point: Point) -> np.ndarray:
        """Return Σ ℓ'''Cov/κ, by which the mean of f moves at the order 1/N."""
        return np.zeros(0)

    def log_constant(self, unit: float) -> float:
        """Return what log p(y) has beside log det, with unit = γ²N."""
        return self.y.size * float(np.log(unit / (2 * np.pi))) / 2


@dataclass(frozen=True, eq=False)
class Convex:
    """Any convex loss, κ > 0."""

    loss: Loss
    targets: np.ndarray
    noise: Float[np.ndarray, " sample"]
    outputs: int
    single: bool  # whether the output of a sample is a number
    smoothed: float = 0.0  # Moreau's parameter, if the loss is linear between kinks

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and of outputs."""
        return len(self.targets), self.outputs

    def start(self) -> Point:
        """Return where Newton's method begins."""
        return self._at(np.zeros(self.shape))

    def _at(self, g: np.ndarray) -> Point:
        return Point(-self._parts(g)[1] / self.noise[:, None], g)

    def _parts(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ℓ, ℓ' and ℓ''."""
        with jax.enable_x64(True):
            return tuple(  # pyright: ignore[reportReturnType]
                np.asarray(part)
                for part in _parts(self._function, g, jnp.asarray(self.targets), self.smoothed)
            )

    @property
    def _function(self) -> _Given:
        return _Given(self.loss.sample, self.single, bool(self.smoothed))

    def stages(self) -> tuple[Convex, ...]:
        """Return problems from an easy one to this one."""
        if not self.smoothed:
            return (self,)
        return tuple(replace(self, smoothed=float(width)) for width in SMOOTHED)

    def near(self, point: Point, stage: Fit) -> Point:
        """Return the point with the dual variables that a point of another stage has."""
        if not (self.smoothed and isinstance(stage, Convex)):
            return point
        slopes = -point.alpha * self.noise[:, None]
        return self._at(point.g + (self.smoothed - stage.smoothed) * slopes)

    def halved(self, point: Point) -> Point:
        """Return a point of about half the dual variables, by short steps of Newton's method."""
        g, wanted = point.g, -point.alpha * self.noise[:, None] / 2
        for shortening in 0.9 ** np.arange(STEPS_TO_HALF):
            _, slopes, curvatures = self._parts(g)
            left = (slopes - wanted)[:, :, None]
            curvatures = curvatures + 1e-12 * np.eye(self.outputs)
            step = np.linalg.solve(curvatures, left)[:, :, 0]
            sizes = np.linalg.norm(step, axis=1, keepdims=True)
            g = g - step / np.maximum(sizes / shortening, 1)
        return self._at(g)

    def moved(self, point: Point, step: np.ndarray, to_g: np.ndarray, length: float) -> Point:
        """Return the point after steps of α and g."""
        return self._at(point.g + length * to_g)

    def value(self, point: Point) -> float:
        """Return −Σ ℓ*(−κα)/κ."""
        losses = self._parts(point.g)[0] / self.noise
        return float(np.sum(point.alpha * point.g) + np.sum(losses))

    def inverse(self, curvature: np.ndarray, point: Point) -> Inverse:
        """Return (V + κH⁻¹)⁻¹ of a tensor V."""
        rows, outputs = self.shape
        values, vectors = np.linalg.eigh(self._parts(point.g)[2])
        if values.min() < -1e-9 * max(values.max(), 1e-300):
            raise InvalidInput(
                f"loss: {self.loss.name} is not convex in the outputs, so that the posterior may "
                "have several solutions; wanted a convex one, such as 'logistic'."
            )
        half = (vectors * np.sqrt(np.maximum(values, 0))[:, None]) @ vectors.swapaxes(1, 2)
        inner = np.einsum("acd,adbe,bef->acbf", half, curvature, half, optimize=True)
        size, kappa = rows * outputs, np.repeat(self.noise, outputs)
        root = np.linalg.cholesky(inner.reshape(size, size) + np.diag(kappa))
        whitener = np.linalg.inv(root).T.reshape(rows, outputs, size)
        log_det = 2 * np.sum(np.log(np.diag(root))) - np.sum(np.log(kappa))
        return Inverse(np.einsum("acd,adk->ack", half, whitener).reshape(size, size), log_det)

    def skewed(self, covariance: np.ndarray, point: Point) -> np.ndarray:
        """Return Σ ℓ'''Cov/κ, by which the mean of f moves at the order 1/N."""
        own = np.einsum("acad->acd", covariance)
        with jax.enable_x64(True):
            found = _skewed(self._function, point.g, jnp.asarray(self.targets), own)
        return np.asarray(found) / self.noise[:, None]

    @property
    def rtol(self) -> float:
        """The relative step of α at which Newton's method stops."""
        return max(Squares.rtol, 1e-14 / self.smoothed) if self.smoothed else Squares.rtol

    def log_constant(self, unit: float) -> float:
        """Return what log E exp(−(Nγ²/κ) Σ ℓ) has beside log det."""
        return 0.0


Fit = Squares | Convex


def single(array: np.ndarray, fit: Fit) -> np.ndarray:
    """Return an array (sample, output) as the user has it, without outputs if there is one."""
    return array[:, 0] if fit.single else array


def fit_of(loss: Loss, targets: np.ndarray, noise: np.ndarray) -> Fit:
    """Return what samples say of the outputs, from checked arguments."""
    if loss.linear_residual:
        return Squares(targets.reshape(len(targets), -1), noise, targets.ndim == 1)
    classes = loss.targets == "class"
    shape = (int(targets.max()) + 1,) if classes else targets.shape[1:]
    found = Convex(loss, targets, noise, shape[0] if shape else 1, not shape)
    if loss.targets != "any":
        return found
    check_loss(loss, targets, shape)
    probes = np.broadcast_to(FLAT[:, None, None], (len(FLAT), *found.shape))
    parts = [found._parts(g) for g in probes]
    if not all(np.isfinite(part).all() for each in parts for part in each):
        raise InvalidInput(f"loss: {loss.name} or its derivatives are not finite.")
    if any(part[2].any() for part in parts):
        return found
    if found.shape[1] > 1:
        raise InvalidInput(
            f"loss: {loss.name} is linear between kinks, which is implemented for one output."
        )
    return replace(found, smoothed=float(SMOOTHED[-1]))


@dataclass(frozen=True)
class _Given:
    """The loss of an output (output,), smoothed if it has kinks alone."""

    sample: Callable[[Any, Any], Any]
    single: bool
    smoothed: bool

    def plain(self, g: Any, y: Any) -> Any:
        return self.sample(g[0] if self.single else g, y)

    def parts(self, g: Any, y: Any, width: Any) -> tuple[Any, Any, Any]:
        """Return ℓ, ℓ' and ℓ'': of min_v ℓ(v) + (g − v)²/2ε where it is smoothed (Moreau 1965)."""
        slope = jax.grad(self.plain)
        if not self.smoothed:
            return self.plain(g, y), slope(g, y), jax.hessian(self.plain)(g, y)

        def proximal(at: Any) -> Any:
            reach = 1 + jnp.abs(slope(g + 1.0, y)) + jnp.abs(slope(g - 1.0, y))

            def halve(_: Any, ends: Any) -> Any:
                low, high = ends
                middle = (low + high) / 2
                above = middle + width * slope(middle, y) > at
                return jnp.where(above, low, middle), jnp.where(above, middle, high)

            ends = at - 8 * width * reach, at + 8 * width * reach
            return sum(jax.lax.fori_loop(0, HALVINGS, halve, ends)) / 2

        v = proximal(g)
        # At a kink v stays, with a slope between those beside it; elsewhere it moves as much as g.
        found, beside = (g - v) / width, 1e-3 * width
        left, right = slope(v - beside, y), slope(v + beside, y)
        margin = 1e-6 * (right - left)
        stays = (left + margin < found) & (found < right - margin)
        value = self.plain(v, y) + jnp.sum((g - v) ** 2) / (2 * width)
        return value, found, (stays / width)[:, None]


@partial(jax.jit, static_argnums=0)
def _parts(function: _Given, g: Any, targets: Any, width: Any) -> tuple[Any, Any, Any]:
    return jax.vmap(function.parts, (0, 0, None))(g, targets, width)


@partial(jax.jit, static_argnums=0)
def _skewed(function: _Given, g: Any, targets: Any, covariance: Any) -> Any:
    """Return the derivatives of Σ H·Cov along the outputs."""

    def traced(g: Any, y: Any, own: Any) -> Any:
        return jnp.sum(jax.hessian(function.plain)(g, y) * own)

    return jax.vmap(jax.grad(traced))(g, targets, covariance)
