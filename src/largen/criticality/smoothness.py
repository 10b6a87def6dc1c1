"""Gradients of random functions in their inputs: how smooth and how attackable networks are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import known, shape_of
from largen.bibliography import cites
from largen.compilation import Sooner
from largen.errors import NumericalFailure
from largen.kernels.accuracy import with_suitable_methods
from largen.kernels.checks import checked_inputs
from largen.kernels.lower import features_of
from largen.kernels.nngp_ntk import prepare
from largen.kernels.tiles import check_at_once, kernels_at_once, most_positions
from largen.parameterizations import Parameterization, ntk
from largen.results import Result, with_labels

if TYPE_CHECKING:
    import xarray


@cites("bahri2022les", "daniely2020most")
@dataclass(frozen=True, repr=False)
class InputGradients(Result):
    """Second moments of an output f and of its gradient; made by :func:`input_gradients`.

    Attributes
    ----------
    output_std
        √E f², (sample,).
    kernel
        E ∇f(x)·∇f(x'), (sample, sample).
    input_norm
        |x|, (sample,).
    """

    output_std: np.ndarray
    kernel: np.ndarray
    input_norm: np.ndarray

    @property
    def norm(self) -> np.ndarray:
        """√E|∇f|², (sample,): the root mean square of the local Lipschitz constant."""
        return np.sqrt(np.diagonal(self.kernel))

    @property
    def correlation(self) -> np.ndarray:
        """E ∇f(x)·∇f(x') over the product of both norms, (sample, sample)."""
        with np.errstate(invalid="ignore"):
            return self.kernel / np.multiply.outer(self.norm, self.norm)

    @property
    def perturbation(self) -> np.ndarray:
        """√E f²/√E|∇f|², (sample,): the length of the change of x that may change the sign of f.

        To first order the nearest change of sign is at a distance of |f|/|∇f|. Where many
        directions share the gradient, its median over networks is 0.6745 times this.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.output_std / self.norm

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers over ``sample`` and ``sample_2``."""
        import xarray

        axes = ("sample", "sample_2")
        names = ("output_std", "kernel", "input_norm", "norm", "correlation", "perturbation")
        values = {name: getattr(self, name) for name in names}
        return xarray.Dataset({name: (axes[: v.ndim], v) for name, v in values.items()})

    def __repr__(self) -> str:
        near = f"{np.mean(self.perturbation):.4g}, where |x| ≈ {np.mean(self.input_norm):.4g}"
        return (
            f"InputGradients: {len(self.kernel)} samples, |f| ≈ {self.output_std.mean():.4g}, "
            f"|∇f| ≈ {self.norm.mean():.4g}; f changes its sign within about {near}"
        )


def input_gradients(
    net: Layer, x: ArrayLike, *, param: Parameterization | None = None
) -> InputGradients:
    """Return how smooth a random network of infinite width is in its inputs, and how attackable.

    Bahri and Hanin, Les Houches lectures, §5.6, ask how smooth random networks are, for their
    Lipschitz constant, and whether they are open to adversarial attacks. At infinite width an
    output is a Gaussian process, and so is its gradient:

        E ∂_i f(x) ∂_j f(x') = ∂²K(x, x')/∂x_i ∂x'_j,

    which automatic differentiation of the kernel gives for every network that has one. Without
    biases relu networks of any depth have √E f²/√E|∇f|² = |x|/√D for D inputs: a change of relative
    size 1/√D changes the sign of most of them (Daniely and Schacham 2020). Along the edge of chaos
    gradients neither grow nor vanish; in the chaotic phase the distance falls, and the gradients'
    correlation between two samples with it, exponentially with depth. For smooth φ it has
    1 − O(|x − x'|²) nearby, for φ with kinks 1 − O(|x − x'|), so that gradients are Hölder
    continuous with exponent ½ in the mean square. The gradient at x bounds the Lipschitz constant
    from below only; :func:`largen.finite_width.homogeneous_jacobian` has its fluctuations at
    finite width.

    Parameters
    ----------
    net
        The architecture.
    x
        Samples, (sample, input) or (sample, *space, channel); the cost is that of one kernel matrix
        for each input.
    param
        The parameterization; :func:`largen.ntk` by default. Where f vanishes with the width, as in
        :func:`largen.mean_field`, the numbers are those of γf.

    Raises
    ------
    InvalidInput
        If the inputs are not samples for the network.
    NoRule, NoTheory
        For networks without kernels, as :func:`largen.kernel` does.
    NumericalFailure
        If gradients overflow.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.array([[3.0, 0, 0, 4], [3, 0, 4, 0]])
    >>> lg.criticality.input_gradients(lg.mlp(3, "relu", weight_std=2**0.5), x)
    InputGradients: 2 samples, |f| ≈ 3.536, |∇f| ≈ 1.414; f changes its sign within about 2.5, \
where |x| ≈ 5
    """
    known("x", x)
    samples = checked_inputs(net, (x, None), param, "x")[0]
    shape, count = shape_of(samples), len(samples)
    lowered, scale = prepare(net, param or ntk(), shape)
    check_at_once("x", lowered.program, most_positions(net, shape), count, count, 4)
    lowered = with_suitable_methods(lowered, (samples,))

    def kernel(one: Any, two: Any) -> Any:
        inputs = features_of(lowered, one, two, np.float64)
        return scale * kernels_at_once(lowered.program, False, lowered.constants, *inputs)[0]

    with jax.enable_x64(True):
        inputs = jnp.asarray(samples, jnp.float64)
        variance, gradients = map(np.asarray, Sooner(partial(_moments, kernel))(inputs))
    with np.errstate(over="ignore"):
        norm = np.linalg.norm(np.asarray(samples, np.float64).reshape(count, -1), axis=1)
    found = InputGradients(np.sqrt(variance), gradients, norm)
    if not (np.isfinite(gradients).all() and np.isfinite(variance).all()):
        bad = int(np.argmin(np.isfinite(gradients).all(axis=1)))
        raise NumericalFailure(
            f"lg.criticality.input_gradients: the gradient at sample {bad} overflows. Take a "
            "smaller weight_std, or smaller samples.",
            found,
        )
    return found


def _moments(kernel: Any, x: Any) -> tuple[Any, Any]:
    """Return E f² of each sample, and E ∇f·∇f' of all pairs."""

    def along(direction: Any) -> Any:
        # A sample's row of the kernel depends on this sample alone.
        tangent = jnp.broadcast_to(direction, x.shape)

        def slope(two: Any) -> Any:
            return jax.jvp(lambda one: kernel(one, two), (x,), (tangent,))[1]

        return jax.jvp(slope, (x,), (tangent,))[1]

    units = jnp.eye(x[0].size, dtype=x.dtype).reshape(-1, *x.shape[1:])
    total = jax.lax.fori_loop(
        0, len(units), lambda i, sum_: sum_ + along(units[i]), jnp.zeros((len(x), len(x)))
    )
    return jnp.diagonal(kernel(x, x)), total
