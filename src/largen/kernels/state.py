"""What the kernels' recursion carries from layer to layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Array, Float


class State(NamedTuple):
    """Second moments of two sets of preactivations in one layer, and their tangent kernel.

    The covariance K₁₂ of a pair is carried as its gap, half the mean squared distance,
    (K₁₁ + K₂₂)/2 − K₁₂: where two inputs nearly coincide the covariance has lost the digits that
    deep kernels depend on, and the gap keeps them. A bias leaves the gap as it is.

    Attributes
    ----------
    q1, q2
        Variances K(x, x) of both sets, (n1,) and (n2,).
    gap
        Half the mean squared distance of every pair, (n1, n2).
    ntk
        Θ of the layers so far, (n1, n2); None where it is not wanted.
    """

    q1: Float[Array, " n1"]
    q2: Float[Array, " n2"]
    gap: Float[Array, "n1 n2"]
    ntk: Float[Array, "n1 n2"] | None

    @property
    def covariance(self) -> Float[Array, "n1 n2"]:
        """K₁₂ = (q1 + q2)/2 − gap."""
        return (self.q1[:, None] + self.q2[None, :]) / 2 - self.gap


class Constants(NamedTuple):
    """The order-one constants of an affine map, and the rates of its weights and bias.

    Each a scalar array, or with leading axes of the repetitions around it.

    Attributes
    ----------
    weight_variance, bias_variance
        σ_w² and σ_b².
    weight_rate, bias_rate
        ρ, rates relative to η₀γ²; 0 freezes.
    """

    weight_variance: Any
    bias_variance: Any
    weight_rate: Any
    bias_rate: Any
