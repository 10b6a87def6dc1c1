"""Core operations on each entry alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special


def _add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return x + (y if alpha == 1 else alpha * y)


def _sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return x - (y if alpha == 1 else alpha * y)


def _rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return y - alpha * x


def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return jnp.true_divide(x, y)
    return jnp.floor_divide(x, y) if rounding_mode == "floor" else jnp.trunc(jnp.true_divide(x, y))


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    return jnp.clip(x, low, high)


def _elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    below = alpha * jnp.expm1(input_scale * jnp.minimum(x, 0))
    return scale * jnp.where(x > 0, x, below)


def _celu(x: Any, alpha: Any = 1) -> Any:
    return _elu(x, alpha, 1, 1 / alpha)


def _softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    return jnp.where(beta * x > threshold, x, jax.nn.softplus(beta * x) / beta)


def _glu(x: Any, dim: int = -1) -> Any:
    one, two = jnp.split(x, 2, dim)
    return one * jax.nn.sigmoid(two)


def _log_sigmoid(x: Any) -> Any:
    return jax.nn.log_sigmoid(x), jnp.zeros((0,), x.dtype)


def _logit(x: Any, eps: Any = None) -> Any:
    x = x if eps is None else jnp.clip(x, eps, 1 - eps)
    return special.logit(x)


def _softshrink(x: Any, width: Any = 0.5) -> Any:
    return jnp.where(x > width, x - width, jnp.where(x < -width, x + width, 0))


def _lerp(x: Any, y: Any, weight: Any) -> Any:
    return x + weight * (y - x)


def _pow(x: Any, y: Any) -> Any:
    # A power that is a number is written with it, so that its derivative at 0 is that of x^y.
    return jnp.power(x, y)


def _xlogy(x: Any, y: Any) -> Any:
    return special.xlogy(x, y)


FORMS = {
    "abs": jnp.abs, "acos": jnp.arccos, "acosh": jnp.arccosh, "add": _add,
    "addcdiv": lambda x, a, b, *, value=1: x + value * a / b,
    "addcmul": lambda x, a, b, *, value=1: x + value * a * b,
    "asin": jnp.arcsin, "asinh": jnp.arcsinh, "atan": jnp.arctan, "atan2": jnp.arctan2,
    "atanh": jnp.arctanh, "bitwise_and": jnp.bitwise_and, "bitwise_not": jnp.bitwise_not,
    "bitwise_or": jnp.bitwise_or, "bitwise_xor": jnp.bitwise_xor, "ceil": jnp.ceil, "celu": _celu,
    "clamp": _clamp, "clamp_max": jnp.minimum, "clamp_min": jnp.maximum, "copysign": jnp.copysign,
    "cos": jnp.cos, "cosh": jnp.cosh, "deg2rad": jnp.deg2rad, "digamma": special.digamma,
    "div": _div, "elu": _elu, "eq": jnp.equal, "erf": special.erf, "erfc": special.erfc,
    "erfinv": special.erfinv, "exp": jnp.exp, "exp2": jnp.exp2, "expm1": jnp.expm1,
    "floor": jnp.floor, "floor_divide": jnp.floor_divide, "fmod": jnp.fmod,
    "frac": lambda x: x - jnp.trunc(x), "ge": jnp.greater_equal,
    "gelu": lambda x, *, approximate="none": jax.nn.gelu(x, approximate == "tanh"), "glu": _glu,
    "gt": jnp.greater, "hardshrink": lambda x, width=0.5: jnp.where(jnp.abs(x) > width, x, 0),
    "hardsigmoid": lambda x: jnp.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1),
    "hardtanh": lambda x, low=-1, high=1: jnp.clip(x, low, high), "hypot": jnp.hypot,
    "isfinite": jnp.isfinite, "isinf": jnp.isinf, "isnan": jnp.isnan, "le": jnp.less_equal,
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x), "lerp": _lerp,
    "lgamma": special.gammaln, "log": jnp.log, "log10": jnp.log10, "log1p": jnp.log1p,
    "log2": jnp.log2, "log_sigmoid_forward": _log_sigmoid, "logaddexp": jnp.logaddexp,
    "logical_and": jnp.logical_and, "logical_not": jnp.logical_not, "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor, "logit": _logit, "lt": jnp.less,
    "masked_fill": lambda x, mask, value: jnp.where(mask, value, x),
    "max.other": jnp.maximum, "maximum": jnp.maximum, "min.other": jnp.minimum,
    "minimum": jnp.minimum, "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "mul": jnp.multiply, "nan_to_num": jnp.nan_to_num, "ne": jnp.not_equal, "neg": jnp.negative,
    "pow": _pow, "_prelu_kernel": lambda x, slope: jnp.where(x > 0, x, slope * x),
    "reciprocal": lambda x: 1 / x, "relu": jax.nn.relu, "remainder": jnp.remainder,
    "round": lambda x, *, decimals=0: jnp.round(x, decimals), "rsqrt": jax.lax.rsqrt,
    "rsub": _rsub, "sigmoid": jax.nn.sigmoid, "sign": jnp.sign, "silu": jax.nn.silu,
    "sin": jnp.sin, "sinc": jnp.sinc, "sinh": jnp.sinh, "softplus": _softplus,
    "softshrink": _softshrink, "sqrt": jnp.sqrt, "sub": _sub, "tan": jnp.tan, "tanh": jnp.tanh,
    "threshold": lambda x, at, value: jnp.where(x > at, x, value), "trunc": jnp.trunc,
    "where": jnp.where, "xlogy": _xlogy,
}  # fmt: skip
