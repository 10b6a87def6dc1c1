"""The marginal likelihood of targets under a network's prior, and its gradient in the constants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from largen.architectures import Layer
from largen.arrays import shape_of
from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure, one_of
from largen.interrupts import interruptible
from largen.kernels.accuracy import (
    check_tangent,
    inaccuracy,
    sizes_of,
    warn_of_lost_digits,
    with_suitable_methods,
)
from largen.kernels.checks import checked_mask
from largen.kernels.hyperparameters import Hyperparameters, hyperparameters, kernel_at, with_stds
from largen.kernels.lower import Lowered
from largen.kernels.masked import Masked
from largen.kernels.padding import fill
from largen.kernels.tiles import check_at_once, most_positions
from largen.parameterizations import Parameterization
from largen.programs import Program
from largen.regression.checks import check_lazy, training_inputs, training_targets
from largen.results import brief, fields_over, in_notebooks, save_result
from largen.scalars import real

PRIORS = {"nngp": "NNGP kernel", "ntk-gp": "tangent kernel"}


@cites("lee2018deep", "bahri2022les")
class LogLikelihood(NamedTuple):
    """A log marginal likelihood and its gradient.

    Attributes
    ----------
    value
        log p(y | x), summed over outputs.
    gradient
        Its derivatives in σ_w and σ_b of each layer, such as ``"0.weight_std"`` for the layer at
        position 0, and in the variance of the noise, ``"noise"``.
    """

    value: float
    gradient: dict[str, float]

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over()
    save = save_result


# (kernel matrix, targets, which rows are samples, number) -> value, and its derivatives in the
# matrix and in the number, the noise or the time.
OfMatrix = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]


class Evidence(NamedTuple):
    """The likelihood of fixed samples as a function of standard deviations and noise."""

    given: Hyperparameters
    x: Float[np.ndarray, "sample *input"]
    y: Float[np.ndarray, "sample output"]
    mask: Bool[np.ndarray, "sample *space"] | None
    kind: str = "nngp"

    def at(self, stds: np.ndarray, noise: float) -> tuple[float, np.ndarray, float]:
        """Return the log likelihood and its derivatives; NaN for a singular kernel plus noise."""
        return self.derivatives(_likelihood, self.kernel, stds, noise)

    def derivatives(
        self, of_matrix: OfMatrix, kind: str, stds: np.ndarray, number: float
    ) -> tuple[float, np.ndarray, float]:
        """Return an objective of the kernel, and its derivatives in constants and number."""
        given = self.given
        with jax.enable_x64(True):
            value, by_variance, by_number = _value_and_slopes(
                of_matrix,
                given.program,
                kind,
                (given.constants, given.labels, given.scale if kind == "nngp" else 1.0),
                jnp.asarray(given.factors * stds**2),
                number,
                self.filled,
            )
            slopes = np.asarray(by_variance) * 2 * given.factors * stds
            return float(value), slopes, float(by_number)

    @property
    def kernel(self) -> str:
        """The prior's kernel, ``"nngp"`` or ``"ntk"``."""
        return "nngp" if self.kind == "nngp" else "ntk"

    @property
    def filled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
        """Samples, targets and mask, padded to a standard size, and which rows are data."""
        x, mask = fill(Masked(self.x, self.mask))
        y = np.zeros((len(x), self.y.shape[1]))
        y[: len(self.y)] = self.y
        return x, y, mask, np.arange(len(x)) < len(self.x)

    @property
    def size(self) -> int:
        """Number of targets."""
        return self.y.size

    def inaccuracy(self) -> str | None:
        """Return the error message if the network's expectations miss their accuracy, or None."""
        lowered = Lowered((), self.given.program, self.given.constants)
        return inaccuracy(lowered, (self.x,), None, with_ntk=self.kernel == "ntk")


def evidence(
    net: Any, x: Any, y: Any, param: Any, mask: Any = None, kind: str = "nngp"
) -> Evidence:
    """Check the arguments of a public function and return the likelihood of the samples."""
    rows = training_inputs(x).astype(np.float64)
    targets = training_targets(y, len(rows))
    if not isinstance(net, Layer):
        raise InvalidInput(f"net: wanted a network such as lg.mlp(3), got {net!r}.")
    check_lazy(param)
    given = hyperparameters(net, param, shape_of(rows))
    positions, layers = most_positions(net, shape_of(rows)), 1 + len(given.names)
    check_at_once("x", given.program, positions, len(rows), len(rows), layers)
    if kind != "nngp":
        check_tangent(given.program, given.constants)
        _check_rates(net, given, param, shape_of(rows))
    there = checked_mask("mask", mask, rows, Lowered(given.features, given.program, ()))
    with jax.enable_x64(True):
        for phi in given.features:
            rows = np.asarray(phi(rows))
    lowered = Lowered((), given.program, given.constants)
    warn_of_lost_digits([sizes_of(rows)])
    suited = with_suitable_methods(lowered, (rows,), with_ntk=kind != "nngp")
    given = given._replace(program=suited.program)
    return Evidence(given, rows, targets.reshape(len(targets), -1), there, kind)


def _check_rates(net: Layer, given: Hyperparameters, param: Any, inputs: Any) -> None:
    """Refuse learning rates that depend on σ_w and σ_b, which the gradient of the NTK neglects."""
    doubled = dict(zip(given.names, (2 * given.stds).tolist(), strict=True))
    other = hyperparameters(with_stds(net, doubled), param, inputs)
    pairs = zip(*(jax.tree.leaves(_rates(each)) for each in (given, other)), strict=True)
    if not all(np.allclose(one, two) for one, two in pairs):
        raise NoTheory(f"fit: in {param} relative rates depend on σ_w; take lg.ntk().")


