"""What each primitive of JAX is in a graph of nodes, in one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from largen.architectures import AvgPool, GlobalSumPool, SumPool
from largen.reading.calls import Call, registering
from largen.reading.jax import norms
from largen.reading.jax.elementwise import Steps, as_activation, linear
from largen.reading.jax.norms import Mean
from largen.reading.reader import Reader
from largen.reading.values import Value
from largen.reading.views import over_positions, reshape

Rule = Callable[..., Value | Mean]

RULES: dict[str, Rule] = {}
_WHY = (
    (("gather", "dynamic_slice", "slice"), "tokens and parts of arrays have no rule"),
    (("convert_element_type",), "integers, such as tokens, have no rule"),
    (
        ("reduce_max", "reduce_min", "argmax", "argmin", "sort", "top_k", "reduce_window_max"),
        "the maximum of several correlated Gaussians has no kernel; a mean over positions has one",
    ),
    (("stop_gradient",), "no gradient passes it, and the tangent kernel has all of them"),
)
REASONS = {name: why for names, why in _WHY for name in names}

# For functions of a reader, a call and its arguments, by names of primitives.
rule = registering(RULES)


@rule("dot_general")
def _(reader: Reader, call: Call, one: Any, two: Any, dimension_numbers: Any, **rest: Any) -> Value:
    (contracted, batched) = dimension_numbers
    first = reader.is_value(one)
    if first == reader.is_value(two):
        raise reader.refused(
            call,
            "a product of two hidden values, such as attention, has no rule"
            if first
            else "its weight is computed from parameters in a way that is not followed",
        )
    value, weight = (one, two) if first else (two, one)
    summed, of_weight = contracted if first else reversed(contracted)
    axes = _axes(reader, call, weight)
    kept = [axis for place, axis in enumerate(axes) if place not in of_weight]
    if any(map(len, batched)) or len(summed) != 1 or len(kept) != 1 or None in axes:
        raise reader.refused(
            call,
            f"{weight.name} is summed over {len(of_weight)} of its {len(axes)} axes; there is a "
            "rule for a matrix, of which one axis is summed over",
        )
    its = reader.value(value, call)
    others = [place for place in range(len(its.shape)) if place != summed[0]]
    order = (*others, summed[0]) if first else (summed[0], *others)
    place, fan_in = order.index(summed[0]), (axes[of_weight[0]],)
    return reader.affine(call, its.moved(order), place, weight, None, fan_in, kept[0])


def _axes(reader: Reader, call: Call, weight: Any) -> tuple[Any, ...]:
    """Return the axes of a parameter in the order of an argument."""
    shape = reader.shape(weight, call)
    return weight.axes or tuple(range(len(shape)))


@rule("conv_general_dilated")
def _(
    reader: Reader, call: Call, input: Any, weight: Any, window_strides: Any, padding: Any,
    rhs_dilation: Any, dimension_numbers: Any, feature_group_count: int, **rest: Any,
) -> Value:  # fmt: skip
    if any(n != 1 for n in rest["lhs_dilation"]) or rest["batch_group_count"] != 1:
        raise reader.refused(call, "transposed convolutions and groups of samples have no rule")
    inside, of_weight, behind = (tuple(spec) for spec in dimension_numbers)
    value = reader.with_channels(call, reader.value(input, call), inside[1])
    if value.moved(inside).axes != ("sample", "channels", *range(len(inside) - 2)):
        raise reader.refused(call, "its samples or positions are in another order")
    axes = _axes(reader, call, weight)
    fan_out, *summed = (axes[place] for place in of_weight)
    if feature_group_count > 1 and not reader.grows(weight, summed[0]):
        raise reader.refused(
            call,
            f"its {feature_group_count} groups have to be of channels whose number grows with the "
            "width",
        )
    shape = reader.shape(weight, call)
    geometry = {
        "window": tuple(shape[axis] for axis in summed[1:]),
        "strides": tuple(window_strides),
        "padding": tuple(tuple(ends) for ends in padding),
        "dilation": tuple(rhs_dilation),
        "groups": feature_group_count,
    }
    order = tuple(inside[behind.index(place)] for place in range(len(behind)))
    value = value.moved(order)
    return reader.affine(call, value, behind[1], weight, None, tuple(summed), fan_out, geometry)


@rule("function")
def _(reader: Reader, call: Call, input: Any, phi: Steps) -> Value | Mean:
    if (found := _mean(reader, input)) is not None:
        return norms.of_function(reader, call, found, phi)
    value = reader.value(input, call)
    if (line := linear(phi)) is not None:
        return reader.shifted(call, reader.scaled(call, value, line[0]), line[1])
    layer = as_activation(phi)
    node = reader.layer(replace(call, op=layer.activation.name), layer, value)
    return Value(node, value.axes, value.shape, value.data)


def _mean(reader: Reader, argument: Any) -> Mean | None:
    """Return an argument that is a mean over channels, or a value without its mean."""
    found = reader.seen(argument) if reader.is_value(argument) else None
    return None if isinstance(found, Value) else found


@rule("add", "add_any")
def _(reader: Reader, call: Call, one: Any, two: Any, **rest: Any) -> Value:
    return reader.total(call, one, two, 1.0, 1.0)


@rule("sub")
def _(reader: Reader, call: Call, one: Any, two: Any, **rest: Any) -> Value | Mean:
    if _mean(reader, one) is not None or _mean(reader, two) is not None:
        given = (reader.seen(each) if reader.is_value(each) else each for each in (one, two))
        return norms.difference(reader, call, *given)
    return reader.total(call, one, two, 1.0, -1.0)


@rule("mul")
def _(reader: Reader, call: Call, one: Any, two: Any, **rest: Any) -> Value | Mean:
    one, two = (one, two) if reader.is_value(one) else (two, one)
    if not reader.is_value(two):
        return _scaled(reader, call, one, reader.number(two, call))
    for value, by in ((one, two), (two, one)):
        if isinstance(found := _mean(reader, by), norms.Statistic):
            return norms.quotient(reader, call, reader.seen(value), found, inverse=True)
    value, other = reader.value(one, call), reader.value(two, call)
    reader.check_alike(call, value, other)
    return value.at(reader.node(call, "product", value, other), call.shape)


@rule("div")
def _(reader: Reader, call: Call, one: Any, two: Any, **rest: Any) -> Value | Mean:
    if reader.is_value(one) and isinstance(found := _mean(reader, two), norms.Statistic):
        return norms.quotient(reader, call, reader.seen(one), found, inverse=False)
    if reader.is_value(two) or not reader.is_value(one):
        raise reader.refused(call, "only a quotient by a number has a rule")
    return _scaled(reader, call, one, 1 / reader.number(two, call))


@rule("neg")
def _(reader: Reader, call: Call, input: Any, **rest: Any) -> Value | Mean:
    return _scaled(reader, call, input, -1.0)


def _scaled(reader: Reader, call: Call, argument: Any, factor: float) -> Value | Mean:
    """Return an argument times a number."""
    if (found := _mean(reader, argument)) is not None:
        return norms.scaled(reader, call, found, factor)
    return reader.scaled(call, reader.value(argument, call), factor)


@rule("transpose")
def _(reader: Reader, call: Call, input: Any, permutation: Any) -> Value:
    return reader.value(input, call).moved(tuple(permutation))


@rule("reshape", "squeeze", "expand_dims")
def _(reader: Reader, call: Call, input: Any, **rest: Any) -> Value | Mean:
    if (found := _mean(reader, input)) is None:
        return reshape(reader, call, input)
    axes = None
    if call.op == "squeeze" and isinstance(found, norms.Statistic):
        axes = tuple(a for i, a in enumerate(found.axes) if i not in rest["dimensions"])
    return norms.reshaped(reader, call, found, axes)


@rule("broadcast_in_dim")
def _(
    reader: Reader, call: Call, input: Any, broadcast_dimensions: Any, **rest: Any
) -> Value | Mean:
    found = reader.seen(input)
    ones = [n for axis, n in enumerate(call.shape) if axis not in broadcast_dimensions]
    if any(n != 1 for n in ones) or found.shape != tuple(
        call.shape[axis] for axis in broadcast_dimensions
    ):
        raise reader.refused(call, "copies of values along another axis have no rule")
    if isinstance(found, Value):
        return reshape(reader, call, input)
    places = {int(place): i for i, place in enumerate(broadcast_dimensions)}
    old = getattr(found, "axes", ())
    axes = tuple(old[places[i]] if i in places else None for i in range(len(call.shape)))
    return norms.reshaped(reader, call, found, axes)


@rule("reduce_sum")
def _(reader: Reader, call: Call, input: Any, axes: Any, **rest: Any) -> Value | Mean:
    value, over = reader.seen(input), tuple(axes)
    of_channels = isinstance(value, Value) and value.channels in over
    if isinstance(value, norms.Centred) or of_channels:
        return norms.mean(reader, call, value, over)
    return over_positions(reader, call, input, set(over), GlobalSumPool(), False)


@rule("reduce_window_sum")
def _(
    reader: Reader, call: Call, input: Any, window_dimensions: Any, window_strides: Any,
    padding: Any, **rest: Any,
) -> Value:  # fmt: skip
    value = reader.value(input, call)
    space = [place for place, axis in enumerate(value.axes) if isinstance(axis, int)]
    flat = all(n == 1 for i, n in enumerate(window_dimensions) if i not in space)
    plain = all(n == 1 for name in ("base_dilation", "window_dilation") for n in rest[name])
    if value.data or not flat or not plain or space != sorted(space, key=value.axes.__getitem__):
        raise reader.refused(call, "only windows of positions of hidden values have a rule")
    window = tuple(window_dimensions[i] for i in space)
    strides, ends = (tuple(of[i] for i in space) for of in (window_strides, padding))
    pool = SumPool(window, strides=strides, padding=tuple(map(tuple, ends)))
    # The mean is over positions inside the sample: over whole windows if none is outside.
    mean = pool if any(map(any, ends)) else AvgPool(window, strides=strides)
    return value.at(reader.pooled(call, pool, value, mean, math.prod(window)), call.shape)
