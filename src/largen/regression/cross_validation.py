"""Constants chosen by generalised cross-validation: σ_w, σ_b, and the ridge or the time.

Trained networks have no marginal likelihood. Their predictions at the P training samples are linear
in the targets, f = (1 − r(Θ))y with r(λ) = σ²/(λ + σ²) for a ridge σ² and r(λ) = e^(−λt/P) after a
time t, and the error at unseen samples is estimated by generalised cross-validation (Golub, Heath
and Wahba 1979),

    V = P |r(Θ)y|²/(tr r(Θ))²,

the leave-one-out mean squared error with each sample's leverage replaced by the mean leverage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from largen.architectures import Layer
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.interrupts import interruptible
from largen.kernels.hyperparameters import Hyperparameters
from largen.parameterizations import Parameterization
from largen.regression.fit import ascend, groups_of
from largen.regression.likelihood import Evidence, evidence
from largen.scalars import flag, integer, real

KINDS = ("nngp", "ntk")


@dataclass(frozen=True)
class CrossValidationFit:
    """A network whose constants were fitted; made by :func:`fit_cross_validation`.

    Attributes
    ----------
    net
        The network with the fitted σ_w and σ_b.
    noise, time
        The ridge and the time: the fitted one is a number, the other None.
    error, start
        V, the estimated mean squared error of a prediction, at the fitted and at the initial
        constants.
    evaluations, status, at_bound
        As in :class:`largen.regression.LikelihoodFit`.
    """

    net: Layer
    noise: float | None
    time: float | None
    error: float
    start: float
    evaluations: int
    status: str
    at_bound: tuple[str, ...]


class Validation(NamedTuple):
    """−½P log V times the number of outputs, as a function of standard deviations and number."""

    of: Evidence
    kind: str
    flow: bool

    @property
    def given(self) -> Hyperparameters:
        """The network."""
        return self.of.given

    @property
    def size(self) -> int:
        """Number of targets."""
        return self.of.size

    def at(self, stds: np.ndarray, number: float) -> tuple[float, np.ndarray, float]:
        """Return the value and its derivatives in standard deviations and in the ridge or time."""
        return self.of.derivatives(_BY_FLOW if self.flow else _BY_RIDGE, self.kind, stds, number)


@interruptible()
def fit_cross_validation(  # noqa: PLR0913  (data, and options of the model and the fit)
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: float | None = None,
    time: float | None = None,
    kind: str = "ntk",
    shared: bool = True,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> CrossValidationFit:
    """Choose σ_w, σ_b and the ridge, or the time of training, by generalised cross-validation.

    Descends V = P |r(Θ)y|²/(tr r(Θ))² (Golub, Heath and Wahba 1979) in the logarithms of the
    constants by L-BFGS, with r(λ) = σ²/(λ + σ²) for the ridge ``noise`` and r(λ) = e^(−λt/P) for
    gradient flow until ``time``. It returns the local minimum reached from ``net``'s constants.

    Parameters
    ----------
    net
        The architecture, whose σ_w and σ_b are the initial values.
    x, y
        Samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output); squared errors of outputs add up.
    noise
        Initial σ² > 0, the ridge of :func:`largen.posterior`; give either this or ``time``.
    time
        Initial η₀t > 0, the time of :func:`largen.regression.flow_posterior`.
    kind
        The kernel: ``"ntk"`` or ``"nngp"``.
    shared
        Whether all σ_w share one factor and all σ_b another; otherwise each has its own factor.
    mask, param
        As in :func:`largen.posterior`. Relative learning rates are not
        fitted.
    max_steps
        Maximum number of steps.
    throw
        Whether to raise if ``max_steps`` do not suffice; otherwise the status reports it.

    Raises
    ------
    InvalidInput
        For wrong shapes, also of a mask, NaN, targets that are all 0, a number that is not
        positive, or if both or neither of ``noise`` and ``time`` are given.
    NoTheory
        If learning rates depend on σ_w, as in :func:`largen.standard`.
    NumericalFailure
        If the minimum is not reached.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 24)[:, None]
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * np.cos(40 * x[:, 0])
    >>> fit = lg.regression.fit_cross_validation(lg.mlp(1, "erf", bias_std=1.0), x, y, noise=1.0)
    >>> bool(fit.error < 0.2 * fit.start), fit.time
    (True, None)
    """
    if (noise is None) == (time is None):
        raise InvalidInput("noise and time: wanted one of them, the ridge or when to stop.")
    one_of("kind", kind, KINDS)
    flow, name = noise is None, "time" if noise is None else "noise"
    number = real(name, time if flow else noise, above=0)
    steps = integer("max_steps", max_steps, at_least=1)
    shared, throw = flag("shared", shared), flag("throw", throw)
    samples = evidence(net, x, y, param, mask, kind)
    if not np.any(samples.y):
        raise InvalidInput("y: all targets are 0, which any constants predict without error.")
    of = Validation(samples, kind, flow)
    size = of.size / 2
    start, _, _ = of.at(of.given.stds, number)
    if not np.isfinite(start):
        raise NumericalFailure(
            f"fit_cross_validation: with {name} = {number:g} nothing is left of the targets; "
            f"start from a {'shorter time' if flow else 'larger noise'}."
        )
    groups = groups_of(of.given.names, shared)
    ascent = ascend(net, of, name, number, groups, True, steps)
    fit = CrossValidationFit(
        ascent.net,
        None if flow else ascent.number,
        ascent.number if flow else None,
        float(np.exp(-ascent.value / size)),
        float(np.exp(-start / size)),
        ascent.evaluations,
        ascent.status,
        ascent.at_bound,
    )
    if fit.status == "not converged" and throw:
        raise NumericalFailure(
            f"fit_cross_validation: no minimum within {steps} steps; the error fell from "
            f"{fit.start:.4g} to {fit.error:.4g}. Take more max_steps, or start from the result.",
            fit,
        )
    return fit


def _validation(
    flow: bool,
    matrix: Float[Array, "sample sample"],
    y: Float[Array, "sample output"],
    given: Bool[Array, " sample"],
    number: Any,
) -> tuple[Any, Any, Any]:
    """Return the value and its derivatives; padding has eigenvalue 0, where r = 1, and target 0."""
    values, vectors = jnp.linalg.eigh(matrix)
    samples, outputs = jnp.sum(given), y.shape[1]
    rate = number / samples

    def left(values, number):
        if flow:
            return jnp.exp(-jnp.maximum(values, 0) * number / samples)
        return number / (jnp.maximum(values, 0) + number)

    r = left(values, number)
    slope = -rate * r if flow else -(r**2) / number
    by_number = jax.jvp(lambda s: left(values, s), (number,), (jnp.ones_like(number),))[1]
    seen = vectors.T @ y
    power = jnp.sum(seen**2, axis=1)
    own = jnp.arange(len(y)) >= len(y) - samples  # eigenvalues ascend: those of padding come first
    missed, total = jnp.sum(r**2 * power), jnp.sum(r, where=own)
    # d|r(Θ)y|² = tr(G dΘ), in the eigenbasis by divided differences of r² (Daleckii and Krein).
    apart = values[:, None] - values
    close = jnp.abs(apart) < 1e-6 * jnp.maximum(jnp.abs(values[-1]), 1e-300)
    quotient = (r[:, None] ** 2 - r**2) / jnp.where(close, 1, apart)
    middle = (r * slope)[:, None] + r * slope
    inner = jnp.where(close, middle, quotient) * (seen @ seen.T)
    by_matrix = inner / missed - 2 * jnp.diag(slope) / total
    by_matrix = -outputs * samples / 2 * vectors @ by_matrix @ vectors.T
    along = jnp.sum(2 * r * by_number * power) / missed - 2 * jnp.sum(by_number) / total
    value = -outputs * samples / 2 * jnp.log(samples * missed / total**2)
    return value, by_matrix, -outputs * samples / 2 * along


_BY_FLOW, _BY_RIDGE = partial(_validation, True), partial(_validation, False)
