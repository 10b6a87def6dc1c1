"""Mean and variance of the squared singular values of the input-output Jacobian."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from largen.bibliography import cites
from largen.criticality.maps import checked_activation, checked_constants, expectations
from largen.errors import NumericalFailure, one_of
from largen.results import in_notebooks, plot_result, save_result, with_labels
from largen.scalars import integer, real

if TYPE_CHECKING:
    import xarray


@cites("pennington2017resurrecting")
class JacobianMoments(NamedTuple):
    """Moments of the squared singular values of J = D_L W_L ⋯ D_1 W_1, after 1 to L layers.

    Attributes
    ----------
    mean
        Mean of the eigenvalues of JJᵀ, ∏ χ_⊥, (layer,).
    variance
        Variance of the eigenvalues, (layer,); it grows linearly with the layers at criticality.
    """

    mean: np.ndarray
    variance: np.ndarray

    def __repr__(self) -> str:
        if not len(self.mean):
            return "JacobianMoments: no layers"
        return (
            f"JacobianMoments: behind {len(self.mean)} layers eigenvalues of JJᵀ have mean "
            f"{self.mean[-1]:.4g} and variance {self.variance[-1]:.4g}"
        )

    _repr_html_ = in_notebooks
    save = save_result
    plot = plot_result

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return mean and variance over ``layer``, counted from 1."""
        import xarray

        layers = np.arange(1, len(self.mean) + 1)
        return xarray.Dataset(
            {"mean": ("layer", self.mean), "variance": ("layer", self.variance)}, {"layer": layers}
        )


def jacobian_moments(
    activation: Any,
    weight_std: float,
    bias_std: float = 0.0,
    *,
    layers: int,
    variance: float = 1.0,
    weights: Literal["gaussian", "orthogonal"] = "gaussian",
) -> JacobianMoments:
    """Return mean and variance of the squared singular values of the input-output Jacobian.

    Pennington, Schoenholz and Ganguli (2017), for square layers at infinite width and any
    activation, with the layers' own variances K^ℓ:

        mean = ∏_ℓ χ_⊥^ℓ,   variance/mean² = Σ_ℓ (E[φ'⁴]/E[φ'²]² − s),   s = 0 or 1,

    s = 1 for orthogonal weights (σ_w times a random rotation) and 0 for Gaussian ones.

    Parameters
    ----------
    activation, weight_std, bias_std
        φ, σ_w and σ_b.
    layers
        L.
    variance
        K of the first preactivation.
    weights
        ``"gaussian"`` or ``"orthogonal"``.

    Raises
    ------
    InvalidInput
        For numbers out of range or an unknown kind of weights.
    NoTheory
        If φ jumps.
    NumericalFailure
        If the variance leaves the range in which averages are computed.

    Examples
    --------
    >>> import largen as lg
    >>> lg.criticality.jacobian_moments("relu", 2**0.5, layers=3).variance
    array([2., 4., 6.])
    """
    phi = checked_activation(activation, "lg.criticality.jacobian_moments")
    weight_std, bias_std = checked_constants(weight_std, bias_std)
    layers = integer("layers", layers, at_least=1)
    K = real("variance", variance, above=0.0)
    one_of("weights", weights, ("gaussian", "orthogonal"))
    less = 1.0 if weights == "orthogonal" else 0.0
    means, relative = [], []
    for layer in range(layers):
        moments = expectations(phi, np.array([K]))
        slope = float(moments.slope[0, 0])
        if not np.isfinite(slope) or slope == 0:
            raise NumericalFailure(
                f"lg.criticality.jacobian_moments: the variance is {K:g} in layer {layer + 1}, "
                f"where averages of {phi} are not resolved. Take a smaller weight_std, or fewer "
                f"layers.",
                JacobianMoments(np.cumprod(means), np.cumprod(means) ** 2 * np.cumsum(relative)),
            )
        means.append(weight_std**2 * slope)
        relative.append(float(moments.slope_fourth[0]) / slope**2 - less)
        K = bias_std**2 + weight_std**2 * float(moments.second[0, 0])
    mean = np.cumprod(means)
    return JacobianMoments(mean, mean**2 * np.cumsum(relative))
