"""A forward pass in JAX, recorded as the primitives of its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from largen.errors import InvalidInput, LargenError
from largen.reading.calls import Call, Param, Record, Ref, leaves_of
from largen.reading.jax.elementwise import is_number
from largen.reading.jax.tracing import has_own_derivatives, inside, line_of
from largen.reading.refusals import refused
from largen.traces.walk import Walk, evaluated

Axes = tuple[int | None, ...]  # of a parameter, None for axes that were put in
ROUNDING = 1e-6  # relative size below which a difference of derivatives is rounding


def traced(apply: Callable[[dict[str, Any], Any], Any], weights: dict[str, Any], x: Any) -> Any:
    """Return the jaxpr of a function of weights, or of their shapes, by name and of samples."""
    names = list(weights)

    def f(given: list[Any], x: Any) -> Any:
        return apply(dict(zip(names, given, strict=True)), x)

    try:
        closed, shape = jax.make_jaxpr(f, return_shape=True)(list(weights.values()), x)
    except LargenError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
        raise InvalidInput(
            f"x: apply(parameters, x) fails on samples of shape {x.shape} and {x.dtype}: {said}"
        ) from error
    if not hasattr(shape, "shape"):
        raise InvalidInput(
            "apply: wanted an array of outputs from apply(parameters, x), got "
            f"{type(shape).__name__}."
        )
    return closed


def record(
    closed: Any, names: Sequence[str], x: Any, file: str, fixed: Mapping[str, tuple[int, ...]],
) -> tuple[Record, dict[str, int]]:  # fmt: skip
    """Record the primitives of a jaxpr of weights, which have names, and of samples.

    ``file``: the file that the function is from, of which lines are named in messages; ``fixed``:
    the axes of each weight that do not grow with the width. Returned as well are the axes along
    which weights are stacked, whose parts have the names ``weight[0]``, ….
    """
    stacked = dict(fixed)
    while True:
        recorder = Recorder(file, stacked)
        found = recorder.recorded(closed, names, x)
        leaves = [leaf for call in found.calls for leaf in leaves_of(call.args)]
        used = {leaf.name for leaf in leaves if isinstance(leaf, Param)}
        if not (whole := used & set(recorder.stacks)):
            return found, recorder.stacks
        stacked |= dict.fromkeys(whole, ())  # read in parts, and as a whole as well


def check_derivatives(closed: Any, draw: Callable[[], list[Any]], x: Any) -> None:
    """Refuse functions whose derivatives are given and are not those of their values.

    ``draw``: a function that returns weights.
    """
    if not has_own_derivatives(closed):
        return
    rng = np.random.default_rng(0)
    if jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.asarray(rng.standard_normal(x.shape))  # no zeros, where derivatives may be chosen
    weights = [jnp.asarray(w + 0.1 * rng.standard_normal(w.shape)) for w in draw()]

    def gradients(step: Any) -> list[Any]:
        def f(weights: list[Any]) -> Any:
            (out,) = step([*weights, x])
            return jnp.sum(out * jnp.asarray(rng.standard_normal(out.shape)))

        rng = np.random.default_rng(1)
        return jax.jit(jax.grad(f))(weights)

    whole = gradients(lambda given: jaxpr_as_fun(closed)(*given))
    plain = gradients(lambda given: Walk(evaluated, inside=inside).run(closed, given))
    for one, two in zip(whole, plain, strict=True):
        size = float(jnp.abs(two).max()) + 1e-300
        if not float(jnp.abs(one - two).max()) <= ROUNDING * size:
            raise refused(
                "forward (custom_jvp or custom_vjp)",
                "the derivatives given to a function are not those of its values, and kernels use "
                "the derivatives of values",
            )


class Recorder:
    """Primitives on values, parameters and constants, as calls."""

    def __init__(self, file: str, fixed: Mapping[str, tuple[int, ...]]):
        self.record, self._file, self._fixed = Record(), file, dict(fixed)
        self.stacks: dict[str, int] = {}
        self.shapes: list[tuple[int, ...]] = []  # of the arguments of the call that runs
        self.values: list[Any] = []  # of each call, where they are computed
        self._walk = Walk(self.step, self.constant, inside)

    def recorded(self, closed: Any, names: Sequence[str], x: Any) -> Record:
        """Run a jaxpr of parameters with names and of samples, and return what was recorded."""
        self.values.append(x)
        self.add("input", (), {}, tuple(x.shape), True)
        shapes = [tuple(each.shape) for each in closed.in_avals]
        given = [
            Param(name, tuple(range(len(shape))))
            for name, shape in zip(names, shapes[:-1], strict=True)
        ]
        (output,) = self._walk.run(closed, [*given, Ref(0)])
        if not isinstance(output, Ref) or not self.record.calls[output.place].of_input:
            raise refused("the output", "it does not depend on x")
        self.record.output = output.place
        return self.record

    def constant(self, array: Any) -> Any:
        """Return what is kept of an array that depends on nothing."""
        return array

    def step(self, equation: Any, given: list[Any]) -> list[Any]:
        """Return what an equation makes: values, parameters seen otherwise, or constants."""
        primitive, options = equation.primitive, dict(equation.params)
        shapes = [tuple(var.aval.shape) for var in equation.outvars]
        known = self._known(equation, given)
        if known is not None:
            return known
        before = [tuple(var.aval.shape) for var in equation.invars]
        if primitive.name == "dynamic_slice" and not any(map(_of_model, given[1:])):
            primitive = jax.lax.slice_p
            options, given = _static(options, given, before[0]), given[:1]
            before = before[:1]
        name = primitive.name
        found = self._part(name, options, given, before) or _seen(
            name, options, given, before, shapes[0]
        )
        if found is not None:
            return [found]
        of_input = self.record.of_input(given)
        line = line_of([equation, *reversed(self._walk.calls)], self._file)
        if name == "convert_element_type" and _floating(equation.outvars):
            name = "to_float"
        names = [name] if len(shapes) == 1 else [f"{name}[{n}]" for n in range(len(shapes))]
        self.shapes = before
        made = self.run(name, primitive, options, tuple(given), line)
        self.values += made or [None] * len(shapes)
        return [
            self.add(each, tuple(given), options, shape, of_input, line)
            for each, shape in zip(names, shapes, strict=True)
        ]

    def _known(self, equation: Any, given: list[Any]) -> list[Any] | None:
        """Return results without an operation of the model: constants, and what it is given."""
        name = equation.primitive.name
        if not any(map(_of_model, given)):
            return [self.constant(made) for made in evaluated(equation, given)]
        floats = _floating(equation.invars) and _floating(equation.outvars)
        if name == "copy" or (name == "convert_element_type" and floats):
            return [given[0]]
        if name == "select_n" and not _of_model(given[0]) and is_number(given[0]):
            return [given[1 + int(np.ravel(given[0])[0])]]
        return None

    def run(self, name: str, primitive: Any, options: Any, given: Any, line: str) -> Any:
        """Return the results of a primitive that is about to be recorded; None without values."""

    def _part(
        self, name: str, options: Any, given: list[Any], before: list[tuple[int, ...]]
    ) -> Param | None:
        """Return the part of a parameter that is one of several in a stack; None if it is none."""
        if name != "slice" or not isinstance(given[0], Param):
            return None
        weight, starts, limits = given[0], options["start_indices"], options["limit_indices"]
        cut = [i for i, n in enumerate(before[0]) if (starts[i], limits[i]) != (0, n)]
        if len(cut) != 1 or weight.axes is None:
            return None
        (place,) = cut
        start, axis = starts[place], weight.axes[place]
        fixed = self._fixed.get(weight.name, ())
        if limits[place] != start + 1 or axis is None or axis not in fixed:
            return None
        if self.stacks.setdefault(weight.name, axis) != axis:
            return None

        def moved(other: int | None) -> int | None:
            return None if other in (None, axis) else other - (other > axis)

        part = f"{weight.name}[{start}]"
        self._fixed.setdefault(part, tuple(a - (a > axis) for a in fixed if a != axis))
        return weight._replace(name=part, axes=tuple(map(moved, weight.axes)))

    def add(
        self, op: str, args: Any, kwargs: Any, shape: tuple[int, ...], of_input: bool,
        line: str = "",
    ) -> Ref:  # fmt: skip
        """Append a call, and return its result."""
        calls = self.record.calls
        place = len(calls)
        calls.append(Call(place, op, args, kwargs, shape, "", of_input, line, place))
        return Ref(place)


def _of_model(given: Any) -> bool:
    """Return whether something is a value or a parameter of the model, and no constant."""
    return isinstance(given, (Ref, Param))


def _floating(variables: Any) -> bool:
    return jnp.issubdtype(variables[0].aval.dtype, jnp.floating)


def _static(options: Any, given: list[Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the parameters of a slice whose place is known."""
    sizes = options["slice_sizes"]
    starts = tuple(
        min(max(int(np.ravel(at)[0]), 0), n - size)
        for at, n, size in zip(given[1:], shape, sizes, strict=True)
    )
    ends = tuple(start + size for start, size in zip(starts, sizes, strict=True))
    return {"start_indices": starts, "limit_indices": ends, "strides": None}


