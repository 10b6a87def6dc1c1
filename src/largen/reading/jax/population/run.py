"""A forward pass in JAX at a population of representative neurons, primitive by primitive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.reading.calls import Param, Ref
from largen.reading.engine.calls import Computed, Pending, Rule
from largen.reading.engine.constants import SEEN, Constants
from largen.reading.engine.population import Engine
from largen.reading.jax.population.native import check
from largen.reading.jax.recording import Recorder
from largen.reading.jax.values import arranged, double, widened

PASSED = frozenset({*SEEN, "mul", "div", "neg"})  # what may be between a product and its bias


class Dual(NamedTuple):
    """A value, with its derivative if it has one."""

    value: Any
    derivative: Any = None

    def moved(self, function: Callable[[Any], Any]) -> Dual:
        """Return a linear function of both."""
        moved = None if self.derivative is None else function(self.derivative)
        return Dual(function(self.value), moved)


class Population(Engine, Recorder):
    """The primitives of a jaxpr on a population of neurons."""

    def __init__(
        self,
        family: Any,
        shapes: Mapping[str, tuple[int, ...]],
        constants: Constants,
        rules: dict[str, Rule],
        seed: int,
        rates: Callable[[str], float] | None = None,
    ):
        Recorder.__init__(self, family.file, family.fixed)
        Engine.__init__(self, constants, shapes, seed, rates)
        self._rules = rules
        # The primitive of each call, its options, its arguments and their shapes, and which result.
        self._ran: dict[int, tuple[Any, Any, Any, Any, int]] = {}
        first = self.widths.records[0]
        self.record.calls, calls = first.calls, self.record.calls
        self._needed = self.before([first.output])
        self.record.calls = calls
        self._nodes: dict[int, str] = {}  # of calls whose results are a product but for factors

    def constant(self, array: Any) -> Any:
        """Return an array that depends on nothing, in double precision."""
        return double(array)

    def run(self, name: str, primitive: Any, options: Any, given: Any, line: str) -> Any:
        """Return the results of a primitive on the population."""
        call = Pending(len(self.record.calls), name, given, options, "", line)
        self.check_place(call)
        if not primitive.multiple_results and call.index not in self._needed:
            return None
        rule = self._rules.get(name)
        out = None if rule is None else rule(self, call, primitive)
        if out is None:
            check(self, call)
            out = self.natively(primitive, call)
        for n in range(len(out)):
            self._ran[call.index + n] = primitive, options, given, self.shapes, n
        places = call.args and [each.place for each in given if isinstance(each, Ref)]
        if name in PASSED and len(places) == 1 and places[0] in self._nodes:
            self._nodes[call.index] = self._nodes[places[0]]
        return [each.moved(double) for each in out]

    def natively(self, primitive: Any, call: Pending) -> list[Dual]:
        """Return the results of a primitive on values and derivatives."""
        duals = [
            self.tensors(each, call).moved(lambda x, shape=shape: widened(x, shape))
            for each, shape in zip(call.args, self.shapes, strict=True)
        ]
        return differentiated(primitive, call.kwargs, duals)

    def tensors(self, value: Any, call: Pending) -> Any:
        """Return an argument with its derivative."""
        if isinstance(value, Computed):
            return value.value
        if isinstance(value, Ref):
            return self.values[value.place] if value.place else Dual(jnp.asarray(self.values[0]))
        if isinstance(value, Param):
            entries = self.vector(value.name, call, self.factors(value, call))
            return self.arranged(value, entries)
        return Dual(value)

    def factors(self, parameter: Param, call: Pending) -> tuple[float, float]:
        """Return the factors of a parameter in a call at both widths."""
        one, two = (
            next(a.factor for a in each.args if isinstance(a, Param) and a.name == parameter.name)
            for each in self.widths.calls(call.index)
        )
        return one, two

    def arranged(self, parameter: Param, entries: Dual) -> Dual:
        """Return entries of a parameter in the order of axes of an argument, times its factor."""
        return entries.moved(lambda x: arranged(parameter, x))

    def joined(self, value: np.ndarray, derivative: np.ndarray | None) -> Dual:
        """Return a value with its derivative."""
        return Dual(value, derivative).moved(jnp.asarray)

    def parted(self, value: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a value and its derivative."""
        return value.moved(np.asarray)

    def note_bias(self, call: Pending, place: int, bias: Param) -> None:
        """Note the parameter that is added to a product as its bias."""
        node = self._nodes.get(place)
        if node is None or len(self.shape(bias)) != 1:
            return
        found, (of_weight, _) = self.maps[node]
        if found.bias is None:
            found.bias = bias.name
            self.maps[node] = found, (of_weight, self.factors(bias, call))

    def note_product(
        self, call: Pending, weight: str, placed: Callable[[Any], Any] | None = None
    ) -> None:
        """Note that a call is a product with a weight, and how its result is made of that."""
        if self.read_out is not None and self.read_out.index == call.index:
            self.read_out = replace(self.read_out, result=placed)
        node = weight.removesuffix(".weight") or weight
        if node in self.maps:
            self._nodes[call.index] = node

    def replayed(self, index: int, starts: np.ndarray, behind: set[int]) -> np.ndarray:
        """Return the outputs if the result of a call is each of ``starts``."""
        offsets = {each.place for each in self.offsets}
        assert self.read_out is not None
        if index == self.read_out.index and self.read_out.result is not None:
            starts = np.asarray(jax.vmap(self.read_out.result)(starts))
        nothing = Pending(0, "", (), {}, "")

        def output(start: Any) -> Any:
            known = {index: start}

            def of(argument: Any, place: int) -> Any:
                if isinstance(argument, Ref) and argument.place in known:
                    return known[argument.place]
                if isinstance(argument, Param) and place in offsets:
                    return jnp.zeros(argument.seen(self.shape(argument)))
                if isinstance(argument, Param):
                    return self.arranged(argument, self.drawn_entries(argument.name)).value
                return self.tensors(argument, nothing).value

            for place in sorted(behind & set(self._ran)):
                primitive, options, given, shapes, n = self._ran[place]
                if place == index:
                    continue
                whole = map(widened, (of(each, place) for each in given), shapes)
                made = primitive.bind(*whole, **options)
                known[place] = double(made[n] if primitive.multiple_results else made)
            return known[self.record.output]

        return np.asarray(jax.vmap(output)(jnp.asarray(starts)))


def differentiated(primitive: Any, options: Any, given: Sequence[Dual]) -> list[Dual]:
    """Return the results of a primitive, with their derivatives along those of its arguments."""
    moving = tuple(i for i, each in enumerate(given) if each.derivative is not None)
    items = tuple(sorted(options.items()))
    values = [each.value for each in given]
    derivatives = [given[i].derivative for i in moving]
    try:
        hash(items)
        step = _compiled
    except TypeError:
        step = _plain
    made, along = step(primitive, items, moving, values, derivatives)
    return list(map(Dual, made, along))


def _plain(
    primitive: Any, items: Any, moving: tuple[int, ...], values: list[Any], derivatives: list[Any]
) -> tuple[list[Any], list[Any]]:
    def function(*moved: Any) -> list[Any]:
        whole = list(values)
        for place, value in zip(moving, moved, strict=True):
            whole[place] = value
        made = primitive.bind(*whole, **dict(items))
        return list(made) if primitive.multiple_results else [made]

    if not moving:
        made = function()
        return made, [None] * len(made)
    made, along = jax.jvp(function, [values[i] for i in moving], derivatives)
    return made, [None if t.dtype == jax.dtypes.float0 else t for t in along]


_compiled: Any = jax.jit(_plain, static_argnums=(0, 1, 2))
