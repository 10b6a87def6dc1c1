"""The posterior of a network: of a fixed kernel, or with moving features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.errors import one_of
from largen.interrupts import interruptible
from largen.parameterizations import Parameterization
from largen.regression.gaussian_process import KINDS, Posterior, fixed_posterior

if TYPE_CHECKING:
    from largen.regression.equilibrium import AdaptivePosterior, DeepLinearPosterior, DeepPosterior


@overload
def posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    kind: Literal["nngp", "ntk", "ntk-gp"],
    noise: ArrayLike | str = ...,
    weights: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    param: Parameterization | None = ...,
    throw: bool = ...,
) -> Posterior: ...
@overload
def posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    kind: None = ...,
    noise: ArrayLike | str = ...,
    weights: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    param: None = ...,
    throw: bool = ...,
) -> Posterior: ...
@overload
def posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    kind: str | None = ...,
    noise: ArrayLike | str = ...,
    weights: ArrayLike | None = ...,
    mask: ArrayLike | None = ...,
    param: Parameterization | None = ...,
    throw: bool = ...,
) -> Any: ...
@interruptible()
def posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    kind: str | None = None,
    noise: ArrayLike | str = 0.0,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
    throw: bool = True,
) -> Posterior | AdaptivePosterior | DeepPosterior | DeepLinearPosterior:
    """Condition the Gaussian process of an infinitely wide network on training samples.

    With A = K + σ_n² (``"nngp"``) or A = Θ + σ_n² (the others) on the training samples, and *
    for test samples (Bahri and Hanin, Les Houches lectures, eqs. (32) and (90)),

    ==========  =================================  ========================================
    kind        what it describes                  mean and covariance
    ==========  =================================  ========================================
    "nngp"      Bayesian inference with the        K*A⁻¹y, K** − K*A⁻¹K*ᵀ
                network as prior
    "ntk"       networks trained by gradient       Θ*A⁻¹y, K** − K*Bᵀ − BK*ᵀ + BKBᵀ
                flow for ever, over their          with B = Θ*A⁻¹
                initialisations
    "ntk-gp"    Bayesian inference with the        Θ*A⁻¹y, Θ** − Θ*A⁻¹Θ*ᵀ
                linearised network as prior
    ==========  =================================  ========================================

    ``"adaptive"`` is Bayesian inference where features move, as in :func:`largen.mean_field`: see
    :func:`largen.regression.adaptive_posterior`.

    Parameters
    ----------
    net
        The architecture.
    x, y
        Training samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output); outputs are independent of one another.
    kind
        See above; by default ``"adaptive"`` where features move at order one, and ``"nngp"``
        elsewhere.
    noise
        σ_n², the variance of the targets' noise: a number that is added to the diagonal of the
        kernel as it is, not relative to its trace, or one for each sample, (sample,). For
        ``"ntk"`` it is the ridge: the loss ½ Σ (f − y)² has the penalty ½ σ_n² |θ − θ(0)|² in
        weights of unit rate. ``"auto"`` chooses it from one eigendecomposition of the kernel: it
        maximises the marginal likelihood, or for ``"ntk"`` minimises the leave-one-out error.
    weights
        Weights ≥ 0 of the samples, (sample,): each divides the noise variance of its sample, which
        is equivalent to repeating it. Samples of weight 0 are not used. All are 1 by default.
    mask
        Which positions of each sample are present, Booleans (sample, *space), for samples of
        variable length; all by default. ``predict`` takes one for test samples.
    param
        The parameterization; :func:`largen.ntk` by default. See :func:`largen.kernel` for the
        definition of its NNGP kernel.
    throw
        Whether to raise for a singular kernel; otherwise the pseudo-inverse is used and the status
        is ``"singular"``.

    Returns
    -------
    Posterior
        With ``predict(x_test)``, ``sample(x_test, key=...)`` and ``log_likelihood``. All are
        computed in float64; results have the dtype of the inputs. For the kind ``"adaptive"`` an
        :class:`largen.regression.AdaptivePosterior`.

    Raises
    ------
    NumericalFailure
        If the condition number of A exceeds 1e12: the message gives its rank and equal rows.
        Regardless of ``throw``, if the kernel misses the accuracy of :func:`largen.kernel`.
    InvalidInput
        For wrong shapes, NaN, an unknown kind, or a negative noise.
    NoTheory
        For other kinds than ``"adaptive"`` where features move, and for networks that this kind is
        not implemented for.
    OutOfMemory
        If the kernel and its factor do not fit into memory.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(1, "erf")
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> given = lg.posterior(net, x, y, noise=0.01)
    >>> mean, variance, _ = given.predict(np.array([[1.0, 0.0], [3.0, 1.0]]))
    >>> mean.round(3), variance.round(3)
    (array([0.971, 0.888]), array([0.01 , 0.103]))
    >>> given.sample(x, key=0, draws=5).shape
    (5, 2)
    """
    if kind is None:
        moves = isinstance(param, Parameterization) and param.canonical_d > 0
        kind = "adaptive" if moves else "nngp"
    one_of("kind", kind, (*KINDS, "adaptive"))
    if kind != "adaptive":
        return fixed_posterior(net, x, y, kind, noise, weights, mask, param, throw)
    from largen.regression.equilibrium.posterior import weighted_posterior

    return weighted_posterior(net, x, y, noise, weights, mask, param, throw)
