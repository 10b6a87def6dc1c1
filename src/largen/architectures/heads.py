"""Attention of many heads whose queries and keys are drawn for themselves, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.architectures.branches import Branches
from largen.architectures.layers import Dense
from largen.arrays import integer


@dataclass(frozen=True, repr=False, init=False)
class MultiHeadAttention(Branches):
    """Dot-product attention of many heads with logits q·k/√d, as transformers have it.

    Queries, keys and values are maps of the same input, and their features are split among the
    heads, d for each: y_p = Σ_r softmax_r(q_p·k_r/√d) v_r within a head. A network of width N
    has as many heads as the largest divisor of N up to √N. Outputs are mixed by the affine map
    behind it: ``serial(MultiHeadAttention(), Dense())``.

    With many heads of many features, logits are Gaussian and independent from head to head, and
    do not concentrate (Hron, Bahri, Sohl-Dickstein and Novak 2020, *Infinite attention*, 1/√d
    scaling): the kernels are means over them, estimated from draws.

    Parameters
    ----------
    queries, keys, values
        Layers that end in affine maps and keep the spatial axes, ``Dense()`` by default.
    draws
        How many heads kernels draw, half of them mirror images of the others: their statistical
        error falls as its root, and :func:`largen.kernel_estimate` tells it. Finite networks
        do not look at it.
    seed
        Of these draws.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Residual(lg.serial(lg.MultiHeadAttention(queries=lg.Dense(2.0)), lg.Dense()))
    Residual(serial(MultiHeadAttention(Dense(weight_std=2.0), Dense(), Dense()), Dense()))
    """

    draws: int = 512
    seed: int = 0

    def __init__(
        self,
        queries: Any = None,
        keys: Any = None,
        values: Any = None,
        *,
        draws: int = 512,
        seed: int = 0,
    ):
        super().__init__(*(Dense() if b is None else b for b in (queries, keys, values)))
        object.__setattr__(self, "draws", integer("draws", draws, at_least=2))
        object.__setattr__(self, "seed", integer("seed", seed, at_least=0))
