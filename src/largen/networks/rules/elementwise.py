"""Functions, sums, products and concatenations in finite networks, and the order of axes."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

import jax.numpy as jnp

from largen.errors import InvalidInput
from largen.networks.rules.dispatch import Features, channels_behind, rule
from largen.programs import (
    BRANCH,
    Concatenate,
    Flatten,
    Function,
    Mask,
    MoveChannels,
    Product,
    Scale,
    Source,
    Sum,
)

Values = tuple[Any, ...]


@rule.register
def _(operation: Function, constants: Any, values: Values) -> Any:
    return operation.phi(values[0])


@rule.register
def _(operation: Mask, constants: Any, values: Values) -> Any:
    return values[0]  # networks are evaluated without dropout


@rule.register
def _(operation: Sum, constants: Any, values: Values) -> Any:
    factors = (constants if factor == BRANCH else factor for factor in operation.factors)
    terms = zip(factors, values, strict=True)
    return reduce(add, (value if factor == 1 else factor * value for factor, value in terms))


@rule.register
def _(operation: Scale, constants: Any, values: Values) -> Any:
    return operation.along.astype(values[0].dtype) * values[0]


@rule.register
def _(operation: Product, constants: Any, values: Values) -> Any:
    return reduce(mul, values)


@rule.register
def _(operation: Concatenate, constants: Any, values: Values) -> Any:
    return jnp.concatenate(values, axis=-1)


@rule.register
def _(operation: Flatten, constants: Any, values: Values) -> Any:
    return values[0].reshape(len(values[0]), -1)


@rule.register
def _(operation: MoveChannels, constants: Any, values: Values) -> Any:
    return jnp.moveaxis(values[0], operation.axis + 1, -1)


@channels_behind.register(Sum)
@channels_behind.register(Product)
def _(operation: Sum | Product, reads: tuple[Features, ...], source: Source) -> int:
    if len(set(reads)) > 1:
        shapes = " and ".join(map(str, dict.fromkeys(reads)))
        raise InvalidInput(f"net: {source} joins features of shapes {shapes}; wanted equal ones.")
    return reads[0][-1]


@channels_behind.register
def _(operation: Concatenate, reads: tuple[Features, ...], source: Source) -> int:
    return sum(features[-1] for features in reads)
