"""The posterior of a network whose features move, by the theory that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import as_array, known
from largen.errors import InvalidInput
from largen.interrupts import interruptible
from largen.parameterizations import Parameterization
from largen.progress import Report, check_progress
from largen.regression.checks import (
    noise_variance,
    sample_weights,
    training_inputs,
    training_targets,
)
from largen.regression.equilibrium.deep import DeepPosterior, solve_deep
from largen.regression.equilibrium.fits import fit_of
from largen.regression.equilibrium.linear import DeepLinearPosterior, solve_linear
from largen.regression.equilibrium.network import check_noise, equilibrium_of
from largen.regression.equilibrium.one_layer import AdaptivePosterior, solve_one_layer
from largen.runs.losses import Loss, as_loss, check_targets
from largen.scalars import flag, integer, random_key

FEWEST_SITES, MOST_SITES = 64, 2**22


@interruptible()
def adaptive_posterior(  # noqa: PLR0913  (data, and options of the model and the fit)
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: ArrayLike,
    param: Parameterization,
    loss: str | Loss | Callable[[Any, Any], Any] = "mse",
    sites: int = 2**13,
    replicates: int = 4,
    key: Any = 0,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> AdaptivePosterior | DeepPosterior | DeepLinearPosterior:
    """Condition a wide network in mean-field scaling on samples, with features that move.

    The posterior of all weights, with N(0, 1) weights a priori, f = w·φ(h)/(γ₀N) and noise of the
    variance κ/(γ₀²N),

        p(θ|y) ∝ exp(−½|θ|² − (Nγ₀²/2κ) Σ_μ (f_μ − y_μ)²),

    is also where Langevin dynamics at a temperature equal to the weight decay comes to rest. As
    N → ∞ at fixed γ₀ and samples, neurons are independent under a tilted prior (Lauditi, Bordelon
    and Pehlevan 2025; Rubin et al. 2025),

        p(h, z) ∝ N(h; 0, C) N(z; 0, 1) exp(γ₀ z α·φ(h)),   f = ⟨zφ⟩/γ₀,   α = (y − f)/κ,

    and α is the only maximum of the concave function

        D(α) = γ₀²(α·y − ½κ|α|²) − log E exp(½γ₀²(α·φ(h))²),

    by Newton's method. Another convex loss has Σ ℓ(f_μ) in place of ½ Σ (f_μ − y_μ)², its conjugate
    in D, and α = −ℓ'(f)/κ. In several hidden layers the neurons of the layer l have fields
    N(0, Φˡ⁻¹) a priori, tilted by exp(½φᵀΛˡφ), with

        Φˡ = ⟨φφᵀ⟩_l,   Λᴸ = γ₀²ααᵀ,   Λˡ⁻¹ = (Φˡ⁻¹)⁻¹(⟨hhᵀ⟩_l − Φˡ⁻¹)(Φˡ⁻¹)⁻¹,

    which is ⟨aaᵀ + Λˡφ'φ'ᵀ + diag(φ''Λˡφ)⟩_l with a = φ'Λˡφ, elementwise, where φ' has no jumps,
    and the last layer is as above with C → Φᴸ⁻¹: Anderson's iteration for Λˡ, raising γ₀ in stages.
    There may be several solutions; the lowest action has the limit, and the
    :class:`DeepPosterior` reports all that were found. Linear networks of any depth are solved at
    every width, by one quadrature (Hanin and Zlokapa 2023): the result is then a
    :class:`DeepLinearPosterior`. γ₀ → 0 is :func:`largen.posterior` of fixed kernels.

    Parameters
    ----------
    net
        Fully connected, without biases behind the first layer: one hidden layer, several with an
        activation each and one output, or a linear network with one output.
    x, y
        Training samples, (sample, input), and targets, (sample,) or (sample, output).
    noise
        κ, one number or one for each sample, in the units of the kernel Φ = φ·φ/N, as in
        :func:`largen.posterior`.
    param
        A parameterization with γ = γ₀√N: ``lg.mean_field(gamma)``.
    loss
        ``"mse"``, ``"logistic"``, ``"cross_entropy"``, or a convex function ℓ(f, y) of the output
        and the target of one sample, as in :class:`largen.Run`; hinges are smoothed over 1e-7.
        Squares may have κ = 0. Targets are those of the loss, such as classes 0 … C−1.
    sites
        About how many quasi-random neurons of a layer averages are taken over. The error of the
        results falls a little faster than the inverse root of it. P samples of several hidden
        layers take at least 16P, and 4P² if φ' has jumps.
    replicates
        Number of scramblings of the sites, at least 2, whose spread is the reported error.
    key
        A JAX key or an integer.
    throw
        Whether to raise if the result is not to be trusted; otherwise its status says so.
    progress
        Progress in solutions of several hidden layers: a bar or lines if None, as in
        :func:`largen.train`; or a function of (done, total).

    Raises
    ------
    NumericalFailure
        If fewer than 1 % of the sites carry the weight, if an iteration does not converge, or if
        V + κ is singular.
    NoTheory
        For other networks, activations that grow faster than their argument, and parameterizations
        in which features do not move at order one.
    InvalidInput
        For wrong shapes, NaN, or a negative noise.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> given = lg.regression.adaptive_posterior(
    ...     lg.mlp(1, "erf"), x, y, noise=0.1, param=lg.mean_field(gamma=2.0)
    ... )
    >>> given.status, bool(given.feature_kernel[0, 0] > given.prior_kernel[0, 0])
    ('ok', True)
    >>> given.predict(np.array([[3.0, 1.0]])).mean.shape
    (1,)
    """
    rows, of_sample = training_inputs(x), as_loss(loss)
    targets = _targets(of_sample, y, len(rows))
    squares = of_sample.linear_residual
    ridge = check_noise(noise_variance(noise, len(rows)), len(rows), positive=not squares)
    count = integer("sites", sites, at_least=FEWEST_SITES, at_most=MOST_SITES)
    copies = integer("replicates", replicates, at_least=2)
    random, raises = random_key(key), flag("throw", throw)
    check_progress(progress)
    of = equilibrium_of(net, param, rows)
    if of.linear and squares and (of.hidden > 1 or targets.size == len(targets)):
        return solve_linear(of, rows, targets, ridge)
    given = of, rows, targets, fit_of(of_sample, targets, ridge), count, copies, random, raises
    return solve_one_layer(*given) if of.hidden == 1 else solve_deep(*given, progress)


def _targets(loss: Loss, y: Any, rows: int) -> np.ndarray:
    """Return targets that fit a loss, as integers if they are classes."""
    if loss.targets != "class":
        targets = training_targets(y, rows)
        check_targets(loss, "y", targets)
        return targets
    known("y", y)
    targets = np.asarray(as_array("y", y))
    check_targets(loss, "y", targets)
    if len(targets) != rows:
        raise InvalidInput(f"y: has {len(targets)} rows, x has {rows} samples.")
    return targets


def weighted_posterior(
    net: Any, x: Any, y: Any, noise: Any, weights: Any, mask: Any, param: Any, throw: Any
) -> AdaptivePosterior | DeepPosterior | DeepLinearPosterior:
    """Return the posterior for the arguments of :func:`largen.posterior`."""
    if mask is not None:
        raise InvalidInput("mask: the kind 'adaptive' is that of samples without positions.")
    if isinstance(noise, str):
        raise InvalidInput(f"noise: {noise!r} chooses that of a fixed kernel; give a number.")
    if param is None:
        raise InvalidInput("param: the kind 'adaptive' needs one, such as lg.mean_field(gamma).")
    rows = training_inputs(x)
    targets = training_targets(y, len(rows))
    variance = noise_variance(noise, len(rows))
    if weights is not None:
        weight = sample_weights(weights, len(rows))
        kept = weight > 0
        rows, targets = rows[kept], targets[kept]
        variance = np.broadcast_to(variance, len(weight))[kept] / weight[kept]
    return adaptive_posterior(net, rows, targets, noise=variance, param=param, throw=throw)
