"""The Gaussian process of networks over initialisations, after a finite time of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import as_array
from largen.bibliography import cites
from largen.errors import InvalidInput, NumericalFailure
from largen.interrupts import interruptible
from largen.kernels.masked import masked
from largen.parameterizations import Parameterization
from largen.regression.checks import sample_weights, training_inputs, training_targets
from largen.regression.conditioning import Relaxation, relax
from largen.regression.factor import cause_of
from largen.regression.gaussian_process import Posterior, matrices
from largen.regression.noise import best_time
from largen.scalars import flag, real


@cites("lee2019wide", "bahri2022les")
@dataclass(frozen=True, eq=False, repr=False)
class FlowPosterior(Posterior):
    """Networks trained by gradient flow for a time η₀t; made by :func:`flow_posterior`.

    Attributes
    ----------
    time
        η₀t, one number or (time,).
    """

    time: Any

    def __repr__(self) -> str:
        times = f"{np.size(self.time)} times" if np.ndim(self.time) else f"time {self.time:g}"
        return f"FlowPosterior({times} on {len(self.x)} samples, {self.status}, {self.net!r})"


@interruptible()
def flow_posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    time: Any,
    weights: Any = None,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    throw: bool = True,
) -> FlowPosterior:
    """Return the Gaussian process of networks after a time of gradient flow, in the kernel limit.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90), for the loss (1/P) Σ ½(f − y)². With
    the eigenmodes Θ = UΛUᵀ of the P training samples,

        f(t) = f₀ + B(t)(y − f₀),   B(t) = Θ* U g(Λ) Uᵀ,   g(λ) = (1 − e^(−λη₀t/P))/λ,

    so that the mean over initialisations is By and the covariance K** − BK*ᵀ − K*Bᵀ + BKBᵀ. At
    infinite time g = 1/λ, which gives the posterior of kind ``"ntk"`` without noise.

    Parameters
    ----------
    net
        The architecture.
    x, y
        Training samples, (sample, input), and targets, (sample,) or (sample, output).
    time
        η₀t ≥ 0, possibly infinite: one number, or (time,), which adds a leading axis of times to
        all moments. At 0 they are those of the prior. ``"auto"`` minimises the error of generalised
        cross-validation, as defined in :func:`largen.regression.fit_cross_validation`, or at late
        times, where it rests on the few modes that are left, its 95 % upper limit.
    weights
        Weights w ≥ 0 of the samples in the loss (1/Σw) Σ ½w(f − y)², (sample,); equal if None.
    mask, param
        As in :func:`largen.posterior`.
    throw
        Whether to raise for a singular kernel at an infinite time; otherwise its null modes keep
        their initial values and the status is ``"singular"``. Finite times need no inverse.

    Returns
    -------
    FlowPosterior
        With the methods ``predict`` and ``sample`` of :class:`largen.regression.Posterior`.

    Raises
    ------
    InvalidInput
        For wrong shapes, NaN, a negative time, or weights that are negative or all zero.
    NumericalFailure
        If the kernel misses the accuracy of :func:`largen.kernel`, or is singular at an infinite
        time.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.eye(2), np.array([1.0, -1.0])
    >>> given = lg.regression.flow_posterior(lg.mlp(1, "erf"), x, y, time=1.0)
    >>> given.predict(x).mean.round(3)
    array([ 0.296, -0.296])
    >>> given = lg.regression.flow_posterior(lg.mlp(1, "erf"), x, y, time=[1.0, 10.0, np.inf])
    >>> given.predict(x).mean.round(3)
    array([[ 0.296, -0.296],
           [ 0.97 , -0.97 ],
           [ 1.   , -1.   ]])
    """
    rows = training_inputs(x)
    targets = training_targets(y, len(rows))
    weight = sample_weights(weights, len(rows))
    given, throw = masked("mask", mask, rows), flag("throw", throw)
    tangent, prior = matrices(net, given, "ntk", param)
    columns = targets.reshape(len(rows), -1)
    times = training_times(time, tangent, columns, weight)
    relaxation = relax(tangent, prior, columns, times, weight)
    result = FlowPosterior(net, param, "ntk", rows, targets, given.mask, relaxation, times)
    if relaxation.status != "ok" and throw:
        cause = cause_of(given.x, tangent, "take finite times")
        raise NumericalFailure(f"flow_posterior: {singular_at_infinity(relaxation, cause)}", result)
    return result


def training_times(time: Any, tangent: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Any:
    """Check the argument ``time``: a number ≥ 0, an array (time,), or ``"auto"``."""
    if isinstance(time, str):
        if time != "auto":
            raise InvalidInput(f"time: wanted a time ≥ 0 or 'auto', got {time!r}.")
        seen = weights > 0
        return best_time(tangent[np.ix_(seen, seen)], y[seen], weights[seen])
    # NumPy has no number of axes for ragged lists, which are refused below.
    if not isinstance(time, list | tuple) and np.ndim(time) == 0:
        return np.inf if is_infinite(time) else real("time", time, at_least=0)
    try:
        times = np.asarray(as_array("time", time), np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"time: wanted numbers ≥ 0, got {time!r}.") from None
    if times.ndim != 1 or not len(times) or not (times >= 0).all():  # false for NaN
        raise InvalidInput(f"time: wanted one number ≥ 0, or some of them, got {time!r}.")
    return times


def is_infinite(time: Any) -> bool:
    """Whether a time is +∞."""
    return isinstance(time, (float, np.floating)) and bool(np.isposinf(time))


def singular_at_infinity(relaxation: Relaxation, cause: str) -> str:
    """Return the error message for an infinite time with a singular tangent kernel."""
    return (
        f"after an infinite time the outputs need the inverse of the NTK, which is singular to "
        f"working precision: rank {relaxation.rank} of {len(relaxation.vectors)}, condition number "
        f"{relaxation.condition:.1e}. {cause}; throw=False leaves modes that are lost in rounding "
        "where they start."
    )
