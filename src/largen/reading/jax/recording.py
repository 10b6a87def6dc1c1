"""A forward pass in JAX, recorded as the primitives of its jaxpr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from largen.errors import InvalidInput, LargenError
from largen.reading.calls import Call, Param, Record, Ref
from largen.reading.jax.elementwise import is_number, joined
from largen.reading.jax.tracing import Tracer, evaluated, has_own_derivatives, line_of
from largen.reading.refusals import refused

ROUNDING = 1e-6  # relative size below which a difference of derivatives is rounding


def record(
    apply: Callable[[list[Any], Any], Any], names: Sequence[str], weights: list[Any], x: Any,
    file: str,
) -> Record:  # fmt: skip
    """Trace a function of weights, which have names, and of samples, and record its primitives.

    ``file``: the file that the function is from, of which lines are named in messages.
    """
    try:
        closed, shape = jax.make_jaxpr(apply, return_shape=True)(weights, x)
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
    _check_derivatives(closed, weights, x)
    recorder = _Recorder(file)
    recorder.add("input", (), {}, tuple(x.shape), True)
    given = [
        Param(name, tuple(range(len(w.shape)))) for name, w in zip(names, weights, strict=True)
    ]
    (output,) = recorder.run(closed, [*given, Ref(0)])
    if not isinstance(output, Ref) or not recorder.record.calls[output.place].of_input:
        raise refused("the output", "it does not depend on x")
    recorder.record.output = output.place
    return joined(recorder.record)


def _check_derivatives(closed: Any, weights: list[Any], x: Any) -> None:
    """Refuse functions whose derivatives are given and are not those of their values."""
    if not has_own_derivatives(closed):
        return
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(x.shape))  # no zeros, where derivatives may be chosen
    weights = [jnp.asarray(w + 0.1 * rng.standard_normal(w.shape)) for w in weights]

    def gradients(step: Any) -> list[Any]:
        def f(weights: list[Any]) -> Any:
            (out,) = step([*weights, x])
            return jnp.sum(out * jnp.asarray(rng.standard_normal(out.shape)))

        rng = np.random.default_rng(1)
        return jax.jit(jax.grad(f))(weights)

    whole = gradients(lambda given: jaxpr_as_fun(closed)(*given))
    plain = gradients(lambda given: Tracer(evaluated).run(closed, given))
    for one, two in zip(whole, plain, strict=True):
        size = float(jnp.abs(two).max()) + 1e-300
        if not float(jnp.abs(one - two).max()) <= ROUNDING * size:
            raise refused(
                "forward (custom_jvp or custom_vjp)",
                "the derivatives given to a function are not those of its values; kernels have "
                "derivatives of values",
            )


class _Recorder:
    """Primitives on values, parameters and constants, as calls."""

    def __init__(self, file: str):
        self.record, self._file = Record(), file
        self._tracer = Tracer(self.step)

    def run(self, closed: Any, given: list[Any]) -> list[Any]:
        """Return what a jaxpr makes."""
        return self._tracer.run(closed, given)

    def step(self, equation: Any, given: list[Any]) -> list[Any]:
        """Return what an equation makes: values, parameters seen otherwise, or constants."""
        name, options = equation.primitive.name, dict(equation.params)
        shapes = [tuple(var.aval.shape) for var in equation.outvars]
        if not any(isinstance(each, (Ref, Param)) for each in given):
            return evaluated(equation, given)
        floats = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
        if name == "copy" or (name == "convert_element_type" and floats):
            return [given[0]]
        if name == "select_n" and not isinstance(given[0], (Ref, Param)) and is_number(given[0]):
            return [given[1 + int(np.ravel(given[0])[0])]]
        before = [tuple(var.aval.shape) for var in equation.invars]
        if (found := _seen(name, options, given, before, shapes[0])) is not None:
            return [found]
        of_input = any(
            isinstance(each, Ref) and self.record.calls[each.place].of_input for each in given
        )
        line = line_of([equation, *reversed(self._tracer.calls)], self._file)
        names = [name] if len(shapes) == 1 else [f"{name}[{n}]" for n in range(len(shapes))]
        return [
            self.add(each, tuple(given), options, shape, of_input, line)
            for each, shape in zip(names, shapes, strict=True)
        ]

    def add(
        self, op: str, args: Any, kwargs: Any, shape: tuple[int, ...], of_input: bool,
        line: str = "",
    ) -> Ref:  # fmt: skip
        """Append a call, and return its result."""
        calls = self.record.calls
        calls.append(Call(len(calls), op, args, kwargs, shape, "", of_input, line))
        return Ref(len(calls) - 1)


def _seen(
    name: str, options: Any, given: list[Any], before: list[tuple[int, ...]], shape: tuple[int, ...]
) -> Param | None:
    """Return a parameter in another order of axes, with new axes of length one, or scaled."""
    weights = [each for each in given if isinstance(each, Param)]
    if len(weights) != 1 or any(isinstance(each, Ref) for each in given):
        return None
    (weight,) = weights
    numbers = [
        float(np.ravel(each)[0])
        for each in given
        if not isinstance(each, Param) and is_number(each)
    ]
    match name:
        case "neg":
            return weight._replace(factor=-weight.factor)
        case "mul" if numbers:
            return weight._replace(factor=weight.factor * numbers[0])
        case "div" if numbers and given[0] is weight:
            return weight._replace(factor=weight.factor / numbers[0])
        case "reshape":
            return _with_ones(weight, before[0], shape)
    axes = _axes_behind(name, options, weight.axes or (), len(shape))
    return None if axes is None else weight._replace(axes=axes)


def _axes_behind(
    name: str, options: Any, axes: tuple[int | None, ...], count: int
) -> tuple[int | None, ...] | None:
    """Return a parameter's axes in the order of a primitive's output; None for other primitives."""
    match name:
        case "transpose":
            return tuple(axes[i] for i in options["permutation"])
        case "broadcast_in_dim":
            found: list[int | None] = [None] * count
            for axis, place in zip(axes, options["broadcast_dimensions"], strict=True):
                found[place] = axis
            return tuple(found)
        case "squeeze":
            return tuple(a for i, a in enumerate(axes) if i not in options["dimensions"])
    return None


def _with_ones(weight: Param, before: tuple[int, ...], shape: tuple[int, ...]) -> Param | None:
    """Return a parameter in a shape with other axes of length one; None for another shape."""
    rest = [(axis, n) for axis, n in zip(weight.axes or (), before, strict=True) if n != 1]
    if [n for _, n in rest] != [n for n in shape if n != 1]:
        return None
    axes = iter([axis for axis, _ in rest])
    return weight._replace(axes=tuple(None if n == 1 else next(axes) for n in shape))
