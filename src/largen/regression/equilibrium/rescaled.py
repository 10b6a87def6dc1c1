"""One hidden layer as wide as there are samples: one random scale of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.errors import NoTheory, NumericalFailure, instance_of
from largen.interrupts import interruptible
from largen.kernels import nngp_kernel
from largen.kernels.tiles import check_size
from largen.parameterizations import ntk
from largen.regression.checks import noise_variance, training_inputs, training_targets
from largen.regression.equilibrium.linear import LARGEST_CONDITION, WIDEST
from largen.regression.equilibrium.linear_modes import Modes
from largen.regression.equilibrium.network import check_noise, dense_network
from largen.regression.equilibrium.predictions import AdaptivePrediction, shaped, test_inputs
from largen.scalars import flag, integer


@cites("pacelli2023statistical", "li2021statistical")
@interruptible()
def rescaled_posterior(
    net: Layer,
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike,
    *,
    width: int,
    noise: float,
    covariance: bool = False,
) -> AdaptivePrediction:
    """Condition a network of a width, with a random scale of its kernel in place of its features.

    For N hidden neurons and P samples of one order, the features of a network with one hidden layer
    are replaced by Gaussian ones of the same covariance (Pacelli et al. 2023; Li and Sompolinsky
    2021 for linear networks). Outputs then depend on one random number,

        f | Q ~ N(0, QK),   Q ~ χ²_N/N,   p(Q | y) ∝ p(Q) N(y; 0, QK + κ),

    with the NNGP kernel K, and averages over Q are one quadrature. For linear networks it is exact.
    N → ∞ is :func:`largen.posterior`.

    The variance is two to eight times closer to that of networks than the variance of the NNGP. The
    **mean may be further away** than that of the NNGP: what networks learn at P ~ N is directions
    of the input, which a scale does not hold; :func:`adaptive_posterior` with γ₀ = N^(−1/2) does.

    Parameters
    ----------
    net
        One hidden layer, of any activation, in :func:`largen.ntk`: outputs of order one.
    x, y
        Training samples, (sample, input), and targets, (sample,).
    x_test
        (test_sample, input).
    width
        N, the number of hidden neurons.
    noise
        κ > 0, the variance of the targets' noise.
    covariance
        Whether to return the covariance between test samples as well.

    Raises
    ------
    NoTheory
        For other networks than one hidden layer, and for several outputs.
    NumericalFailure
        If the kernel plus noise is singular.
    InvalidInput
        For wrong shapes, NaN, or a noise that is not positive.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> found = lg.regression.rescaled_posterior(lg.mlp(1, "relu"), x, y, x, width=10, noise=0.1)
    >>> found.mean.round(3).tolist()
    [0.666, -0.666]
    """
    rows, covariance = training_inputs(x), flag("covariance", covariance)
    targets = training_targets(y, len(rows))
    neurons = integer("width", width, at_least=1, at_most=WIDEST)
    ridge = float(check_noise(noise_variance(noise, 1), 1, positive=True)[0])
    test, dtype = test_inputs(x_test, rows)
    instance_of("net", net, Layer, "a network such as lg.mlp(1)")
    if targets.ndim > 1:
        raise NoTheory("y: the scale of the kernel is that of one output; take a column at a time.")
    if rows.ndim != 2 or len(dense_network(net, ntk(), rows.shape[1])[0]) != 1:
        raise NoTheory("net: a random scale of the kernel is that of one hidden layer, lg.mlp(1).")
    check_size("x", len(rows) + len(test), len(rows) + len(test), 4, np.float64)
    K = np.asarray(nngp_kernel(net, np.concatenate([rows, test])), np.float64)
    count = len(rows)
    values, vectors = np.linalg.eigh(K[:count, :count])
    values = np.maximum(values, 0)
    if values[-1] + ridge > LARGEST_CONDITION * (values[0] + ridge):
        raise NumericalFailure("rescaled_posterior: the kernel plus noise is singular.")
    modes = Modes(values, vectors, vectors.T @ targets, ridge, neurons**-0.5, 1)
    law, _ = modes.at_width(neurons, modes.branches())
    cross = K[count:, :count] @ vectors
    mean, _, spread = law.moments(cross, modes.targets, K[count:, count:])
    variance = np.maximum(np.diagonal(spread), 0)
    nothing = np.zeros((len(test), 1))
    full = spread[:, None, :, None] if covariance else None
    columns: tuple[Any, ...] = (mean[:, None], variance[:, None], full, nothing, nothing)
    return shaped(*columns, single=True, dtype=dtype)
