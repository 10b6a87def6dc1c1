"""Where a function uses its parameters in affine maps, read from its jaxpr.

A use is a product of a parameter array W, up to the order of its entries and a constant factor,
with something else: ``dot_general``, a convolution, or rows taken from a table. Its output is
linear in W, so that the derivative of f by W through this use is Σ_t a_t ⊗ δ_t, with the other
operand a and the cotangent δ of the output. The sum over t is over positions.

A parameter array that is used in any other way as well is *plain*.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, primitives

from largen.traces.walk import PLAIN_CALLS, Walk, called, evaluated, written_out

Labels = tuple[Hashable, ...]
MOST_STEPS = 32  # of a loop that is written out


class View(NamedTuple):
    """A parameter array times a constant, with its entries in another order."""

    leaf: int  # index of the array
    base: Hashable  # the reshapes that led here; axes of views with the same base can be compared
    axes: Labels  # a label for each axis of the view
    scale: Any
    # Of an array that is a stack: the label of the axis, and the place of the entry that is seen.
    part: Hashable = None

    def reshaped(self, shape: Sequence[int]) -> View:
        """Return the view in another shape."""
        base = (self.base, self.axes, tuple(shape))
        return self._replace(base=base, axes=tuple(range(len(shape))))


class Value(NamedTuple):
    """A value during a pass; ``known`` if neither parameters nor samples enter it."""

    array: Any
    view: View | None = None
    known: bool = False


@dataclass(frozen=True)
class Use:
    """An affine map's use of a parameter array: ∂f/∂W = Σ_t a_t ⊗ δ_t."""

    # leaf, base: as in View.
    leaf: int
    base: Hashable
    # of_input, of_output: labels of the axes of a and of δ behind the axis of positions; shared
    # labels are those of a batch, over which there is no sum.
    of_input: Labels
    of_output: Labels
    # shape, dtype: of the output.
    shape: tuple[int, ...]
    dtype: Any
    part: Hashable  # as in View
    # Brings a cotangent of the output into the shape (position, *of_output).
    arrange: Callable[[Any], Any]


@dataclass
class Pass:
    """A pass through a function, which adds taps to the outputs of affine maps."""

    # What is added to the outputs of all uses in their order; None for nothing.
    taps: Sequence[Any] | None = None
    # uses, inputs: the uses, and the operand a of each, of shape (position, *of_input).
    uses: list[Use] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    # Indices of parameter arrays that are used in another way.
    plain: set[int] = field(default_factory=set)

    def outputs(self, closed: ClosedJaxpr, parameters: Sequence[Any], x: Any) -> list[Any]:
        """Return the outputs of a function of flat parameters and samples."""
        values = [
            Value(array, View(leaf, (), tuple(range(np.ndim(array))), 1.0))
            for leaf, array in enumerate(parameters)
        ]
        walk = Walk(self._apply, lambda array: Value(array, known=True), _inside)
        outputs = walk.run(closed, [*values, Value(x)])
        self._mark_plain(outputs)
        return [value.array for value in outputs]

    def _mark_plain(self, values: Sequence[Value]) -> None:
        self.plain.update(value.view.leaf for value in values if value.view is not None)

    def _apply(self, equation: Any, values: list[Value]) -> list[Value]:
        arrays = [value.array for value in values]
        views = [value.view for value in values if value.view is not None]
        known = all(value.known for value in values)
        use = _use(equation, values) if len(views) == 1 else None
        if use is not None:
            made, operand = use
            (output,) = evaluated(equation, arrays)
            if self.taps is not None:
                output = output + self.taps[len(self.uses)]
            self.uses.append(made)
            self.inputs.append(operand)
            return [Value(output)]
        outputs = evaluated(equation, arrays)
        view = _moved(equation, values) if len(views) == 1 else None
        if view is None:
            self._mark_plain(values)
        return [Value(output, view, known) for output in outputs]


def _inside(equation: Any, values: list[Value]) -> ClosedJaxpr | None:
    """Return the jaxpr of a call, and the steps of a short loop that uses parameters."""
    name = equation.primitive.name
    short = name == "scan" and equation.params["length"] <= MOST_STEPS
    if (short or name == "unstack") and any(value.view for value in values):
        return written_out(equation)
    return called(equation) if name in PLAIN_CALLS else None


def _view_among(values: Sequence[Value]) -> tuple[int, View]:
    """Return the place of the first view among values, and the view."""
    return next((i, value.view) for i, value in enumerate(values) if value.view is not None)


def _moved(equation, values: Sequence[Value]) -> View | None:
    """Return the view that an equation makes of a view, None if it does something else."""
    at, view = _view_among(values)
    others, out = [*values[:at], *values[at + 1 :]], equation.outvars[0].aval
    match equation.primitive.name:
        case "transpose":
            return view._replace(axes=tuple(view.axes[i] for i in equation.params["permutation"]))
        case "reshape" | "squeeze" | "broadcast_in_dim" if out.size == values[at].array.size:
            return None if others else view.reshaped(out.shape)
        case "slice":
            return _part(view, equation)
        case "convert_element_type" | "copy" | "copy_p" | "reduce_precision":
            return view if jnp.issubdtype(out.dtype, np.floating) else None
        case "neg":
            return view._replace(scale=-view.scale)
        case "mul" if others[0].known and np.ndim(others[0].array) == 0:
            return view._replace(scale=view.scale * others[0].array)
        case "div" if at == 0 and others[0].known and np.ndim(others[0].array) == 0:
            return view._replace(scale=view.scale / others[0].array)
    return None


