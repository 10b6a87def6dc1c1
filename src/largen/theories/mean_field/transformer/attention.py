"""Forward and backward passes of attention.

With backward fields g, logits a and weights s = softmax(a) (Bordelon, Chaudhry and Pehlevan 2024,
*Infinite limits of multi-head transformer dynamics*, arXiv 2405.15712), in the limit of infinite
key size (r are the numbers of features per unit of width),

    a_st = c ⟨q_s k_t⟩,            o_s = Σ_t s_st v_t,
    e_st = ⟨g_s v_t⟩,              ȧ_st = s_st (e_st − Σ_u s_su e_su) r_v/r_k,
    g_q,s = c Σ_t ȧ_st k_t,        g_k,t = c Σ_s ȧ_st q_s,        g_v,t = Σ_s s_st g_s.

In the limit of infinitely many heads of a fixed size d, logits c q_s·k_t/√d, e_st = g_s·v_t and
ȧ_st = s_st (e_st − Σ_u s_su e_su) are sums over the neurons of a head and differ from head to head,
and c/√d takes the place of c in g_q and g_k.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from largen.programs import Attend
from largen.theories.mean_field.transformer.network import Node
from largen.theories.mean_field.transformer.passes import Context, Fields, Pass, Weightless, pass_of
from largen.theories.mean_field.transformer.populations import averages, grown
from largen.theories.mean_field.transformer.random_matrix import Diverged


@pass_of.register
def _(operation: Attend, node: Node, context: Context) -> Pass:
    _, keys, values = context.read_by(node)
    share = values.ratio / keys.ratio
    if operation.concentrated:
        return _Weighted(operation.scale, share, context, operation.causal)
    size = operation.key_size
    assert size is not None
    attention = _Weighted(operation.scale / size**0.5, share, context, operation.causal)
    return _InHeads(attention, size, context.population(node).size)


class _Weighted(Weightless):
    """Sums of values with the weights softmax(c⟨q_s k_t⟩), which are scalars of a population.

    With fields (sample, head, position, neuron) there are weights of each head, and the products of
    queries and keys are sums.
    """

    def __init__(self, scale: float, share: float, context: Context, causal: bool = False):
        self._scale, self._share, self._causal = scale, share, causal
        self._patterns, self._place = context.patterns, len(context.patterns)
        context.patterns.append(None)

    def forward(self, *x: Fields) -> Fields:
        queries, keys, values = x
        logits = self._scale * averages(queries, keys).astype(np.float64)
        if not np.isfinite(logits).all():
            raise Diverged
        if self._causal:
            logits = np.where(np.tri(logits.shape[-1], dtype=bool), logits, -np.inf)
        self._fields, self._weights = (queries, keys, values), softmax(logits, axis=-1)
        pattern = self._weights
        self._patterns[self._place] = pattern.mean(1) if pattern.ndim == 4 else pattern
        self._weights = self._weights.astype(values.dtype)
        return self._weights @ values

    def backward(self, g: Fields) -> Sequence[Fields]:
        """Return the backward fields of queries, keys and values."""
        queries, keys, values = (each[: len(g)] for each in self._fields)
        weights = self._weights[: len(g)]
        e = averages(g, values)
        slope = weights * (e - np.sum(weights * e, -1, keepdims=True)) * self._share * self._scale
        transposed = np.swapaxes(slope, -1, -2)
        return slope @ keys, transposed @ queries, np.swapaxes(weights, -1, -2) @ g


class _InHeads(Weightless):
    """Attention in each head, of rows of a population of heads."""

    def __init__(self, attention: _Weighted, size: int, neurons: int):
        self._attention, self._size, self._neurons = attention, size, neurons

    def forward(self, *x: Fields) -> Fields:
        return self._join(self._attention.forward(*map(self._split, x)))

    def backward(self, g: Fields) -> Sequence[Fields]:
        return [self._join(each) for each in self._attention.backward(self._split(g))]

    def _split(self, x: Fields) -> Fields:
        """Return values (sample, head, position, neuron) of rows (sample, position, coordinate)."""
        x = self._neurons**0.5 * grown(x, (*x.shape[:2], self._neurons))
        return np.swapaxes(x.reshape(*x.shape[:2], -1, self._size), 1, 2)

    def _join(self, values: Fields) -> Fields:
        """Return rows (sample, position, coordinate) of values."""
        x = np.swapaxes(values, 1, 2)
        return x.reshape(*x.shape[:2], -1) / self._neurons**0.5
