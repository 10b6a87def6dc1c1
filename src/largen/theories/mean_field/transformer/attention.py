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

import numpy as np
from scipy.special import softmax

from largen.theories.mean_field.transformer.operations import (
    Attention,
    Heads,
    OwnAttention,
)
from largen.theories.mean_field.transformer.passes import (
    Context,
    Fields,
    InSequence,
    Pass,
    Weightless,
    pass_of,
)
from largen.theories.mean_field.transformer.populations import averages, grown, plus
from largen.theories.mean_field.transformer.random_matrix import Diverged
from largen.theories.mean_field.transformer.weights import Descent


@pass_of.register
def _(operation: OwnAttention, context: Context) -> Pass:
    return _OfItself(operation, context)


class _OfItself(Weightless):
    """Attention whose queries, keys and values are its input."""

    def __init__(self, operation: OwnAttention, context: Context):
        self._attention = _Weighted(operation.scale, 1.0, context)

    def forward(self, x: Fields) -> Fields:
        return self._attention.forward(x, x, x)

    def backward(self, g: Fields) -> Fields:
        queries, keys, values = self._attention.backward(g)
        return plus(plus(queries, keys), values)


@pass_of.register
def _(operation: Attention, context: Context) -> Pass:
    return _OfQueriesAndKeys(operation, context)


class _OfQueriesAndKeys:
    """Attention with weights of its own."""

    def __init__(self, operation: Attention, context: Context):
        parts = (operation.queries, operation.keys, operation.values)
        self._parts = [InSequence(part, context) for part in parts]
        self._attention = _Weighted(operation.scale, operation.share, context, operation.causal)
        self._heads = None if operation.heads is None else _InHeads(operation.heads, context)

    def forward(self, x: Fields) -> Fields:
        found = [part.forward(x) for part in self._parts]
        if self._heads is None:
            return self._attention.forward(*found)
        return self._heads.join(self._attention.forward(*map(self._heads.split, found)))

    def backward(self, g: Fields) -> Fields:
        if self._heads is None:
            found = self._attention.backward(g)
        else:
            found = map(self._heads.join, self._attention.backward(self._heads.split(g)))
        queries, keys, values = (
            part.backward(each) for part, each in zip(self._parts, found, strict=True)
        )
        return plus(plus(queries, keys), values)

    def step(self, step: Descent) -> None:
        for part in self._parts:
            part.step(step)


class _InHeads:
    """Rows of a population as values at the neurons of each head, and back."""

    def __init__(self, heads: Heads, context: Context):
        self._size, self._neurons = heads.size, context.population(heads.population).size

    def split(self, x: Fields) -> Fields:
        """Return values (sample, head, position, neuron) of rows (sample, position, coordinate)."""
        x = self._neurons**0.5 * grown(x, (*x.shape[:2], self._neurons))
        return np.swapaxes(x.reshape(*x.shape[:2], -1, self._size), 1, 2)

    def join(self, values: Fields) -> Fields:
        """Return rows (sample, position, coordinate) of values."""
        x = np.swapaxes(values, 1, 2)
        return x.reshape(*x.shape[:2], -1) / self._neurons**0.5


class _Weighted:
    """Sums of values with the weights softmax(c⟨q_s k_t⟩), which are scalars of a population.

    With fields (sample, head, position, neuron) there are weights of each head, and the products of
    queries and keys are sums.
    """

    def __init__(self, scale: float, share: float, context: Context, causal: bool = False):
        self._scale, self._share, self._causal = scale, share, causal
        self._patterns, self._place = context.patterns, len(context.patterns)
        context.patterns.append(None)

    def forward(self, queries: Fields, keys: Fields, values: Fields) -> Fields:
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

    def backward(self, g: Fields) -> tuple[Fields, Fields, Fields]:
        """Return the backward fields of queries, keys and values."""
        queries, keys, values = (each[: len(g)] for each in self._fields)
        weights = self._weights[: len(g)]
        e = averages(g, values)
        slope = weights * (e - np.sum(weights * e, -1, keepdims=True)) * self._share * self._scale
        transposed = np.swapaxes(slope, -1, -2)
        return slope @ keys, transposed @ queries, np.swapaxes(weights, -1, -2) @ g
