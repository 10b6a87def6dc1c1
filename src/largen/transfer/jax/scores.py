"""Products of two signals in a forward pass in JAX, followed to what reads them.

The same as :mod:`largen.transfer.torch.watching`, for the primitives of a jaxpr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

VIEWS = frozenset({
    "reshape", "transpose", "squeeze", "broadcast_in_dim", "convert_element_type", "select_n",
    "slice", "copy", "neg", "expand_dims", "rev", "dynamic_slice", "gather",
})  # fmt: skip
SIZES = VIEWS | {"add", "add_any", "sub", "max", "min", "abs", "reduce_sum", "reduce_max", "sqrt"}
ADDS = frozenset({"add", "add_any", "sub", "tanh", "max", "min"})
MIXED = 4  # vectors that are combined to a direction


@dataclass(eq=False)
class Score:
    """A product of two signals, or of two weights, and what follows it up to factors."""

    array: Any
    terms: int  # the number of terms of each sum
    entries: int  # the number of sums, of a product of weights; 0 for signals
    needed: bool = True  # False for divisors of others, and for what a softmax reads


@dataclass(eq=False)
class Trace:
    """What is known of one value, besides what it depends on."""

    score: Score | None = None  # which it is, up to factors and what is added
    factors: tuple[Any, Any] | None = None  # of which it is the product, entry by entry
    spread: frozenset[int] = frozenset()  # axes along which its entries are copies
    size_of: frozenset[Score] = field(default_factory=frozenset)  # of whose sizes it is computed
    inverse: bool = False  # whether it is one over these


def trace(equation: Any, values: Sequence[Any], array: Any) -> tuple[Trace, bool]:
    """Return what an operation makes of the scores among its values, and whether it makes one."""
    name, made = equation.primitive.name, Trace()
    scores: list[Score] = [v.trace.score for v in values if v.trace.score is not None]
    if name == "mul":
        made.factors = values[0], values[1]
        made.score = _multiplied(values, array)
    elif name == "div" and values[0].trace.score is not None:
        made.score = scores[0]
        scores[0].array = array
        _leave_out(values[1], scores[0])
    elif name in VIEWS | ADDS and scores:
        made.score = scores[0]
        if name in VIEWS and any(v.array is scores[0].array for v in values):
            scores[0].array = array
    if name in ("reshape", "convert_element_type", "copy"):
        made.factors = values[0].trace.factors
    if name == "broadcast_in_dim":
        kept = equation.params["broadcast_dimensions"]
        before = values[0].array.shape
        made.spread = frozenset(range(array.ndim)) - {
            axis for axis, size in zip(kept, before, strict=True) if size == array.shape[axis]
        }
    one_over = (name == "div" and values[0].trace.score is None) or name == "rsqrt"
    one_over = one_over or (name == "integer_pow" and equation.params["y"] < 0)
    if name in SIZES or one_over:
        sizes = [v.trace.size_of for v in values]
        made.size_of = frozenset(scores).union(*sizes)
        made.inverse = bool(made.size_of) and (one_over or any(v.trace.inverse for v in values))
    terms = _terms(equation, values)
    if terms and made.score is None:
        sides = values[:2] if name == "dot_general" else values[0].trace.factors
        data = any(v.data for v in sides)
        made.score = Score(array, terms, 0 if data else array.size)
        for side in sides:
            if side.trace.inverse:
                _leave_out(side, made.score)
        return made, True
    return made, False


def _terms(equation: Any, values: Sequence[Any]) -> int:
    """Return the number of terms of a sum over products of two trained sides; 0 of others."""
    name = equation.primitive.name
    if name == "dot_general":
        (axes, _), _ = equation.params["dimension_numbers"]
        terms = prod(values[0].array.shape[axis] for axis in axes) if axes else 0
        return terms if _both(*values[:2]) else 0
    factors = values[0].trace.factors if name == "reduce_sum" else None
    if factors is None or factors[0] is factors[1] or not _both(*factors):
        return 0
    whole, axes = values[0].array.shape, equation.params["axes"]
    if factors[0].array.shape == whole and any(set(axes) & v.trace.spread for v in factors):
        return 0
    return prod(whole[axis] for axis in axes)


def _both(one: Any, other: Any) -> bool:
    """Whether two sides both are trained signals, or both trained weights."""
    return one.trained and other.trained and one.data == other.data


def _multiplied(values: Sequence[Any], array: Any) -> Score | None:
    """Return the scores that a product with another value is, if that is a mere factor."""
    for first, second in (values, values[::-1]):
        score = first.trace.score
        if score is not None and (second.trace.inverse or not second.data):
            score.array = array
            if second.trace.inverse:
                _leave_out(second, score)
            return score
        if first.trace.inverse:
            _leave_out(first, None)
    return None


def _leave_out(divisor: Any, but: Score | None) -> None:
    """Leave out the scores that others are divided by."""
    for score in (divisor.trace.score, *divisor.trace.size_of):
        if score is not None and score is not but:
            score.needed = False


def growing(small: Mapping[str, Score], large: Mapping[str, Score]) -> dict[str, int | None]:
    """Return the places of products whose terms grow → the axis of the result that grows."""
    found = {}
    for place, one in small.items():
        other = large.get(place)
        if other is None or not one.needed or one.terms >= other.terms:
            continue
        if one.entries == other.entries:
            sizes = enumerate(zip(one.array.shape, other.array.shape, strict=True))
            found[place] = next((axis for axis, (a, b) in sizes if a != b), None)
    return found


def along_numbers(z: Any, seed: int) -> Any:
    """Return the mean of a tensor times fixed Gaussian numbers."""
    finite = jnp.where(jnp.isfinite(z), z, 0.0)  # masked logits may be −∞
    return (finite * jax.random.normal(jax.random.key(seed), z.shape, z.dtype)).mean()


def along_itself(z: Any, axis: int | None, seed: int) -> Any:
    """Return the mean of a tensor along vectors of its own if an axis of it grows."""
    if axis is None:
        return along_numbers(z, seed)
    vectors = jnp.moveaxis(z, axis, -1).reshape(-1, z.shape[axis])
    own = jax.lax.stop_gradient(vectors)
    shares = jax.random.normal(jax.random.key(seed), (MIXED, len(own), 1), z.dtype)
    direction = sum(share * jnp.roll(own, i, 0) for i, share in enumerate(shares))
    size = jnp.sqrt(jnp.square(own).mean())
    return (vectors * direction).mean() / jnp.where(size > 0, size, 1.0)
