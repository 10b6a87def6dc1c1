"""The one loop over the equations of a jaxpr, on which every reading of a function in JAX stands.

A reading keeps something of each value: an array, a law, where samples are. It says what an
equation makes of what is kept of its arguments, and which calls of functions are gone into.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

# Returns the jaxpr that stands for an equation, given what is kept of its arguments; None for an
# equation that is one step.
Inside = Callable[[Any, list[Any]], ClosedJaxpr | None]

# Equations that do what a jaxpr among their parameters says, and nothing else.
PLAIN_CALLS = frozenset({
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2",
})  # fmt: skip
# Calls of functions with derivatives of their own, forwards and backwards: gone into, a function is
# its values, and what is said of its derivatives is lost.
OWN_JVP = frozenset({"custom_jvp_call"})
OWN_VJP = frozenset({"custom_vjp_call", "custom_vjp_call_jaxpr"})
CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # the names of the parameter that is the jaxpr


def into(names: Collection[str] = PLAIN_CALLS) -> Inside:
    """Return what goes into calls by name."""

    def inside(equation: Any, given: list[Any]) -> ClosedJaxpr | None:
        return called(equation) if equation.primitive.name in names else None

    return inside


def called(equation: Any) -> ClosedJaxpr:
    """Return the jaxpr that a call calls."""
    inner = next(equation.params[name] for name in CALLED if name in equation.params)
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


class Walk:
    """The equations of a jaxpr in their order, each on what a reading keeps of its arguments.

    ``step``: a function of an equation and of what is kept of its arguments, which returns what is
    kept of its results, a list; ``constant``: what is kept of an array that depends on nothing;
    ``inside``: which calls are gone into.
    """

    def __init__(
        self,
        step: Callable[[Any, list[Any]], list[Any]],
        constant: Callable[[Any], Any] = lambda array: array,
        inside: Inside | None = None,
    ):
        self._step, self._constant = step, constant
        self._inside = into() if inside is None else inside
        self.calls: list[Any] = []  # the calls that the equation is in, from the outermost

    def run(self, closed: ClosedJaxpr, inputs: list[Any]) -> list[Any]:
        """Return what is kept of the results of a jaxpr."""
        jaxpr: Jaxpr = closed.jaxpr
        constants = [self._constant(each) for each in closed.consts]
        known = dict(zip(jaxpr.constvars, constants, strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            if isinstance(atom, Literal):
                dtype: Any = atom.aval
                return self._constant(np.asarray(atom.val, dtype.dtype))
            return known[atom]

        for equation in jaxpr.eqns:
            given = [read(atom) for atom in equation.invars]
            inner = self._inside(equation, given)
            if inner is None:
                made = self._step(equation, given)
            else:
                self.calls.append(equation)
                made = self.run(inner, given)
                self.calls.pop()
            known.update(zip(equation.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


def evaluated(equation: Any, given: list[Any]) -> list[Any]:
    """Return the results of an equation on arrays."""
    if equation.primitive.name in OWN_JVP | OWN_VJP:
        # They are bound with functions, which JAX makes of the parameters.
        arrays = [
            array
            for atom, array in zip(equation.invars, given, strict=True)
            if not isinstance(atom, Literal)
        ]
        return list(jaxpr_as_fun(_alone(equation))(*arrays))
    made = equation.primitive.bind(*given, **equation.params)
    return list(made) if equation.primitive.multiple_results else [made]


def _alone(equation: Any) -> ClosedJaxpr:
    """Return a jaxpr of one equation."""
    single = _empty().replace(
        invars=[atom for atom in equation.invars if not isinstance(atom, Literal)],
        outvars=equation.outvars,
        eqns=[equation],
        effects=equation.effects,
    )
    return ClosedJaxpr(single, ())


@cache
def _empty() -> Any:
    return jax.make_jaxpr(lambda: ())().jaxpr


def written_out(equation: Any) -> ClosedJaxpr | None:
    """Return an equation in terms of other primitives, a scan as all its steps; None for others."""
    plain = _IN_OTHERS.get(equation.primitive.name)
    if plain is None:
        return None
    shapes = [atom.aval for atom in equation.invars]
    return jax.make_jaxpr(partial(plain, equation.params))(*shapes)


def _unrolled(options: Any, *given: Any) -> list[Any]:
    """Return what a loop of known length makes, with its steps written out."""
    step = jaxpr_as_fun(options["jaxpr"])
    consts, carried = options["num_consts"], options["num_consts"] + options["num_carry"]
    state, rows = given[consts:carried], []
    places = range(options["length"])
    for n in reversed(places) if options["reverse"] else places:
        each = [jax.lax.index_in_dim(x, n, 0, keepdims=False) for x in given[carried:]]
        made = step(*given[:consts], *state, *each)
        state = made[: options["num_carry"]]
        rows.append(made[options["num_carry"] :])
    rows = rows[::-1] if options["reverse"] else rows
    return [*state, *(_stacked({"axis": 0}, *each) for each in zip(*rows, strict=True))]


def _stacked(options: Any, *given: Any) -> Any:
    axis = options["axis"]
    return jax.lax.concatenate([jax.lax.expand_dims(x, [axis]) for x in given], axis)


def _unstacked(options: Any, x: Any) -> list[Any]:
    axis = options["axis"]
    return [jax.lax.index_in_dim(x, n, axis, keepdims=False) for n in range(x.shape[axis])]


def _split(options: Any, x: Any) -> list[Any]:
    ends = np.cumsum(options["sizes"])
    pairs = zip(ends - options["sizes"], ends, strict=True)
    return [jax.lax.slice_in_dim(x, int(a), int(b), axis=options["axis"]) for a, b in pairs]


# What primitives do in terms of others.
_IN_OTHERS = {"scan": _unrolled, "stack": _stacked, "unstack": _unstacked, "split": _split}
