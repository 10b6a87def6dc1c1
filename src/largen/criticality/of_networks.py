"""What any network does to signals and gradients, over σ_w and σ_b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.callables import takes
from largen.criticality.phases import axis
from largen.criticality.propagation import Propagation, propagated
from largen.errors import InvalidInput, LargenError, NumericalFailure
from largen.parameterizations import Parameterization
from largen.results import Result, with_labels
from largen.text import shown

if TYPE_CHECKING:
    import xarray


@cites("poole2016exponential", "schoenholz2017deep", "yang2017residual")
@dataclass(frozen=True, repr=False)
class NetworkDiagram(Result):
    """Signals and gradients of a network over a grid; made by :func:`network_diagram`.

    Attributes
    ----------
    weight_std, bias_std
        The grid, (i,) and (j,).
    variance
        K of the outputs, the mean over samples, (i, j); infinite where it overflows.
    correlation
        The mean correlation of the outputs of two different samples, (i, j); NaN where the variance
        overflows.
    gradient_growth
        The logarithm of the factor by which the mean square of gradients grows from the outputs to
        the first layer, the mean over samples, (i, j); NaN where the variance overflows.
    input_correlation
        The mean correlation of two different samples behind the first layer, (i, j).
    """

    weight_std: np.ndarray
    bias_std: np.ndarray
    variance: np.ndarray
    correlation: np.ndarray
    gradient_growth: np.ndarray
    input_correlation: np.ndarray

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the numbers over ``weight_std`` and ``bias_std``."""
        import xarray

        axes = ("weight_std", "bias_std")
        names = ("variance", "correlation", "gradient_growth", "input_correlation")
        variables = {name: (axes, getattr(self, name)) for name in names}
        return xarray.Dataset(variables, {name: getattr(self, name) for name in axes})

    def __repr__(self) -> str:
        known = np.isfinite(self.gradient_growth)
        grow = np.mean(self.gradient_growth[known] > 0) if known.any() else 0.0
        apart = np.mean((self.correlation < self.input_correlation)[known]) if known.any() else 0.0
        return (
            f"NetworkDiagram: {len(self.weight_std)} × {len(self.bias_std)} points; gradients grow "
            f"towards the input at {grow:.0%} of them, samples become less correlated at "
            f"{apart:.0%}, variances overflow at {np.mean(~known):.0%}"
        )


def network_diagram(
    network: Any,  # Callable[[float, float], Layer]
    x: ArrayLike,
    weight_std: ArrayLike | Sequence[float] | None = None,
    bias_std: ArrayLike | Sequence[float] | None = None,
    *,
    param: Parameterization | None = None,
) -> NetworkDiagram:
    """Return variances, correlations and gradients of any network over the plane of σ_w and σ_b.

    :func:`largen.criticality.phase_diagram` is about infinitely many equal layers. Residual
    networks have no such limit: with branches of order one all of them grow, as powers or
    exponentially in the depth (Yang and Schoenholz, 2017). Here a network of given depth is
    propagated at every point, as by :func:`largen.criticality.propagate`, with one compilation for
    all of them.

    Parameters
    ----------
    network
        A function of σ_w and σ_b that returns the network.
    x
        At least two samples, (sample, input) or (sample, *space, channel).
    weight_std, bias_std
        Values of the grid, (i,) and (j,); by default 0.5 to 3 and 0 to 1.5, 11 and 7 values.
    param
        The parameterization; :func:`largen.ntk` by default. It determines the factor of residual
        branches.

    Raises
    ------
    InvalidInput
        If ``network`` does not return a network, for fewer than two samples, or for values that are
        not positive (σ_b: not negative).
    NoRule, NoTheory
        For networks without kernels.
    NumericalFailure
        If variances overflow at every point.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> def network(w, b):
    ...     return lg.residual_mlp(8, "tanh", weight_std=w, bias_std=b)
    >>> diagram = lg.criticality.network_diagram(network, np.eye(2), [0.5, 2.0], [0.0])
    >>> diagram
    NetworkDiagram: 2 × 1 points; gradients grow towards the input at 50% of them, samples become \
less correlated at 0%, variances overflow at 0%
    >>> diagram.gradient_growth.round(2).tolist()
    [[-0.54], [3.48]]
    """
    takes("network", network, ("weight_std", "bias_std"))
    w = axis("weight_std", np.linspace(0.5, 3.0, 11) if weight_std is None else weight_std, 1e-12)
    b = axis("bias_std", np.linspace(0.0, 1.5, 7) if bias_std is None else bias_std, 0.0)
    compiled: dict[Any, Any] = {}
    methods: dict[Any, Any] = {}
    # From the largest variances, whose methods suit the others as well, and are compiled once.
    points = [
        _summary(propagated(_made(network, *at), x, param, compiled, methods))
        for at in product(w[::-1].tolist(), b[::-1].tolist())
    ]
    grids = np.array(points[::-1]).reshape(len(w), len(b), -1)
    found = NetworkDiagram(w, b, *np.moveaxis(grids, -1, 0))
    if not np.isfinite(found.variance).any():
        raise NumericalFailure(
            "lg.criticality.network_diagram: the variance overflows at every point.", found
        )
    return found


def _made(network: Any, weight_std: float, bias_std: float) -> Layer:
    try:
        net = network(weight_std, bias_std)
    except LargenError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"network: {shown(network)} fails for {weight_std:g} and {bias_std:g}: {error}"
        ) from error
    if not isinstance(net, Layer):
        raise InvalidInput(f"network: wanted a function that returns a network, got {shown(net)}.")
    return net


def _summary(through: Propagation) -> tuple[float, float, float, float]:
    """Return variance, correlation and growth of gradients, and the correlation at the start."""
    if through.variance.shape[1] < 2:
        raise InvalidInput("x: wanted at least two samples, whose correlation is followed, got 1.")
    if not np.isfinite(through.variance).all():
        return np.inf, np.nan, np.nan, np.nan
    different = ~np.eye(through.variance.shape[1], dtype=bool)
    first, last = (through.correlation[i][different].mean() for i in (0, -1))
    with np.errstate(divide="ignore"):
        growth = np.log(through.chi_perp[1:]).sum(0).mean()
    return float(through.variance[-1].mean()), float(last), float(growth), float(first)
