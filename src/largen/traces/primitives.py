"""What each primitive of JAX is: the one table that readings of a jaxpr ask.

A reading that can treat all primitives of a kind alike names the kind; what only one primitive of a
kind needs stands in the reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Each entry of the result is a function of the entries at the same place in the arguments.
ELEMENTWISE = frozenset({
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "cosh", "device_put",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt", "max",
    "min", "mul", "ne", "neg", "nextafter", "not", "or", "population_count", "pow", "real",
    "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stage", "stop_gradient", "sub", "tan", "tanh", "xor",
})  # fmt: skip
# All entries of the argument, with their axes arranged otherwise.
VIEWS = frozenset({"reshape", "transpose", "squeeze", "expand_dims", "rev"})
# Entries of the argument in several places, or numbers that depend on nothing.
COPIES = frozenset({"broadcast_in_dim", "tile", "iota"})
# Some entries of the argument, at places that are known or given.
GATHERS = frozenset({"slice", "dynamic_slice", "gather", "pad"})
# New entries at places of the argument.
SCATTERS = frozenset({
    "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max",
    "dynamic_update_slice",
})  # fmt: skip
JOINS = frozenset({"concatenate", "stack"})
# One number for all entries along some axes.
REDUCTIONS = frozenset({
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax",
    "argmin",
})  # fmt: skip
# As many numbers along an axis as before.
CUMULATIVE = frozenset({"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"})
ALONG_AXES = REDUCTIONS | CUMULATIVE | {"sort", "top_k"}
WINDOWS = frozenset({
    "reduce_window_sum", "reduce_window_max", "reduce_window_min", "reduce_window",
})  # fmt: skip
CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated"})
DRAWS = frozenset({"random_bits", "threefry2x32"})
LOOPS = frozenset({"scan", "while", "cond"})

_NAMES = ("axes", "axis", "dimension", "dimensions")  # the options that say along which axes


def axes_of(name: str, options: Mapping[str, Any], rank: int) -> tuple[int, ...]:
    """Return the axes along which a primitive acts on an argument of a rank."""
    if name == "top_k":
        return (options.get("axis", -1) % rank,)
    found = next(options[key] for key in _NAMES if key in options)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)
