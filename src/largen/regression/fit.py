"""Maximum-likelihood fits of σ_w, σ_b and the noise to given targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import NumericalFailure, one_of
from largen.interrupts import check, interruptible
from largen.kernels.hyperparameters import Hyperparameters, with_stds
from largen.parameterizations import Parameterization
from largen.regression.likelihood import PRIORS, evidence
from largen.scalars import flag, integer, real

_RANGE = np.log(1e3)  # largest change of log σ_w and log σ_b from their initial values
_NOISE_RANGE = np.log(1e6)


@cites("lee2018deep", "bahri2022les")
@dataclass(frozen=True)
class LikelihoodFit:
    """A network whose constants were fitted; made by :func:`fit_likelihood`.

    Attributes
    ----------
    net, noise
        The network with the fitted σ_w and σ_b, and the variance of the noise.
    log_likelihood, start
        Log marginal likelihood at the fitted and at the initial constants.
    evaluations
        Number of evaluations of the likelihood and its gradient.
    status
        ``"ok"``; ``"at bound"`` if a constant reached its bound; ``"not converged"``;
        ``"inaccurate"`` if the fitted kernel misses the accuracy of :func:`largen.nngp_kernel`.
    at_bound
        Names of the constants at their bounds.
    """

    net: Layer
    noise: float
    log_likelihood: float
    start: float
    evaluations: int
    status: str
    at_bound: tuple[str, ...]


@interruptible()
def fit_likelihood(  # noqa: PLR0913  (data, and options of the model and the fit)
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: float = 0.1,
    kind: str = "nngp",
    shared: bool = True,
    fit_noise: bool = True,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> LikelihoodFit:
    """Choose σ_w, σ_b and the noise by their marginal likelihood (type-II maximum).

    Ascends :func:`largen.regression.log_likelihood` (Bahri and Hanin, Les Houches lectures, eq.
    (33)) in the logarithms of the constants by L-BFGS. It returns the local maximum reached from
    the constants of ``net``. Biases of standard deviation 0 stay 0.

    Parameters
    ----------
    net
        The architecture, whose σ_w and σ_b are the initial values.
    x, y
        Samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output).
    noise
        Initial σ_n² > 0: a variance, added to the diagonal as it is.
    kind
        The prior's kernel: ``"nngp"``, or ``"ntk-gp"`` for the tangent kernel, the prior of the
        linearised network.
    shared
        Whether all σ_w share one factor and all σ_b another; otherwise each has its own factor.
    fit_noise
        Whether the noise is fitted as well.
    mask, param
        As in :func:`largen.posterior`.
    max_steps
        Maximum number of steps.
    throw
        Whether to raise if ``max_steps`` do not suffice or the fitted kernel is not accurate;
        otherwise the status reports it.

    Raises
    ------
    NumericalFailure
        If the kernel is singular at the initial constants, or the maximum is not reached.
    InvalidInput
        For wrong shapes, also of a mask, NaN, an unknown kind, or a noise that is not positive.
    NoTheory
        For ``"ntk-gp"`` as in :func:`largen.regression.log_likelihood`.

    Notes
    -----
    σ_w and σ_b stay within a factor of 1000 of their initial values, the noise within 10⁶: for
    targets without noise, for example, the likelihood grows without bound as σ_n² → 0.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.linspace(-2, 2, 20)[:, None]
    >>> net = lg.mlp(1, "erf", bias_std=1.0)
    >>> fit = lg.regression.fit_likelihood(net, x, 1 + np.cos(x[:, 0]), noise=0.01, fit_noise=False)
    >>> round(fit.start, 2), round(fit.log_likelihood, 2), fit.status
    (7.65, 9.87, 'ok')
    >>> round(fit.net.layers[0].weight_std, 2), round(fit.net.layers[0].bias_std, 2)
    (1.16, 2.16)
    """
    of = evidence(net, x, y, param, mask, one_of("kind", kind, PRIORS))
    throw = flag("throw", throw)
    variance = real("noise", noise, above=0)
    steps = integer("max_steps", max_steps, at_least=1)
    groups = groups_of(of.given.names, flag("shared", shared))
    fit_noise = flag("fit_noise", fit_noise)
    start, _, _ = of.at(of.given.stds, variance)
    if not np.isfinite(start):
        raise NumericalFailure(
            f"fit_likelihood: the {PRIORS[kind]} of {len(of.x)} inputs with noise = {variance:g} "
            "is not positive in float64; start from a larger noise, or drop rows that are equal."
        )
    ascent = ascend(net, of, "noise", variance, groups, fit_noise, steps)
    fit = LikelihoodFit(*ascent[:3], start, *ascent[3:])
    final = evidence(fit.net, x, y, param, mask, kind)
    # With the methods that the likelihood was computed by.
    words = final._replace(given=final.given._replace(program=of.given.program)).inaccuracy()
    if words is not None:
        fit = replace(fit, status="inaccurate")
    elif fit.status == "not converged":
        words = (
            f"fit_likelihood: no maximum within {steps} steps; the log likelihood rose from "
            f"{start:.6g} to {fit.log_likelihood:.6g}. Take more max_steps, or start from the "
            "result."
        )
    if words is not None and throw:
        raise NumericalFailure(words, fit)
    return fit


@runtime_checkable
class Objective(Protocol):
    """A function of ``size`` terms of standard deviations and one further positive number."""

    @property
    def given(self) -> Hyperparameters:
        """The network."""
        ...

    @property
    def size(self) -> int:
        """Number of terms in the objective."""
        ...

    def at(self, stds: np.ndarray, number: float, /) -> tuple[float, np.ndarray, float]:
        """Return the value and its derivatives in the standard deviations and in the number."""
        ...


class Ascent(NamedTuple):
    """The maximum of an objective; see :class:`LikelihoodFit` for the fields."""

    net: Layer
    number: float
    value: float
    evaluations: int
    status: str
    at_bound: tuple[str, ...]


def groups_of(names: tuple[str, ...], shared: bool) -> np.ndarray:
    """Return the index of the factor that multiplies each constant, (name,)."""
    if not shared:
        return np.arange(len(names))
    kinds = [name.rsplit(".", 1)[1] for name in names]
    return np.unique(kinds, return_inverse=True)[1]


def ascend(
    net: Layer, of: Objective, name: str, number: float, groups: np.ndarray, free: bool, steps: int
) -> Ascent:
    """Ascend an objective in the logarithms of its constants.

    ``number``, ``name``: the further constant, a noise or a time, which is fitted if ``free``;
    ``groups``: the index of the factor that multiplies each standard deviation.
    """
    from scipy.optimize import minimize

    count, size = groups.max() + 1, of.size

    def constants(logs):
        now = number * np.exp(logs[count]) if free else number
        return of.given.stds * np.exp(logs[groups]), now

    def cost(logs):
        check()
        stds, now = constants(logs)
        value, slopes, by_number = of.at(stds, now)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(logs)
        gradient = np.bincount(groups, slopes * stds, minlength=len(logs))
        if free:
            gradient[count] = by_number * now
        return -value / size, -gradient / size

    reach = np.array([_RANGE] * count + [_NOISE_RANGE] * free)
    optimum = minimize(
        cost,
        np.zeros_like(reach),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(-reach, reach, strict=True)),
        options={"maxiter": steps, "ftol": 1e-12, "gtol": 1e-7},
    )
    stds, now = constants(optimum.x)
    fitted = with_stds(net, dict(zip(of.given.names, stds.tolist(), strict=True)))
    stopped = np.abs(optimum.x) > reach - 1e-9
    at_bound = [name for name, group in zip(of.given.names, groups, strict=True) if stopped[group]]
    at_bound += [name] if free and stopped[count] else []
    status = "at bound" if at_bound else "ok"
    if optimum.status == 1 or not np.isfinite(optimum.fun):
        status = "not converged"
    value = -float(optimum.fun) * size
    return Ascent(fitted, float(now), value, int(optimum.nfev), status, tuple(at_bound))
