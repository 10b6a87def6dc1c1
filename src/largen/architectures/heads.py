"""Multi-head attention with independent queries and keys, as a record."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any
from zlib import crc32

from largen.architectures.queries_keys_values import QueriesKeysValues
from largen.bibliography import cites
from largen.errors import InvalidInput, one_of
from largen.programs.builder import Builder
from largen.programs.operations import Attend
from largen.scalars import LARGEST_SEED, flag, integer, real

MECHANISMS = ("softmax", "identity")


@cites("hron2020infinite")
@dataclass(frozen=True, repr=False, init=False)
class MultiHeadAttention(QueriesKeysValues):
    """Dot-product attention with many heads and logits c q·k/√d, as in transformers.

    Queries, keys and values are maps of the same input, and their features are split among the
    heads, d features of queries and keys for each: y_s = Σ_t softmax_t(c q_s·k_t/√d) v_t within a
    head. Outputs are mixed by the affine map behind it: ``serial(MultiHeadAttention(), Dense())``.

    The number of heads grows with the width N, and logits do not concentrate: they differ from
    head to head. With ``key_size=d`` there are as many heads as d fits into the number of keys,
    and each of them has independent queries and keys of d Gaussian features at initialisation. By
    default d grows as well: a network has as many heads as the largest divisor of N up to √N, and
    logits are Gaussian in the limit (Hron, Bahri, Sohl-Dickstein and Novak 2020, *Infinite
    attention*, 1/√d scaling). In both cases kernels are means over heads, estimated from draws.
    The limit of many heads under training is solved for heads of a fixed size
    (:class:`largen.theories.AttentionMeanField`).

    Parameters
    ----------
    queries, keys, values
        Layers that end in affine maps and keep the spatial axes, ``Dense()`` by default.
    key_size
        d, the number of features of queries and keys in each head, at every width; None for the
        limit of infinitely many.
    logit_scale
        c, of order one. With c = c'/√d logits are those of :class:`largen.QKVAttention`.
    causal
        Whether a position attends to itself and earlier positions only, in the order in which
        positions are stored.
    draws
        The number of heads that are drawn for a kernel, half of them mirror images of the others.
        The statistical error of the kernel falls as the inverse square root of this number;
        :func:`largen.kernels.averaged_kernel` returns it. Finite networks do not depend on it.
    seed
        The seed of these draws.
    mechanism
        ``"softmax"``; or ``"identity"``, for which the logits themselves are the weights of all
        positions: its kernels are exact, without draws, and do not depend on ``key_size``.

    Raises
    ------
    InvalidInput
        If ``key_size`` is not a positive integer, ``logit_scale`` is not a finite number, the
        mechanism is unknown, a branch is not a layer, or ``"identity"`` is asked for with
        ``causal`` or a ``logit_scale``, which are options of the softmax.

    Notes
    -----
    The kernels of all samples of a call are computed together: n samples of P positions take (nP)³
    multiplications for each pair of draws, and memory for about 16 (nP)² numbers.

    Examples
    --------
    >>> import largen as lg
    >>> heads = lg.layers.MultiHeadAttention(
    ...     queries=lg.Dense(weight_std=2.0), key_size=4, causal=True
    ... )
    >>> lg.Residual(lg.serial(heads, lg.Dense())).branch.layers[0]
    MultiHeadAttention(Dense(weight_std=2.0), Dense(), Dense(), key_size=4, causal=True)
    """

    key_size: int | None = None
    logit_scale: float = 1.0
    causal: bool = False
    draws: int = 512
    seed: int = 0
    mechanism: str = "softmax"

    def __init__(
        self,
        queries: Any = None,
        keys: Any = None,
        values: Any = None,
        *,
        key_size: int | None = None,
        logit_scale: float = 1.0,
        causal: bool = False,
        draws: int = 512,
        seed: int = 0,
        mechanism: str = "softmax",
    ):
        super().__init__(queries, keys, values)
        checked = {
            "key_size": None if key_size is None else integer("key_size", key_size, at_least=1),
            "logit_scale": real("logit_scale", logit_scale),
            "causal": flag("causal", causal),
            "draws": integer("draws", draws, at_least=2),
            "seed": integer("seed", seed, at_least=0, at_most=LARGEST_SEED),
            "mechanism": one_of("mechanism", mechanism, MECHANISMS),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.mechanism == "identity" and (self.causal or self.logit_scale != 1):
            raise InvalidInput(
                "mechanism: 'identity' has all positions as keys and the logits q·k/√d; causal and "
                "logit_scale are options of 'softmax'. A scale can be that of the queries: "
                "queries=lg.Dense(weight_std=…)."
            )

    def lower(self, program: Builder, value: int) -> int:
        """Append queries, keys, values and attention with logits q·k/√d."""
        seed = program.seed(crc32(repr((program.path, self.seed)).encode()))
        attention = Attend(
            self.lower_parts(program, value),
            concentrated=False,
            softmax=self.mechanism == "softmax",
            scale=self.logit_scale,
            causal=self.causal,
            key_size=self.key_size,
            draws=self.draws,
            seed=seed,
        )
        return program.add(attention, program.signal(attention.reads[-1]))

    def with_seed(self, seed: int) -> MultiHeadAttention:
        """Return the same attention with another seed."""
        given = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return type(self)(*self.branches, **(given | {"seed": seed}))