def _part(view: View, equation: Any) -> View | None:
    """Return one entry of a stack of arrays, None for other parts of an array."""
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    cut = [i for i, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    if view.part is not None or len(cut) != 1 or after[cut[0]] != 1:
        return None
    (at,) = cut
    label = view.axes[at]
    part = label, equation.params["start_indices"][at]
    return view._replace(base=("part", view.base, label), part=part)


def _use(equation, values: Sequence[Value]) -> tuple[Use, Any] | None:
    """Return the use of a parameter array in an affine map and its other operand, or None."""
    at, view = _view_among(values)
    read = _READERS.get(equation.primitive)
    if read is None or (operands := read(equation, values, at, view)) is None:
        return None
    (output,) = equation.outvars
    operand, base, of_input, of_output, arrange = operands
    use = Use(
        view.leaf,
        base,
        of_input,
        of_output,
        output.aval.shape,
        output.aval.dtype,
        view.part,
        arrange,
    )
    return use, operand * jnp.asarray(view.scale, operand.dtype)


def _product(equation, values: Sequence[Value], at: int, view: View):
    """A ``dot_general``: positions are the free axes of the other operand."""
    other = values[1 - at].array
    contracted, batch = ([*sides] for sides in equation.params["dimension_numbers"])
    mine, its = ((contracted[i], batch[i]) for i in (at, 1 - at))
    free = [i for i in range(len(view.axes)) if i not in (*mine[0], *mine[1])]
    positions = [i for i in range(other.ndim) if i not in (*its[0], *its[1])]
    count = prod(other.shape[i] for i in positions)
    operand = jnp.transpose(other, (*positions, *its[1], *its[0]))
    operand = operand.reshape(count, *operand.shape[len(positions) :])
    labels = [tuple(view.axes[i] for i in axes) for axes in (mine[1], mine[0], free)]
    b, p = len(mine[1]), len(positions)
    first = b if at == 1 else b + len(free)  # where positions begin in the output
    inner = [i for i in range(b, b + p + len(free)) if not first <= i < first + p]

    def arrange(cotangent):
        moved = jnp.transpose(cotangent, (*range(first, first + p), *range(b), *inner))
        return moved.reshape(count, *moved.shape[p:])

    return operand, view.base, labels[0] + labels[1], labels[0] + labels[2], arrange


def _convolution(equation, values: Sequence[Value], at: int, view: View):
    """A convolution: positions are those of the output, operands the patches that it reads."""
    options, other = equation.params, values[1 - at].array
    if at != 1 or options["batch_group_count"] != 1:
        return None
    _, of_kernel, of_output = numbers = options["dimension_numbers"]
    kernel, groups = values[1].array.shape, options["feature_group_count"]
    window = tuple(kernel[i] for i in of_kernel[2:])
    patches = lax.conv_general_dilated_patches(
        other, window, options["window_strides"], options["padding"],
        lhs_dilation=options["lhs_dilation"], rhs_dilation=options["rhs_dilation"],
        dimension_numbers=numbers, precision=lax.Precision.HIGHEST,
    )  # fmt: skip
    order = (of_output[0], *of_output[2:], of_output[1])

    def by_position(array, *features):
        return jnp.transpose(array, order).reshape(-1, *features)

    axes = tuple(view.axes[i] for i in of_kernel)
    inputs, channels = kernel[of_kernel[1]], kernel[of_kernel[0]]
    if groups == 1:
        operand = by_position(patches, inputs, *window)
        return operand, view.base, axes[1:], axes[:1], lambda d: by_position(d, channels)
    operand = by_position(patches, groups, inputs, *window)
    group, within = ("group", axes[0]), ("within", axes[0])
    return (
        operand,
        (view.base, "groups", axes[0], groups),
        (group, *axes[1:]),
        (group, within),
        lambda d: by_position(d, groups, channels // groups),
    )


def _rows_taken(equation, values: Sequence[Value], at: int, view: View):
    """Rows of a table: the other operand says which ones, in one-hot vectors."""
    table, options = values[0].array, equation.params
    numbers = options["dimension_numbers"]
    rank, out = table.ndim, equation.outvars[0].aval
    whole_rows = (
        at == 0
        and tuple(numbers.start_index_map) == (0,) == tuple(numbers.collapsed_slice_dims)
        and not numbers.operand_batching_dims
        and tuple(options["slice_sizes"]) == (1, *table.shape[1:])
        and tuple(numbers.offset_dims) == tuple(range(out.ndim - rank + 1, out.ndim))
    )
    if not whole_rows:
        return None
    indices = values[1].array.reshape(-1)
    if options["mode"] == lax.GatherScatterMode.CLIP:
        indices = jnp.clip(indices, 0, len(table) - 1)
    operand = (indices[:, None] == jnp.arange(len(table))).astype(out.dtype)
    return (
        operand, view.base, view.axes[:1], view.axes[1:],
        lambda d: d.reshape(-1, *table.shape[1:]),
    )  # fmt: skip


_READERS = {
    primitives.dot_general_p: _product,
    primitives.conv_general_dilated_p: _convolution,
    primitives.gather_p: _rows_taken,
}
