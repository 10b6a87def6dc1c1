"""Attention with queries, keys and values whose logits are averages over keys, as a record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from largen.architectures.attention import check_positions
from largen.architectures.branches import Branches
from largen.architectures.layers import Dense
from largen.architectures.signals import Signal
from largen.architectures.traits import check_layer
from largen.errors import InvalidInput
from largen.scalars import flag, integer, real


@dataclass(frozen=True, repr=False, init=False)
class QKVAttention(Branches):
    """Dot-product attention with a fixed number of heads and logits c q·k/d, as in μP.

    Queries, keys and values are maps of the same input, and their features are split among the
    heads, d features of queries and keys for each: y_s = Σ_t softmax_t(c q_s·k_t/d) v_t within a
    head. Outputs are mixed by the affine map behind it: ``serial(QKVAttention(), Dense())``.

    The scaling 1/d is that of μP (Yang et al. 2022, *Tensor programs V*, Definition 4.1): queries
    and keys become correlated in training, and q·k grows as d. Logits are then averages over the
    features of a head, which do not fluctuate in the limit of infinite width; at initialisation
    they are of order d^(−1/2), and vanish. All heads have the same logits in this limit, which
    therefore does not depend on their number (Bordelon, Chaudhry and Pehlevan 2024, *Infinite
    limits of multi-head transformer dynamics*, arXiv 2405.15712, the limit of infinite key size).

    Logits with the scaling 1/√d, which stay random, are those of
    :class:`largen.MultiHeadAttention`.

    Parameters
    ----------
    queries, keys, values
        Layers that end in affine maps and keep the spatial axes, ``Dense()`` by default.
    heads
        The number of heads, at every width.
    logit_scale
        c, of order one.
    causal
        Whether a position attends to itself and earlier positions only, in the order in which
        positions are stored.

    Raises
    ------
    InvalidInput
        If ``heads`` is not a positive integer, ``logit_scale`` is not a finite number, or a branch
        is not a layer.

    Examples
    --------
    >>> import largen as lg
    >>> block = lg.serial(lg.RMSNorm(), lg.QKVAttention(logit_scale=4.0, causal=True), lg.Dense())
    >>> lg.Residual(block).branch.layers[1]
    QKVAttention(Dense(), Dense(), Dense(), logit_scale=4.0, causal=True)
    """

    heads: int = 1
    logit_scale: float = 1.0
    causal: bool = False

    def __init__(
        self,
        queries: Any = None,
        keys: Any = None,
        values: Any = None,
        *,
        heads: int = 1,
        logit_scale: float = 1.0,
        causal: bool = False,
    ):
        given = {"queries": queries, "keys": keys, "values": values}
        for name, branch in given.items():
            if branch is not None:
                check_layer(name, branch)
        super().__init__(*(Dense() if b is None else b for b in given.values()))
        object.__setattr__(self, "heads", integer("heads", heads, at_least=1))
        object.__setattr__(self, "logit_scale", real("logit_scale", logit_scale))
        object.__setattr__(self, "causal", flag("causal", causal))

    def __repr__(self) -> str:
        shown = [repr(branch) for branch in self.branches]
        for field in fields(self)[1:]:
            if (value := getattr(self, field.name)) != field.default:
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

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
