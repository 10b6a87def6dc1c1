"""The Gaussian process of networks over their initialisations, at a time of their training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import real
from largen.kernels.masked import kernel_of, masked
from largen.kernels.modes import decompose, flow_factors
from largen.kernels.nngp_ntk import kernel
from largen.kernels.prediction.doors import sample_weights, training_inputs, training_targets
from largen.kernels.prediction.factor import Factor, solve
from largen.kernels.prediction.gaussian_process import Posterior
from largen.kernels.prediction.padding import filled
from largen.parameterizations import Parameterization


@dataclass(frozen=True, eq=False, repr=False)
class FlowPosterior(Posterior):
    """Networks trained for a time η₀t; made by :func:`flow_posterior`.

    Attributes
    ----------
    time
        η₀t.
    """

    time: float

    @property
    def status(self) -> str:
        """``"ok"``: at a finite time nothing is inverted, and equal rows do no harm."""
        return "ok"


def flow_posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    time: Any,
    weights: Any = None,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
) -> FlowPosterior:
    """Return the Gaussian process of networks after a time of gradient flow, in the kernel limit.

    Bahri and Hanin, Les Houches lectures, eqs. (87)-(90), for the loss (1/P) Σ ½(f − y)². With
    the eigenmodes Θ = UΛUᵀ of the P training samples,

        f(t) = f₀ + B(t)(y − f₀),   B(t) = Θ* U g(Λ) Uᵀ,   g(λ) = (1 − e^(−λη₀t/P))/λ,

    so that the mean over initialisations is By and the covariance K** − BK*ᵀ − K*Bᵀ + BKBᵀ.

    Parameters
    ----------
    net
        The architecture.
    x, y
        Training samples, (sample, input), and targets, (sample,) or (sample, output).
    time
        η₀t > 0.
    weights
        Of the samples' terms in the loss (1/Σw) Σ ½w(f − y)², (sample,), ≥ 0; all alike if None.
    mask
        Which positions of each sample are there, as in :func:`largen.posterior`.
    param
        The parameterization; :func:`largen.ntk` by default.

    Returns
    -------
    FlowPosterior
        With ``predict`` and ``sample`` of a :class:`largen.kernels.prediction.Posterior`.

    Raises
    ------
    InvalidInput
        For wrong shapes, NaN, a time or weights that are not positive.
    NumericalFailure
        If the kernel is not accurate, as :func:`largen.kernel` says.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.eye(2), np.array([1.0, -1.0])
    >>> given = lg.flow_posterior(lg.mlp(1, "erf"), x, y, time=1.0)
    >>> given.predict(x).mean.round(3)
    array([ 0.296, -0.296])
    """
    t = real("time", time, above=0)
    rows = training_inputs(x)
    targets = training_targets(y, len(rows))
    weight = sample_weights(weights, len(rows))
    samples = slice(len(rows))
    given = masked("mask", mask, rows)
    both = kernel_of(kernel, net, filled(given, np.float64), param=param)
    prior, tangent = (k[samples, samples] for k in both)
    with jax.enable_x64(True):
        # ẏ = −ΘD(f − y)/Σw with D = diag w: the modes are those of D^½ΘD^½.
        scale = jnp.sqrt(jnp.asarray(weight))
        modes = decompose(scale[:, None] * tangent * scale, jnp.zeros((0, len(rows))))
        gained = flow_factors(modes.values, jnp.asarray([t / weight.sum()])).integral[0]
        root = np.asarray(scale[:, None] * modes.vectors * jnp.sqrt(gained))
        largest, smallest = float(modes.values[-1]), float(modes.values[0])
        condition = largest / smallest if smallest > 0 else float("inf")
        factor = Factor(root, True, condition, len(rows), -float("inf"))
        columns = jnp.asarray(targets.reshape(len(rows), -1))
        solved = np.asarray(solve(jnp.asarray(root), True, columns))
    noise = np.zeros(())
    return FlowPosterior(
        net, param, "ntk", rows, targets, noise, factor, solved, prior, given.mask, t
    )
