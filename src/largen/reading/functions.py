"""Elementwise functions of models as activations, with their constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from largen.architectures import Activation
from largen.expectations import elu, leaky_relu, with_kinks


@dataclass(frozen=True)
class Formula:
    """An elementwise function with constants; two of the same name and constants are equal."""

    name: str
    constants: tuple[float, ...] = ()

    @property
    def __name__(self) -> str:
        return f"{self.name}{self.constants or ''}"

    def __call__(self, x: Any) -> Any:
        """Return φ(x)."""
        return FORMULAS[self.name](x, *self.constants)


FORMULAS: dict[str, Callable[..., Any]] = {
    "shift": lambda x, by: x + by,
    "power": lambda x, exponent: x ** int(exponent),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "softplus": lambda x, beta: jax.nn.softplus(beta * x) / beta,
    "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    "log_sigmoid": jax.nn.log_sigmoid,
    "softsign": jax.nn.soft_sign,
    "celu": jax.nn.celu,
    "clip": jnp.clip,
    "above": lambda x, low: jnp.maximum(x, low),
    "below": lambda x, high: jnp.minimum(x, high),
    "hard_sigmoid": jax.nn.hard_sigmoid,
    "hard_swish": jax.nn.hard_swish,
}
# Of functions of one number, the points where they are not smooth.
_KINKS: dict[str, Callable[..., tuple[float, ...]]] = {
    "softsign": lambda: (0.0,),
    "celu": lambda alpha: (0.0,),
    "clip": lambda low, high: (low, high),
    "above": lambda low: (low,),
    "below": lambda high: (high,),
    "hard_sigmoid": lambda: (-3.0, 3.0),
    "hard_swish": lambda: (-3.0, 3.0),
}
NAMED = frozenset({
    "relu", "tanh", "sigmoid", "silu", "gelu", "erf", "sin", "cos", "exp", "abs", "selu",
})  # fmt: skip


def activation(name: str, *constants: float) -> Activation:
    """Return the activation of a name, with its constants.

    >>> activation("relu"), activation("shift", 1.0)
    (Activation('relu'), Activation('shift(1.0,)'))
    """
    if name in NAMED:
        return Activation(name)
    if name == "leaky_relu":
        return Activation(leaky_relu(*constants))
    if name == "elu":
        return Activation(elu(*constants))
    formula = Formula(name, tuple(map(float, constants)))
    if name in _KINKS:
        return Activation(with_kinks(formula, _KINKS[name](*constants)))
    return Activation(formula)