def _seen(
    name: str, options: Any, given: list[Any], before: list[tuple[int, ...]], shape: tuple[int, ...]
) -> Param | None:
    """Return a parameter in another order of axes, with new axes of length one, or scaled."""
    weight, *others = filter(_of_model, given)
    if others or not isinstance(weight, Param):
        return None
    numbers = [float(np.ravel(a)[0]) for a in given if not _of_model(a) and is_number(a)]
    match name:
        case "neg":
            return weight._replace(factor=-weight.factor)
        case "mul" if numbers:
            return weight._replace(factor=weight.factor * numbers[0])
        case "div" if numbers and given[0] is weight:
            return weight._replace(factor=weight.factor / numbers[0])
    axes = _axes_behind(name, options, weight.axes or (), before[0], shape)
    return None if axes is None else weight._replace(axes=axes)


def _axes_behind(
    name: str, options: Any, axes: Axes, before: tuple[int, ...], shape: tuple[int, ...]
) -> Axes | None:
    """Return a parameter's axes in the order of a primitive's output; None for other primitives."""
    match name:
        case "reshape":
            return _with_ones(axes, before, shape)
        case "transpose":
            return tuple(axes[i] for i in options["permutation"])
        case "broadcast_in_dim":
            found: list[int | None] = [None] * len(shape)
            for axis, place in zip(axes, options["broadcast_dimensions"], strict=True):
                found[place] = axis
            return tuple(found)
        case "squeeze":
            return tuple(a for i, a in enumerate(axes) if i not in options["dimensions"])
    return None


def _with_ones(axes: Axes, before: tuple[int, ...], shape: tuple[int, ...]) -> Axes | None:
    """Return the axes of a shape with other axes of length one; None for another shape."""
    rest = [(axis, n) for axis, n in zip(axes, before, strict=True) if n != 1]
    if [n for _, n in rest] != [n for n in shape if n != 1]:
        return None
    left = iter([axis for axis, _ in rest])
    return tuple(None if n == 1 else next(left) for n in shape)
