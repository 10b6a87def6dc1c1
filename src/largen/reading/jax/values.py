"""A forward pass in JAX with given weights, whose values in between are kept."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.reading.calls import Param, Ref
from largen.reading.jax.recording import Recorder, traced


def double(array: Any) -> Any:
    """Return floats in double precision, and other arrays as they are."""
    array = jnp.asarray(array)
    return array.astype(jnp.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array


def arranged(parameter: Param, entries: Any) -> Any:
    """Return entries of a parameter in the order of axes of an argument, times its factor."""
    order = [axis for axis in parameter.axes or () if axis is not None]
    order += [axis for axis in range(entries.ndim) if axis not in order]
    seen = parameter.seen(entries.shape)
    return jnp.transpose(entries, order).reshape(seen) * parameter.factor


def widened(array: Any, shape: tuple[int, ...]) -> Any:
    """Return an array in a shape, of which it has axes of length one."""
    return array if array.shape == shape else jnp.broadcast_to(array, shape)


class Values(Recorder):
    """Calls with their values, for weights by name, parts of stacks among them."""

    def __init__(self, family: Any, width: int, weights: dict[str, Any], x: Any):
        super().__init__(family.file, family.fixed)
        self._weights = weights
        whole = family.joined(weights)
        self.recorded(traced(family.forward(width), whole, x), list(whole), x)

    def constant(self, array: Any) -> Any:
        """Return an array that depends on nothing, in double precision."""
        return double(array)

    def run(self, name: str, primitive: Any, options: Any, given: Any, line: str) -> list[Any]:
        """Return the results of a primitive."""
        values = map(widened, map(self._value, given), self.shapes)
        made = primitive.bind(*values, **options)
        return [double(each) for each in (made if primitive.multiple_results else [made])]

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, Ref):
            return self.values[argument.place]
        if isinstance(argument, Param):
            return arranged(argument, self._weights[argument.name])
        return argument
