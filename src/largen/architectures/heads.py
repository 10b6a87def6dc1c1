"""Multi-head attention with independent queries and keys, as a record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from largen.architectures.attention import check_positions
from largen.architectures.branches import Branches
from largen.architectures.layers import Dense
from largen.architectures.signals import Signal
from largen.architectures.traits import check_layer
from largen.errors import InvalidInput, one_of
from largen.scalars import LARGEST_SEED, integer

MECHANISMS = ("softmax", "identity")


@dataclass(frozen=True, repr=False, init=False)
class MultiHeadAttention(Branches):
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
        given = {"queries": queries, "keys": keys, "values": values}
        for name, branch in given.items():
            if branch is not None:
                check_layer(name, branch)
        super().__init__(*(Dense() if b is None else b for b in given.values()))
        object.__setattr__(self, "draws", integer("draws", draws, at_least=2))
        object.__setattr__(self, "seed", integer("seed", seed, at_least=0, at_most=LARGEST_SEED))
        object.__setattr__(self, "mechanism", one_of("mechanism", mechanism, MECHANISMS))

    def __repr__(self) -> str:
        shown = [repr(branch) for branch in self.branches]
        for field in fields(self)[1:]:
            if (value := getattr(self, field.name)) != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def with_draws(self, draws: int) -> MultiHeadAttention:
        """Return the same attention with another number of draws."""
        return self._with(draws=draws)

    def with_seed(self, seed: int) -> MultiHeadAttention:
        """Return the same attention with another seed."""
        return self._with(seed=seed)

    def _with(self, **options: Any) -> MultiHeadAttention:
        own = {"draws": self.draws, "seed": self.seed, "mechanism": self.mechanism}
        return type(self)(*self.branches, **(own | options))

    @property
    def keeps_shape(self) -> bool:
        """Whether queries, keys and values keep the spatial axes and the features per width."""
        return all(branch.keeps_shape for branch in self.branches)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the values; queries and keys must have the same positions."""
        check_positions(self, signal)
        queries, keys, values = (branch.signal_behind(signal) for branch in self.branches)
        for other in (keys, values):
            if (other.space, other.from_data) != (signal.space, False) or queries != keys:
                raise InvalidInput(
                    f"net: queries, keys and values of {self!r} want affine maps that keep the "
                    "spatial axes, and as many queries as keys."
                )
        return values
