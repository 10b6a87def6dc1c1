"""Normalisation in finite networks."""

from __future__ import annotations

from typing import Any

from jax import lax

from largen.networks.rules.dispatch import rule
from largen.programs import Normalise


@rule.register
def _(operation: Normalise, constants: Any, values: tuple[Any, ...]) -> Any:
    (x,) = values
    every = range(x.ndim)
    axes = tuple({"channels": every[-1:], "sample": every[1:], "batch": every[:-1]}[operation.over])
    if operation.centred:
        x = x - x.mean(axis=axes, keepdims=True)
    return x * lax.rsqrt((x**2).mean(axis=axes, keepdims=True) + operation.eps)