def _rates(given: Hyperparameters) -> Any:
    def of_weights(rates: Any) -> Any:
        return rates[2:] if hasattr(rates, "weight_rate") else rates

    return jax.tree.map(
        of_weights, given.constants, is_leaf=lambda node: hasattr(node, "weight_rate")
    )


@interruptible()
def log_likelihood(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise: float,
    kind: str = "nngp",
    mask: ArrayLike | None = None,
    param: Parameterization | None = None,
) -> LogLikelihood:
    """Return the log marginal likelihood of targets under a network's prior, with gradients.

    Bahri and Hanin, Les Houches lectures, eq. (33), with A = K + σ_n² and P samples,

        log p = −½ yᵀA⁻¹y − ½ log det A − (P/2) log 2π,   ∂ log p = ½ tr[(αᵀα − A⁻¹) ∂A], α = A⁻¹y.

    A network with the same layers but other σ_w or σ_b needs no recompilation.

    Parameters
    ----------
    net
        The architecture, with its σ_w and σ_b.
    x, y
        Samples, (sample, input) or (sample, *space, channel), and targets, (sample,) or
        (sample, output); outputs are independent, and their likelihoods add up.
    noise
        σ_n² > 0, the variance of the targets' noise: added to the diagonal as it is.
    kind
        The prior's kernel K: ``"nngp"``, or ``"ntk-gp"`` for the tangent kernel, the prior of the
        linearised network.
    mask, param
        As in :func:`largen.posterior`.

    Raises
    ------
    NumericalFailure
        If the kernel plus noise is not positive definite in float64, or the expectations of an
        activation miss the accuracy of :func:`largen.nngp_kernel`.
    InvalidInput
        For wrong shapes, also of a mask, NaN, an unknown kind, or a noise that is not positive.
    OutOfMemory
        If kernels of all layers do not fit into memory.
    NoTheory
        For ``"ntk-gp"`` with discontinuous activations, or with learning rates that depend on σ_w,
        as in :func:`largen.standard`.

    Notes
    -----
    The whole kernel and its intermediate layers are kept for the derivative: about
    128 + 16 · depth bytes for each of the P² pairs, which is checked before the computation.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(1, "erf", bias_std=0.5)
    >>> value, gradient = lg.regression.log_likelihood(net, np.eye(3), np.ones(3), noise=0.1)
    >>> round(value, 4), sorted(gradient)
    (-2.7976, ['0.bias_std', '0.weight_std', '2.bias_std', '2.weight_std', 'noise'])
    """
    of = evidence(net, x, y, param, mask, one_of("kind", kind, PRIORS))
    variance = real("noise", noise, above=0)
    value, slopes, by_noise = of.at(of.given.stds, variance)
    if not np.isfinite(value):
        raise NumericalFailure(
            f"log_likelihood: the {PRIORS[kind]} of {len(of.x)} inputs with noise = {variance:g} "
            "is not positive in float64; take a larger noise, or drop rows that are equal."
        )
    slopes_by_name = dict(zip(of.given.names, slopes.tolist(), strict=True))
    result = LogLikelihood(value, slopes_by_name | {"noise": by_noise})
    words = of.inaccuracy()
    if words is not None:
        raise NumericalFailure(words, result)
    return result


@partial(jax.jit, static_argnums=(0, 1, 2))
def _value_and_slopes(
    of_matrix: OfMatrix,
    program: Program,
    kind: str,
    constants: tuple[Any, Any, Any],
    variances: Float[Array, " name"],
    number: Any,
    samples: Any,
) -> tuple[Any, Any, Any]:
    """Return an objective of the kernel matrix, and its derivatives in variances and number."""
    constants, labels, scale = constants
    x, y, mask, given = samples

    def kernel(variances):
        matrix = scale * kernel_at(program, kind, constants, labels, variances, x, mask)
        return jnp.where(given[:, None] & given, matrix, 0)  # the other rows are padding

    matrix, pull_back = jax.vjp(kernel, variances)
    value, by_matrix, by_number = of_matrix(matrix, y, given, number)
    return value, pull_back(by_matrix)[0], by_number


def _likelihood(
    matrix: Float[Array, "sample sample"],
    y: Float[Array, "sample output"],
    given: Bool[Array, " sample"],
    noise: Any,
) -> tuple[Any, Any, Any]:
    """Return the likelihood and its slopes; padding has variance 1 and target 0."""
    samples, outputs = jnp.sum(given), y.shape[1]
    identity = jnp.eye(len(y), dtype=matrix.dtype)
    root = jnp.linalg.cholesky(matrix + jnp.where(given, noise, 1) * identity)
    inverse_root = solve_triangular(root, identity, lower=True)
    white = inverse_root @ y
    value = (
        -jnp.sum(white**2) / 2
        - outputs * jnp.sum(jnp.log(jnp.diagonal(root)))
        - samples * outputs * np.log(2 * np.pi) / 2
    )
    alpha = inverse_root.T @ white
    by_matrix = (alpha @ alpha.T - outputs * inverse_root.T @ inverse_root) / 2
    return value, by_matrix, jnp.sum(jnp.where(given, jnp.diagonal(by_matrix), 0))
