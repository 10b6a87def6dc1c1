"""Infinite-width kernels estimated from finite networks, with error bars."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, layers_of
from largen.arrays import finite_result, like, precision, samples, shape_of
from largen.errors import NoTheory
from largen.interrupts import interruptible
from largen.memory import check_fits
from largen.networks.network import FiniteNetwork, finite_network
from largen.networks.tangent import coupling, kernels, probe
from largen.networks.tangents.products import by_products
from largen.parameterizations import Parameterization, ntk
from largen.runs import KernelEstimate
from largen.scalars import integer, random_key
from largen.segments import scan_segments

MOST_DRAWS = 10**6


def monte_carlo_kernel(
    net: Layer,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    width: int,
    draws: int = 64,
    key: Any = 0,
    param: Parameterization | None = None,
) -> KernelEstimate:
    """Estimate NNGP and NTK from networks of finite width, where no rule gives them exactly.

    Means over ``draws`` independent initialisations of f(x)f(x') (of γf(x)γf(x') where the
    output vanishes with the width, as in :func:`largen.kernel`) and of the empirical tangent
    kernel. The errors are statistical; besides, both means differ from the limit by a term of
    order 1/width, which doubling the width reveals.

    Where batch normalisation couples samples, the kernels between two samples depend on the whole
    batch ``x1``.

    Parameters
    ----------
    net
        The architecture.
    x1, x2
        Samples. Without ``x2``, the kernels of ``x1`` with itself.
    width
        N.
    draws
        Number of networks, 2 or more; the errors fall as 1/√draws.
    key
        A JAX key or an integer.
    param
        The parameterization; :func:`largen.ntk` by default.

    Raises
    ------
    InvalidInput
        For sizes that are not positive, or samples that do not fit the network.
    NoTheory
        If a layer drops entries, or couples the samples of a batch and ``x2`` is given.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.eye(2)
    >>> result = lg.networks.monte_carlo_kernel(lg.mlp(1, "relu"), x, width=256, draws=32, key=0)
    >>> exact = lg.ntk_kernel(lg.mlp(1, "relu"), x)
    >>> bool(np.all(np.abs(result.ntk - exact) < 4 * result.ntk_error + 1 / 256))
    True
    """
    draws, key = integer("draws", draws, at_least=2, at_most=MOST_DRAWS), random_key(key)
    x1 = samples("x1", x1)
    param = ntk() if param is None else param
    network = finite_network(net, param, width=width, inputs=shape_of(x1))
    for layer in layers_of(net):
        if layer.random:
            raise NoTheory(
                f"lg.networks.monte_carlo_kernel: {layer!r} draws masks or other random numbers "
                "for every sample, and finite networks are evaluated without them. Leave it out, "
                "or use lg.kernel, which has dropout in front of a Dense()."
            )
    layer = coupling(net)
    if layer is not None and x2 is not None:
        raise NoTheory(
            f"lg.networks.monte_carlo_kernel: {layer!r} couples the samples of a batch, so that "
            "there are kernels among these only. Leave x2 out; x1 is the batch."
        )
    x1 = network.check_inputs("x1", x1)
    x2 = None if x2 is None else network.check_inputs("x2", x2)
    rows, columns = (np.shape(x)[0] for x in (x1, x1 if x2 is None else x2))
    check_fits(
        6.0 * rows * columns * np.result_type(x1).itemsize,
        f"x1: estimates of two kernels of {rows} × {columns} samples",
        "Take fewer samples.",
    )
    with precision(x1, x2), interruptible():
        keys = jax.random.split(key, draws)
        scale = network.table.gamma**2 if param.canonical_d > 0 else 1.0
        means, spreads = _moments(network, keys, x1, x2, scale)
        errors = [jnp.sqrt(s / (draws - 1) / draws) for s in spreads]
        estimate = like((*means, *errors), x1, x2)
        return KernelEstimate(*finite_result("monte_carlo_kernel", estimate))


def _moments(network: FiniteNetwork, keys, x1, x2, scale):
    """Return means over draws and sums of squared differences from them, one network at a time."""
    dtype = jnp.result_type(x1)
    x1 = jnp.asarray(x1)
    x2 = None if x2 is None else jnp.asarray(x2, dtype)
    zero = (jnp.zeros((x1.shape[0], (x1 if x2 is None else x2).shape[0]), dtype),) * 2
    return scan_segments(_add, network, (zero, zero), len(keys), keys, x1, x2, scale)[0]


def _add(network: FiniteNetwork, draw, state, keys, x1, x2, scale):
    """Return the moments with another draw added, by Welford's update without cancellation."""
    drawn = _kernels(network, keys[draw], x1, x2, scale)
    count = (draw + 1).astype(x1.dtype)
    steps = jax.tree.map(lambda new, mean: new - mean, drawn, state[0])
    means = jax.tree.map(lambda mean, step: mean + step / count, state[0], steps)
    squares = jax.tree.map(
        lambda total, step, new, mean: total + step * (new - mean), state[1], steps, drawn, means
    )
    return (means, squares), None


def _kernels(network: FiniteNetwork, key, x1, x2, scale):
    """Return f(x)f(x') and the tangent kernel of one network."""
    params = network.draw(key, x1.dtype)
    f1 = network.outputs_of(params, x1)
    if coupling(network.net) is not None:  # and x2 is not given
        rates = network.per_leaf(network.table, "lr")
        tangent = by_products(network.outputs_of, params, rates, x1, x1)
        return scale * jnp.outer(f1, f1), tangent
    f2 = f1 if x2 is None else network.outputs_of(params, x2)
    one = probe(network, params, x1)
    two = one if x2 is None else probe(network, params, x2)
    return scale * jnp.outer(f1, f2), kernels(network, one, two).tangent
