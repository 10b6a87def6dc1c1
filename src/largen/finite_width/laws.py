"""The exact distribution of an output at one input, for any activation, width and depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from scipy.special import gammaln, ndtr

from largen.architectures import Layer
from largen.arrays import floating
from largen.bibliography import cites
from largen.errors import InvalidInput, NumericalFailure
from largen.finite_width.checks import checked_inputs
from largen.finite_width.neuron_sums import LawOfMean, law_of_mean
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.parameterizations import Parameterization
from largen.results import Result, with_labels
from largen.scalars import real

if TYPE_CHECKING:
    import xarray

_CELLS = 256  # of the distribution of S behind each layer
_TOLERANCE = 1e-3  # largest estimated error of the cumulative distribution
_LOWEST, _HIGHEST = 1e-7, 1e-11  # probabilities outside of the cells
_SEARCH = 2048  # points among which the ends of the cells are searched
_AT_ONCE = 2**20  # numbers, for arrays of f


@cites("bahri2022les", "roberts2022principles")
@dataclass(frozen=True, repr=False)
class OutputLaw(Result):
    """The distribution of an output f of a network of finite width; made by :func:`output_law`.

    Attributes
    ----------
    kernels, weights
        Values of the output's variance S given the last hidden layer, and their probabilities,
        ``(cell,)``: f is a mixture of the Gaussians N(0, S).
    error
        Estimated error of :meth:`cdf`, from a computation at half the resolution.
    widths
        Numbers of neurons of the hidden layers.
    """

    kernels: np.ndarray
    weights: np.ndarray
    error: float
    widths: tuple[int, ...]

    @property
    def variance(self) -> float:
        """E f² = E S."""
        return self.kernel_moment(1)

    @property
    def dead(self) -> float:
        """The probability that f is exactly 0."""
        return float(self.weights[self.kernels == 0].sum())

    def kernel_moment(self, order: float) -> float:
        """Return E S^order, for any order that is not negative."""
        return float(self.weights @ self.kernels ** real("order", order, at_least=0.0))

    def moment(self, order: float) -> float:
        """Return E|f|^order = 2^{s} Γ(s + ½)/Γ(½) · E S^s with s = order/2 ≥ 0."""
        s = real("order", order, at_least=0.0) / 2
        gaussian = np.exp(s * np.log(2) + gammaln(s + 0.5) - gammaln(0.5))
        return float(gaussian * self.kernel_moment(s))

    def cdf(self, f: ArrayLike) -> Any:
        """Return the probability that the output is at most f, of the shape of f."""
        return self._mixed(f, lambda z, scale: ndtr(z / scale), lambda z: z >= 0)

    def density(self, f: ArrayLike) -> Any:
        """Return the probability density of f, without the mass ``dead`` at 0."""
        return self._mixed(
            f, lambda z, s: np.exp(-((z / s) ** 2) / 2) / (s * np.sqrt(2 * np.pi)), np.zeros_like
        )

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return ``kernel`` and ``probability`` over ``cell``."""
        import xarray

        columns = {"kernel": self.kernels, "probability": self.weights}
        return xarray.Dataset(
            {name: ("cell", values) for name, values in columns.items()},
            attrs={"error": self.error, "widths": list(self.widths)},
        )

    def _mixed(self, f: ArrayLike, gaussian, at_zero) -> Any:
        points = np.asarray(floating("f", f), np.float64)
        alive = self.kernels > 0
        scale, weights = np.sqrt(self.kernels[alive]), self.weights[alive]
        flat, parts = points.reshape(-1, 1), max(1, points.size * len(scale) // _AT_ONCE)
        found = [gaussian(part, scale) @ weights for part in np.array_split(flat, parts)]
        return np.concatenate(found).reshape(points.shape) + self.dead * at_zero(points)

    def __repr__(self) -> str:
        kurtosis = self.moment(4) / (3 * self.variance**2) if self.variance else np.nan
        return (
            f"OutputLaw: variance {self.variance:.4g}, {len(self.widths)} hidden layers\n"
            f"  E f⁴/3(E f²)² = {kurtosis:.4g}, P(f = 0) = {self.dead:.3g}\n"
            f"  error of the cumulative distribution about {self.error:.1g}"
        )


def output_law(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int],
    param: Parameterization | None = None,
) -> OutputLaw:  # fmt: skip
    """Return the distribution of an output at one input, for any activation, width and depth.

    At one input the variance of preactivations given the layer before is a Markov chain of numbers,

        S ← σ_b² + (σ_w²/n) Σ_{j≤n} φ(√S ξ_j)²,   ξ_j ~ N(0, 1),   f ~ N(0, S),

    (Bahri and Hanin, Les Houches lectures, §5, where it is solved for homogeneous φ; Roberts, Yaida
    and Hanin, *The principles of deep learning theory*, expand it in 1/n). Here the distribution of
    S is carried from layer to layer: on a grid of log S, with the distribution of the sum of n
    neurons by Fourier transforms of that of a single neuron. Neither an expansion in 1/n nor
    random numbers are used.

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn.
    x
        One input, (1, D).
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    param
        The parameterization; :func:`largen.ntk` by default.

    Raises
    ------
    InvalidInput
        For an input at which all preactivations of the first layer are 0.
    NoRule, NoTheory
        For other networks, and for weights that are not Gaussian.
    NumericalFailure
        If the grid does not resolve the distribution to 1e-3, as for φ(z) = z³ at several layers.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net, x = lg.mlp(3, "tanh", weight_std=1.5), np.ones((1, 4))
    >>> law = lg.finite_width.output_law(net, x, width=8)
    >>> law.cdf(np.array([0.0, 1.0, 2.0])).round(3)
    array([0.5  , 0.866, 0.983])
    >>> bool(law.error < 1e-3)
    True
    """
    what = "lg.finite_width.output_law"
    inputs = checked_inputs(x)
    if len(inputs) != 1:
        raise InvalidInput(f"x: wanted one input, got shape {inputs.shape}.")
    network = sized_network(net, width, what, param, inputs.shape[1])
    first = float(network.first_kernel(inputs)[0, 0])
    if not 0 < first < np.inf:
        raise InvalidInput(f"x: preactivations of the first layer have the variance {first:g}.")
    law, coarse = (_carried(network, first, share) for share in (1, 2))
    z = np.sqrt(law.variance) * np.linspace(0.02, 5, 250)
    error = float(np.max(np.abs(law.cdf(z) - coarse.cdf(z))))
    if not error <= _TOLERANCE:
        raise NumericalFailure(
            f"{what}: the cumulative distribution differs by {error:.2g} between two resolutions. "
            "lg.finite_width.sample_kernels draws from it."
        )
    return OutputLaw(law.kernels, law.weights, error, network.widths)


