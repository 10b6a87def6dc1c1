"""Kernels whose rules draw random numbers, with error bars."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer, map_layers
from largen.arrays import known
from largen.bibliography import cites
from largen.errors import instance_of
from largen.kernels.nngp_ntk import kernel
from largen.runs import KernelEstimate
from largen.scalars import integer

MOST_REPLICATES = 10_000


@runtime_checkable
class Seeded(Protocol):
    """A layer whose kernel is estimated from random draws."""

    seed: int

    def with_seed(self, seed: int) -> Layer:
        """Return the same layer with another seed."""
        ...


@cites("hron2020infinite")
def averaged_kernel(
    net: Layer, x1: ArrayLike, x2: ArrayLike | None = None, *, replicates: int = 8, **options: Any
) -> KernelEstimate:
    """Return kernels as means over independent draws of the heads of attention, with errors.

    Each of the ``replicates`` is a :func:`largen.kernel` with other seeds of its
    :class:`largen.layers.MultiHeadAttention` layers, the expectation over random logits of Hron,
    Bahri, Sohl-Dickstein and Novak 2020. All other layers are exact, so that networks without
    attention heads have zero errors. After further layers a kernel from finitely many draws also
    has a bias of order 1/draws, which the errors do not include.

    Parameters
    ----------
    net, x1, x2
        As in :func:`largen.kernel`.
    replicates
        Number of independent estimates, 2 or more.
    options
        Further options of :func:`largen.kernel`.

    Raises
    ------
    InvalidInput
        As in :func:`largen.kernel`, and for fewer than two replicates.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 3, 4))
    >>> attention = lg.layers.MultiHeadAttention(draws=64)
    >>> net = lg.serial(attention, lg.GlobalAvgPool(), lg.Dense())
    >>> result = lg.kernels.averaged_kernel(net, x, replicates=4)
    >>> bool(np.all(result.nngp_error < 0.05 * result.nngp.max()))
    True
    """
    count = integer("replicates", replicates, at_least=2, at_most=MOST_REPLICATES)
    instance_of("net", net, Layer, "a network such as lg.mlp(3)")
    known("x1", x1)
    known("x2", x2)

    def with_seed(number: int) -> Layer:
        def change(layer: Layer, path: Any) -> Layer:
            if isinstance(layer, Seeded):
                return layer.with_seed(layer.seed * count + number)
            return layer

        return map_layers(net, change)

    found = [kernel(with_seed(number), x1, x2, **options) for number in range(count)]
    stacks = [np.stack([np.asarray(each[i], np.float64) for each in found]) for i in (0, 1)]
    dtype = np.asarray(found[0].nngp).dtype
    means = [stack.mean(axis=0).astype(dtype) for stack in stacks]
    errors = [(stack.std(axis=0, ddof=1) / count**0.5).astype(dtype) for stack in stacks]
    return KernelEstimate(*means, *errors)
