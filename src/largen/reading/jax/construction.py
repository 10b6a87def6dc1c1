"""Laws of parameters, read from the jaxpr of the function that draws them.

Random bits become uniform numbers, and these normal ones, by primitives whose laws are known.
Constants are followed as well. The law is then compared with the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.reading.jax.elementwise import FUNCTIONS, is_number
from largen.reading.jax.tracing import computed, inside
from largen.reading.laws import (
    HALF,
    TRUNCATED,
    Law,
    constant,
    inverse_error_function,
    normal,
    uniform,
)
from largen.traces.primitives import DRAWS, VIEWS
from largen.traces.walk import Walk, evaluated

ENDS = 1e-6  # distance from ±1 of uniform numbers whose erf⁻¹ is normal but for rounding
BITS = "random bits"  # stands for the law of bits that fill a mantissa
COPIES = b"copies"  # among the keys of entries of which some may be copies of others
MOST_EQUAL = 1 / 16  # share of equal entries among independent ones, which rounding makes equal
# Primitives that move entries, or change nothing that a law depends on.
SEEN = VIEWS | {
    "broadcast_in_dim", "slice", "dynamic_slice", "copy", "convert_element_type",
    "reduce_precision", "stop_gradient", "nextafter",
}  # fmt: skip


def laws(closed: Any) -> list[Law | str]:
    """Return the law of each result of a jaxpr of a random key, or why there is none."""
    walk = Walk(_step, _constant, inside)
    found = walk.run(closed, ["it is the random key"] * len(closed.in_avals))
    return [f"it is {each}" if each == BITS else each for each in found]


def keys(closed: Any, key: Any) -> list[frozenset[bytes]]:
    """Return the entries of the random keys from which each result of a jaxpr of a key is drawn."""

    def step(equation: Any, given: list[Any]) -> list[Any]:
        own = [of for _, of in given]
        sources = frozenset().union(*own)
        if equation.primitive.name == "random_bits":
            # Of any shape: one is the beginning of the other.
            each = _each_key(given[0][0]())
            sources = frozenset(each)
            own = [frozenset({key}) for key in each]
        if _may_copy(equation, own):
            sources |= {COPIES}
        # Only what keys are made of is evaluated.
        made = cache(lambda: evaluated(equation, [array() for array, _ in given]))
        return [(lambda n=n: made()[n], sources) for n in range(len(equation.outvars))]

    with computed():
        start = (lambda: key), frozenset()
        walk = Walk(step, lambda array: ((lambda: array), frozenset()), inside)
        found = walk.run(closed, [start])
        return [sources for _, sources in found]


def _may_copy(equation: Any, sources: list[frozenset[bytes]]) -> bool:
    """Whether a primitive may put entries that are drawn from a key into several places."""
    match equation.primitive.name:
        case "random_bits" | "concatenate":
            return sum(map(len, sources)) > len(frozenset().union(*sources))
        case "broadcast_in_dim":
            return bool(sources[0]) and equation.outvars[0].aval.size > equation.invars[0].aval.size
    return False


def has_copies(entries: np.ndarray) -> bool:
    """Whether many random entries are those of other places, but for their signs."""
    if entries.size < 2 or entries.dtype.itemsize < 4 or np.all(entries == entries.flat[0]):
        return False
    return np.unique(np.abs(entries)).size < (1 - MOST_EQUAL) * entries.size


def _each_key(array: Any) -> list[bytes]:
    entries = np.asarray(jax.random.key_data(array))
    return [each.tobytes() for each in entries.reshape(-1, entries.shape[-1])]


def _constant(array: Any) -> Law | str:
    if not is_number(array):
        return "it is made of numbers that are not drawn from the key"
    return constant(float(np.asarray(array).flat[0]))


def _step(equation: Any, given: list[Law | str]) -> list[Law | str]:
    """Return the laws behind a primitive."""
    name = equation.primitive.name
    found = _law(name, given, equation.params)
    return [found or f"it is made by {name}, for which no law is known"] * len(equation.outvars)


def _law(name: str, given: list[Law | str], params: Any) -> Law | str | None:
    bits = _of_bits(name, given)
    if bits is not None or not given:
        return bits
    if name in SEEN or (name == "concatenate" and all(each == given[0] for each in given)):
        return given[0]
    laws = [each for each in given if isinstance(each, Law)]
    if name == "concatenate" or len(laws) < len(given):
        return next((each for each in given if isinstance(each, str) and each != BITS), None)
    return _of_laws(name, laws, params)


def _of_laws(name: str, laws: list[Law], params: Any) -> Law | None:
    """Return the law of a function of numbers, of which one may be random."""
    random = [law for law in laws if law.kind != "constant"]
    if not random:
        power = [params["y"]] if name == "integer_pow" else []
        return _evaluated(FUNCTIONS.get(name), [law.mean for law in laws] + power)
    return _changed(name, laws, random[0]) if len(random) == 1 else None


def _of_bits(name: str, given: list[Law | str]) -> Law | str | None:
    """Return random bits, or the uniform numbers that are made of them; None for other values."""
    if name in DRAWS:
        return BITS
    if BITS not in given:
        return None
    if name in ("shift_right_logical", "or"):
        return BITS
    return uniform(1.0, 2.0) if name == "bitcast_convert_type" and given[0] == BITS else None


def _evaluated(function: Callable[..., Any] | None, numbers: list[float]) -> Law | None:
    if function is None:
        return None
    with computed():
        return constant(float(function(*map(jnp.float64, numbers))))


def _changed(name: str, given: list[Law], law: Law) -> Law | None:
    """Return the law of a random number behind a function of it and of numbers."""
    numbers = [each.mean for each in given if each is not law]
    first = given[0] is law
    match name:
        case "mul":
            return law.scaled(numbers[0])
        case "div" if first:
            return law.scaled(1 / numbers[0])
        case "neg":
            return law.scaled(-1.0)
        case "add":
            return law.shifted(numbers[0])
        case "sub":
            return law.shifted(-numbers[0]) if first else law.scaled(-1.0).shifted(numbers[0])
        case "max" | "min" | "clamp" if law.kind in ("uniform", TRUNCATED):
            return law  # the bounds of a bounded law, to which it is clipped against rounding
        case "erf_inv" if law.kind == "uniform":
            half = (3 * law.variance) ** 0.5
            if abs(law.mean) < ENDS and abs(half - 1) < ENDS:
                return normal(0.0, HALF)
            return inverse_error_function(law)
    return None