def _carried(network: SizedNetwork, first: float, coarser: int) -> OutputLaw:
    """Carry the distribution of S through all layers, on a grid that is ``coarser`` times."""
    kernels, weights = np.array([first]), np.ones(1)
    for layer in network.hidden:
        mean = law_of_mean(layer.phi, kernels, layer.width, coarser)
        values, weights = _next(mean, weights, _CELLS // coarser)
        kernels = layer.bias + layer.weight * values
    return OutputLaw(kernels, weights, 0.0, network.widths)


def _next(mean: LawOfMean, weights: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values of the mean square and their probabilities, the first of them exactly 0."""
    at_zero = float(weights @ mean.at_zero)
    likely = (weights > 1e-14) & (mean.at_zero < 1)
    if not likely.any():
        return np.zeros(1), np.ones(1)
    top = mean.ends[1][likely].max()
    bottom = max(mean.ends[0][likely].min(), 1e-14 * top)
    search = np.geomspace(bottom, top, _SEARCH)
    found = weights @ mean.cdf(search)
    low = search[max(0, np.searchsorted(found, at_zero + _LOWEST) - 1)]
    high = search[min(_SEARCH - 1, np.searchsorted(found, 1 - _HIGHEST))]
    edges = np.geomspace(low, max(high, low * (1 + 1e-9)), cells + 1)
    at_edges = weights @ mean.cdf(edges)
    at_edges[0], at_edges[-1] = at_zero, 1.0
    masses = np.diff(at_edges)
    return (
        np.concatenate([[0.0], np.sqrt(edges[1:] * edges[:-1])]),
        np.concatenate([[at_zero], np.maximum(masses, 0)]),
    )
