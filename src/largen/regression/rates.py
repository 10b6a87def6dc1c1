"""Time scales of the tangent kernel's eigenmodes, and stable learning rates."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import like, precision
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.kernels.modes import critical_rate
from largen.regression.kernel_rows import check_positive, join_outputs, square_kernel
from largen.results import brief, fields_over, in_notebooks, plot_result, save_result
from largen.scalars import real


@cites("bahri2022les")
class RelaxationTimes(NamedTuple):
    """The eigenmodes of a tangent kernel, fastest first.

    Attributes
    ----------
    times
        P/λ, (mode,): the time η₀t in which gradient flow reduces the mode's residual to 1/e;
        infinite for modes that are never learned.
    modes
        Eigenvectors as columns, (sample, mode), or (sample, output, mode) of coupled outputs.
    """

    times: Any
    modes: Any

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(times=("mode",), modes=("sample", "mode"))
    save = save_result
    plot = plot_result


@cites("bahri2022les")
def critical_learning_rate(ntk: Any, *, momentum: float = 0.0) -> float:
    """Return the learning rate η₀ above which full-batch descent on the squared error diverges.

    2(1 + β)P/λ_max for the loss (1/P) Σ ½(f − y)²: above it the residual of the fastest mode
    grows by |1 − η₀λ_max/P| > 1 at each step. The lectures' critical rate (Bahri and Hanin, Les
    Houches lectures, Result 5) is :func:`optimal_learning_rate`, which is never larger.

    Parameters
    ----------
    ntk
        Θ of the P training samples, (sample, sample), or (sample, sample, output, output) as
        :func:`largen.networks.empirical_ntk` returns it for several outputs; symmetric and positive
        semidefinite up to relative errors of 1e-6.
    momentum
        β of heavy-ball momentum, 0 ≤ β < 1.

    Notes
    -----
    The kernel is taken as constant, as it is in the kernel limit. Where features move it is not the
    threshold of training, on either side: the kernel sharpens as it learns, so that training may
    diverge below it, and for small γ₀ it may shrink while the loss is large, so that training
    survives above it (:func:`largen.training.catapult`). On the first 40 of scikit-learn's digits,
    one hidden layer of tanh with γ₀ = 1 and infinite width trains for 25 steps of 1.3 P/λ_max and
    diverges at 1.4 P/λ_max, where this function says 2. :func:`largen.learning_rate_curve` measures
    the threshold of a run.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> round(lg.regression.critical_learning_rate(lg.ntk_kernel(lg.mlp(1, "relu"), np.eye(3))), 4)
    13.6538
    """
    beta = real("momentum", momentum, at_least=0)
    if beta >= 1:
        raise InvalidInput(f"momentum: wanted 0 ≤ momentum < 1, got {momentum!r}.")
    count, _, largest = _eigenvalues(ntk)
    return critical_rate(largest / count, beta)


@cites("bahri2022les")
def optimal_learning_rate(ntk: Any) -> float:
    """Return the learning rate η₀ at which the slowest mode decays fastest, 2P/(λ_min + λ_max).

    Bahri and Hanin, Les Houches lectures, Result 5, for the loss (1/P) Σ ½(f − y)². At this rate
    the fastest and the slowest mode shrink by the same factor (κ − 1)/(κ + 1) at each step, with
    κ = λ_max/λ_min.

    Parameters
    ----------
    ntk
        As in :func:`critical_learning_rate`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> round(lg.regression.optimal_learning_rate(np.diag([1.0, 3.0])), 4)
    1.0
    """
    count, smallest, largest = _eigenvalues(ntk)
    return critical_rate((max(smallest, 0.0) + largest) / count)


def relaxation_times(ntk: Any) -> RelaxationTimes:
    """Return the time that gradient flow takes for each eigenmode of the tangent kernel.

    The residual along a mode falls as exp(−λη₀t/P) (Bahri and Hanin, Les Houches lectures, eq.
    (88), for the loss (1/P) Σ ½(f − y)²). Times are in units of a run's ``time`` η₀t, which for
    gradient descent is the product of η₀ and the number of steps.

    Parameters
    ----------
    ntk
        As in :func:`critical_learning_rate`.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> lg.regression.relaxation_times(np.diag([1.0, 4.0])).times
    array([0.5, 2. ])
    """
    matrix = square_kernel("ntk", ntk)
    rows = _checked(matrix)
    with precision(matrix):
        values, vectors = jnp.linalg.eigh(jnp.asarray(rows, matrix.dtype))
        values, vectors = values[::-1], vectors[:, ::-1]
        vectors = vectors.reshape(len(matrix), *matrix.shape[3:], -1)
        rounding = len(values) * jnp.finfo(values.dtype).eps * values[0]
        learned = values > rounding
        times = jnp.where(learned, len(matrix) / jnp.where(learned, values, 1), jnp.inf)
        return RelaxationTimes(*like((times, vectors), ntk))


def _eigenvalues(ntk: Any) -> tuple[int, float, float]:
    """Return the number of samples, and the extreme eigenvalues."""
    matrix = square_kernel("ntk", ntk)
    with jax.enable_x64(True):
        values = jnp.linalg.eigvalsh(jnp.asarray(_checked(matrix)))
        return len(matrix), float(values[0]), float(values[-1])


def _checked(matrix: np.ndarray) -> np.ndarray:
    """Return a kernel as a positive semidefinite matrix of rows in float64."""
    rows = (join_outputs(matrix) if matrix.ndim == 4 else matrix).astype(np.float64)
    check_positive("ntk", rows)
    return rows
