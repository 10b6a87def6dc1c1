"""Attention with queries, keys and values whose logits are averages over keys, as a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from largen.architectures.queries_keys_values import QueriesKeysValues
from largen.bibliography import cites
from largen.programs.builder import Builder
from largen.programs.operations import Attend
from largen.scalars import flag, integer, real


@cites("yang2022tensor", "bordelon2024transformer")
@dataclass(frozen=True, repr=False, init=False)
class QKVAttention(QueriesKeysValues):
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
    :class:`largen.layers.MultiHeadAttention`.

    Parameters
    ----------
    queries, keys, values
        Layers that end in affine maps and keep the spatial axes, ``Dense()`` by default.
    heads
        The number of heads, at every width.
    logit_scale
        c, of order one: with c = √d₀ logits agree at the head dimension d₀ with the usual q·k/√d.
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
        super().__init__(queries, keys, values)
        object.__setattr__(self, "heads", integer("heads", heads, at_least=1))
        object.__setattr__(self, "logit_scale", real("logit_scale", logit_scale))
        object.__setattr__(self, "causal", flag("causal", causal))

    def lower(self, program: Builder, value: int) -> int:
        """Append queries, keys, values and attention with logits q·k/d."""
        attention = Attend(
            self.lower_parts(program, value),
            concentrated=True,
            scale=self.logit_scale,
            causal=self.causal,
            heads=self.heads,
        )
        return program.add(attention, program.signal(attention.reads[-1]))
