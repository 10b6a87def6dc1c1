"""Multi-head attention with independent queries and keys, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.architectures.queries_keys_values import QueriesKeysValues
from largen.errors import one_of
from largen.scalars import LARGEST_SEED, integer

MECHANISMS = ("softmax", "identity")


@dataclass(frozen=True, repr=False, init=False)
class MultiHeadAttention(QueriesKeysValues):
    """Dot-product attention with many heads and logits q·k/√d, as in transformers.

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
        The number of heads that are drawn for a kernel, half of them mirror images of the others.
        The statistical error of the kernel falls as the inverse square root of this number;
        :func:`largen.kernel_estimate` returns it. Finite networks do not depend on it.
    seed
        The seed of these draws.
    mechanism
        ``"softmax"``; or ``"identity"``, for which the logits themselves are the weights: its
        kernels are exact, without draws.

    Notes
    -----
    The kernels of all samples of a call are computed together: n samples of P positions take (nP)³
    multiplications for each pair of draws, and memory for about 16 (nP)² numbers.

    Examples
    --------
    >>> import largen as lg
    >>> lg.Residual(lg.serial(lg.MultiHeadAttention(queries=lg.Dense(weight_std=2.0)), lg.Dense()))
    Residual(serial(MultiHeadAttention(Dense(weight_std=2.0), Dense(), Dense()), Dense()))
    """

    draws: int = 512
    seed: int = 0
    mechanism: str = "softmax"

    def __init__(
        self,
        queries: Any = None,
        keys: Any = None,
        values: Any = None,
        *,
        draws: int = 512,
        seed: int = 0,
        mechanism: str = "softmax",
    ):
        super().__init__(queries, keys, values)
        object.__setattr__(self, "draws", integer("draws", draws, at_least=2))
        object.__setattr__(self, "seed", integer("seed", seed, at_least=0, at_most=LARGEST_SEED))
        object.__setattr__(self, "mechanism", one_of("mechanism", mechanism, MECHANISMS))

    def with_draws(self, draws: int) -> MultiHeadAttention:
        """Return the same attention with another number of draws."""
        return self._with(draws=draws)

    def with_seed(self, seed: int) -> MultiHeadAttention:
        """Return the same attention with another seed."""
        return self._with(seed=seed)

    def _with(self, **options: Any) -> MultiHeadAttention:
        own = {"draws": self.draws, "seed": self.seed, "mechanism": self.mechanism}
        return type(self)(*self.branches, **(own | options))
