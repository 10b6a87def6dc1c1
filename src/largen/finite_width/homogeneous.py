"""Exact moments at any width for φ(z) = a₊z₊ + a₋z₋ and one input: no expansion in 1/width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory
from largen.expectations import ActivationFunction
from largen.expectations import as_activation as own_activation
from largen.finite_width.checks import one_input
from largen.finite_width.orthants import slopes_of
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.results import brief, fields_over, in_notebooks, save_result
from largen.scalars import integer, real

_LARGEST_RATE = 700.0  # largest argument whose exponential is finite


@cites("bahri2022les")
class HomogeneousMoments(NamedTuple):
    """Exact moments of one output z and its tangent kernel Θ̂ at one input.

    Attributes
    ----------
    kernel
        K = E z².
    kernel_variance
        Var S of the output's variance S given the last hidden layer; E z⁴ = 3(K² + Var S).
    ntk
        E Θ̂ = (L + 1) K.
    ntk_variance
        Var Θ̂.
    ntk_change
        E[z∇z∇²z∇z]: to first order in η, one step of gradient descent at rate η on ½(z − y)²
        changes Θ̂ by −2η z∇z∇²z∇z on average.
    dead
        Probability that all neurons of a hidden layer are 0, and with them the output.
    """

    kernel: float
    kernel_variance: float
    ntk: float
    ntk_variance: float
    ntk_change: float
    dead: float

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


@cites("bahri2022les")
class HomogeneousJacobian(NamedTuple):
    """Exact moments of a network's Jacobian at one input; see :func:`homogeneous_jacobian`.

    Attributes
    ----------
    second, fourth
        E J² and E J⁴ of the derivative of one output in one input coordinate.
    trace_of_square, square_of_trace
        E tr (JJᵀ)² and E (tr JJᵀ)² of the Jacobian of the last hidden activations in the input, for
        Gaussian weights; None for others.
    """

    second: float
    fourth: float
    trace_of_square: float | None
    square_of_trace: float | None

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


@cites("bahri2022les")
class HomogeneousLimits(NamedTuple):
    """Limits of depth and width to infinity at t = L/n; see :func:`homogeneous_limits`.

    Attributes
    ----------
    log_mean, log_variance
        Mean and variance of the Gaussian limit of log S/K, if no layer is dead: −(3κ − 1)t/2 and
        (3κ − 1)t.
    kernel
        E S²/(E S)².
    ntk
        E Θ̂²/(E Θ̂)².
    ntk_change
        E ΔΘ̂/E Θ̂ of a step of gradient descent at rate η on ½(z − y)², over ηKL.
    """

    log_mean: float
    log_variance: float
    kernel: float
    ntk: float
    ntk_change: float

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


def homogeneous_moments(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int]
) -> HomogeneousMoments:
    """Return exact moments of relu, leaky relu, absolute value or linear networks at one input.

    Each neuron's slope d ∈ {a₊, a₋} is independent of everything else (Bahri and Hanin, Les Houches
    lectures, Proposition 5.2). With κ = E d⁴/(E d²)² (1 linear, 2 relu), σ_w² = 1/E d² and
    f_j = 1 + (3κ − 1)/n_j, the variance S is K times a product of independent factors of mean 1
    and variance (3κ − 1)/n_j, and, with all products over hidden layers,

        E Θ̂ = (L + 1) K,
        E Θ̂² = K²[(L + 1) ∏ f_j + 2 Σ_{ℓ<m} (∏_{j<ℓ} f_j) p_{ℓ→m−1} (∏_{j≥m} f_j)],
        E[z∇z∇²z∇z] = 2K² Σ_{ℓ<m} (∏_{j<ℓ} f_j) q_{ℓ→m−1} (∏_{j≥m} f_j),

    where p, q start at a layer as 1 + (κ − 1)/n and κ/n, and follow the recursion
    p ← (1 + (κ − 1)/n) p + (2κ/n) q and q ← (κ/n) p + (1 + (2κ − 1)/n) q. The lectures' Theorem 5.1
    prints e^β or e^{5β} for E Θ̂²/(E Θ̂)², which at large depth and width equals neither.

    Parameters
    ----------
    net
        :class:`largen.Dense` without bias and :class:`largen.Activation` of one homogeneous φ in
        turn, with hidden ``weight_std`` σ_w = 1/√(E d²).
    x
        One input, (1, D).
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.

    Raises
    ------
    InvalidInput
        For more than one input, or one that is 0.
    NoTheory
        For other activations, biases, or weights that do not keep the variance.
    NoRule
        For layers other than these two.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(20, "relu", weight_std=2**0.5)
    >>> result = lg.finite_width.homogeneous_moments(net, np.ones((1, 4)), width=100)
    >>> round(result.ntk_variance / result.ntk**2 + 1, 4)
    2.1052
    """
    network = sized_network(net, width, "lg.finite_width.homogeneous_moments")
    inputs = one_input(x)
    kappa, _ = _constants(network, "lg.finite_width.homogeneous_moments")
    n = np.array([layer.width for layer in network.hidden], np.float64)
    K = float(network.first_kernel(inputs)[0, 0])
    f = 1 + (3 * kappa - 1) / n
    total, changed = _double_sums(n, f, kappa)
    layers = len(n)
    mean = (layers + 1) * K
    second = K**2 * ((layers + 1) * f.prod() + 2 * total)
    alive = np.prod(1 - 0.5**n) if 0 in (slopes_of(network.hidden[0].phi) or ()) else 1.0
    return HomogeneousMoments(
        kernel=K,
        kernel_variance=float(K**2 * (f.prod() - 1)),
        ntk=mean,
        ntk_variance=float(second - mean**2),
        ntk_change=float(2 * K**2 * changed),
        dead=float(1 - alive),
    )


def homogeneous_jacobian(
    net: Layer, *, width: int | Sequence[int], inputs: int, fourth_moment: float = 3.0
) -> HomogeneousJacobian:
    """Return moments of the input-output Jacobian of relu, leaky relu or linear networks.

    J is the derivative of one output in one input coordinate, and κ = E d⁴/(E d²)² that of the
    slopes d in :func:`homogeneous_moments` (1 linear, 2 relu). With v the derivatives of the n
    neurons of a layer in this coordinate, A = E (Σ_r v_r²)² and B = E Σ_r v_r⁴ pass from layer to
    layer. For symmetric weights of unit variance and any fourth moment μ₄, with
    s = 3A + (μ₄ − 3)B, starting from A = B = 1 and n_prev = n₀ inputs,

        A ← [n(n − 1)A + nκs]/n_prev²,   B ← nκs/n_prev²,   E J⁴ = σ_w⁴ s/n_L²,

    and, for Gaussian weights, starting from X = n₀, Y = n₀²,

        X ← [n(n − 1)X + nκ(2X + Y)]/n_prev²,   Y ← [n(n − 1)Y + nκ(2X + Y)]/n_prev²

    for the sums of σ⁴ and of pairs σ²σ'² of the singular values σ of the Jacobian of the last
    hidden layer. For relu and Gaussian weights
    E J⁴ = (12/n₀²) ∏(1 + 5/n_ℓ): Bahri and Hanin, Les Houches lectures, §5.5.2, print the prefactor
    2/n₀² and the coefficient 6(μ₄ − 3).

    Parameters
    ----------
    net
        As for :func:`homogeneous_moments`, all weights with σ_w = 1/√(E d²).
    width
        As for :func:`homogeneous_moments`.
    inputs
        n₀, the dimension of the inputs.
    fourth_moment
        μ₄ of the weights at unit variance: 3 of Gaussian, 1.8 of uniform, 6 of Laplace weights. The
        weights have a density: signs, with μ₄ = 1, make preactivations exactly 0 with a positive
        probability, where φ with a kink has no slope.

    Raises
    ------
    InvalidInput
        For counts that are not positive, or a fourth moment below 1.
    NoRule, NoTheory
        As :func:`homogeneous_moments` does, and for a fourth moment of 1 at a kink.

    Examples
    --------
    >>> import largen as lg
    >>> result = lg.finite_width.homogeneous_jacobian(
    ...     lg.mlp(2, "relu", weight_std=2**0.5), width=10, inputs=4
    ... )
    >>> round(result.fourth, 9), round(12 / 4**2 * (1 + 5 / 10) ** 2, 9)
    (1.6875, 1.6875)
    """
    network = sized_network(net, width, "lg.finite_width.homogeneous_jacobian")
    kappa, square = _constants(network, "lg.finite_width.homogeneous_jacobian")
    before = n0 = integer("inputs", inputs, at_least=1)
    excess = real("fourth_moment", fourth_moment, at_least=1.0) - 3
    slopes = slopes_of(network.hidden[0].phi) or ()
    if excess < -2 + 1e-9 and len(set(slopes)) > 1:
        raise NoTheory(
            "lg.finite_width.homogeneous_jacobian: only signs have fourth_moment=1. With them "
            "preactivations are exactly 0 with a positive probability, where "
            f"{network.hidden[0].phi} has no slope; wanted weights with a density."
        )
    if abs(network.first.weight * square - 1) > 1e-9:
        raise NoTheory(
            f"lg.finite_width.homogeneous_jacobian: wanted weight_std={square**-0.5:.9g} in the "
            f"first layer too."
        )
    A = B = 1.0
    X, Y = float(n0), float(n0) ** 2
    for layer in network.hidden:
        n, size = layer.width, layer.width / before**2
        fourth = kappa * (3 * A + excess * B)
        A, B = size * ((n - 1) * A + fourth), size * fourth
        shared = kappa * (2 * X + Y)
        X, Y = size * ((n - 1) * X + shared), size * ((n - 1) * Y + shared)
        before = n
    gaussian = excess == 0
    return HomogeneousJacobian(
        second=1 / square / n0,
        fourth=float((3 * A + excess * B) / (square * before) ** 2),
        trace_of_square=X if gaussian else None,
        square_of_trace=Y if gaussian else None,
    )


def homogeneous_limits(activation: Any, depth_over_width: float) -> HomogeneousLimits:
    """Return the limits of moments of homogeneous networks at large depth and width, L/n fixed.

    These are the limits of :func:`homogeneous_moments` for L hidden layers of n neurons and one
    input: S is the variance of the output z given the last hidden layer, with mean K, Θ̂ the tangent
    kernel, and ΔΘ̂ its change in one step of gradient descent at rate η on ½(z − y)². With the slope
    d ∈ {a₊, a₋} of a neuron, κ = E d⁴/(E d²)² (1 linear, 2 relu), t = L/n, a = 3κt and
    I = 1/a − (1 − e^{−a})/a²,

        E S²/(E S)² = e^{(3κ−1)t},   E Θ̂²/(E Θ̂)² = e^{(3κ−1)t}[1/3 + (4/3) I],
        E ΔΘ̂/E Θ̂ = −(4/3) ηKL e^{(3κ−1)t}[½ − I],

    and S/K is log-normal. For other activations with K* = 0 it is not: they have no fixed scale.

    Parameters
    ----------
    activation
        φ(z) = a₊z₊ + a₋z₋, as for :func:`largen.Activation`.
    depth_over_width
        t, hidden layers over neurons in each: 0.2 for ten layers of 50 neurons.

    Raises
    ------
    InvalidInput
        For t that is not positive, or no activation.
    NoTheory
        For other activations.

    Examples
    --------
    >>> import largen as lg
    >>> round(lg.finite_width.homogeneous_limits("relu", 0.2).ntk, 4)
    2.1676
    """
    phi = own_activation(activation)
    t = real("depth_over_width", depth_over_width, above=0.0)
    kappa, _ = _fourth_over_square(phi, "lg.finite_width.homogeneous_limits")
    a = 3 * kappa * t
    # I = ½ − a/6 + a²/24 − …
    series = 0.5 - a / 6 + a**2 / 24 - a**3 / 120
    integral = series if a < 1e-3 else 1 / a - (1 - np.exp(-a)) / a**2
    rate = (3 * kappa - 1) * t
    if rate > _LARGEST_RATE:
        raise InvalidInput(f"depth_over_width: {t:g} makes moments overflow; take a smaller one.")
    growth = float(np.exp(rate))
    return HomogeneousLimits(
        log_mean=-rate / 2,
        log_variance=rate,
        kernel=growth,
        ntk=growth * (1 + 4 * float(integral)) / 3,
        ntk_change=-4 / 3 * growth * (0.5 - float(integral)),
    )


def _constants(network: SizedNetwork, what: str) -> tuple[float, float]:
    """Return κ and E d² of networks that keep the variance, without biases."""
    network.check_no_biases(what)
    phi = network.hidden[0].phi
    kappa, square = _fourth_over_square(phi, what)
    for layer in network.hidden:
        if layer.phi != phi or abs(layer.weight * square - 1) > 1e-9:
            raise NoTheory(
                f"{what}: wanted one activation and weight_std={square**-0.5:.9g} behind each "
                f"{phi}, which keeps the variance."
            )
    return kappa, square


def _fourth_over_square(phi: ActivationFunction, what: str) -> tuple[float, float]:
    """Return κ = E d⁴/(E d²)² and E d²."""
    slopes = slopes_of(phi)
    if slopes is None or not any(slopes):
        raise NoTheory(
            f"{what}: {phi} is not a₊z₊ + a₋z₋, as relu, leaky relu and the linear function are. "
            "lg.finite_width.width_corrections has the order 1/width of any other."
        )
    right, left = slopes
    square = (right**2 + left**2) / 2
    return (right**4 + left**4) / 2 / square**2, square


def _double_sums(n: np.ndarray, f: np.ndarray, kappa: float) -> tuple[float, float]:
    """Return Σ_{ℓ<m} (∏_{j<ℓ} f) p_{ℓ→m−1} (∏_{j≥m} f) and the same sum with q.

    Weights count from 1 to L + 1; hidden layer ℓ lies behind weight ℓ.
    """
    layers = len(n)
    before = np.concatenate([[1.0], np.cumprod(f)])  # of layers 1 to ℓ − 1 at ℓ − 1
    behind = np.concatenate([np.cumprod(f[::-1])[::-1], [1.0]])
    total = changed = 0.0
    for start in range(layers):
        p, q = 1 + (kappa - 1) / n[start], kappa / n[start]
        for end in range(start, layers):
            if end > start:
                width_there = n[end]
                p, q = (
                    (1 + (kappa - 1) / width_there) * p + 2 * kappa / width_there * q,
                    kappa / width_there * p + (1 + (2 * kappa - 1) / width_there) * q,
                )
            weight = before[start] * behind[end + 1]
            total, changed = total + weight * p, changed + weight * q
    return total, changed
