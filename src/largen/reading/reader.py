"""A recorded forward pass on its way to a graph of nodes: what all rules of functions share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from largen.architectures import Layer
from largen.architectures.axes import Axes
from largen.architectures.graph import ENTRY
from largen.errors import NoRule
from largen.reading.calls import Call, Param, Record, Ref
from largen.reading.functions import activation
from largen.reading.laws import Parameter
from largen.reading.nodes import Map, Nodes, law_of, part_of
from largen.reading.refusals import by_rule, refused
from largen.reading.values import Value

LETTERS = "ABDEFGHIJKLMNOP"  # of spatial axes; C is that of channels


class Reader:
    """The values and nodes of a forward pass while it is read."""

    def __init__(
        self,
        # record, parameters: the forward pass and the parameters of a model.
        record: Record,
        parameters: Mapping[str, Parameter],
        # wider, wider_parameters: those of a wider one, None without one.
        wider: Record | None = None,
        wider_parameters: Mapping[str, Parameter] | None = None,
        # Whether there is one width only, so that nothing shows which axes grow.
        alone: bool = False,
    ):
        self.nodes, self.alone = Nodes(), alone
        self._record, self._wider = record, wider
        self._parameters, self._wide_parameters = parameters, wider_parameters
        sample = record.calls[0].shape
        axes = ("sample", *range(len(sample) - 1))
        self._values: dict[int, Any] = {0: Value(ENTRY, axes, sample, data=True)}
        self._uses: dict[str, str] = {}
        self._biases: dict[str, str] = {}
        # The call whose result the value of a node is, the last one where others only view it; and
        # of nodes that are constant factors the call that multiplies.
        self._made: dict[str, int] = {}
        self._scaled: dict[str, int] = {}
        # Of nodes that are sums over positions, the layer that is their mean, and their number.
        self._means: dict[str, tuple[Layer, int]] = {}
        self._outputs: dict[str, tuple[int, int]] = {}
        self._mixed: set[str] = set()
        self._readers: dict[int, int] = {}
        for call in record.calls:
            for index in set(call.refs()):
                self._readers[index] = self._readers.get(index, 0) + 1

    def read(self, rules: Mapping[str, Callable[..., Any]], reasons: Mapping[str, str]) -> Nodes:
        """Read all calls that the output depends on, and return the nodes."""
        for call in self._needed():
            if call.index == 0:
                continue
            if call.op not in rules:
                why = reasons.get(call.op, "there is no rule for this function")
                raise self.refused(call, why)
            found = by_rule(self, rules[call.op], call)
            if found.shape != call.shape:
                raise self.refused(call, f"its result of shape {call.shape} is broadcast")
            self._values[call.index] = found
            self._follow(call, found)
        output = self.value(Ref(self._record.output), self._record.calls[self._record.output])
        if output.axes[0] != "sample":
            raise refused("the output", "its first axis is not that of the samples")
        self.nodes = self.nodes.until(output.node)
        self._finish(self.nodes.absorbed(output.node))
        for place, value in self._values.items():
            if isinstance(value, Value) and "sample" in value.axes:
                origin = self._record.calls[place].origin
                self.nodes.place(value.node, origin, value.axes.index("sample"))
        return self.nodes

    def _follow(self, call: Call, found: Any) -> None:
        """Note that a call which only views a value, that nothing else reads, is now its place."""
        places = call.refs()
        alone = len(places) == 1 and self._readers[places[0]] == 1
        if alone and self._made.get(found.node) == places[0]:
            self._made[found.node] = call.index

    def _needed(self) -> list[Call]:
        needed, stack = {self._record.output}, [self._record.output]
        while stack:
            for index in self._record.calls[stack.pop()].refs():
                if index not in needed and self._record.calls[index].of_input:
                    needed.add(index)
                    stack.append(index)
        return [self._record.calls[index] for index in sorted(needed)]

    def refused(self, call: Call, why: str) -> NoRule:
        """Return the error for a call."""
        return refused(call.place, why)

    # What arguments are

    def is_value(self, argument: Any) -> bool:
        """Whether an argument depends on the input."""
        return isinstance(argument, Ref) and self._record.calls[argument.place].of_input

    def value(self, argument: Any, call: Call) -> Value:
        """Return an argument that depends on the input."""
        if not self.is_value(argument):
            got = "numbers" if not isinstance(argument, (Param, Ref)) else "one of parameters alone"
            got = f"the parameter {argument.name}" if isinstance(argument, Param) else got
            raise self.refused(call, f"wanted a tensor that depends on the input, got {got}")
        found = self._values[argument.place]
        if not isinstance(found, Value):
            raise self.refused(call, "it reads a mean over channels, of which norms have rules")
        return found

    def seen(self, argument: Ref) -> Any:
        """Return what was read of an argument: a value, or a part of a normalisation."""
        return self._values[argument.place]

    def call(self, argument: Ref) -> Call:
        """Return the call whose result an argument is."""
        return self._record.calls[argument.place]

    def shape(self, argument: Any, call: Call) -> tuple[int, ...]:
        """Return the shape of a parameter."""
        return self._parameters[self._parameter(argument, call)].shape

    def _parameter(self, argument: Any, call: Call) -> str:
        if isinstance(argument, Param):
            return argument.name
        if isinstance(argument, Ref):
            made = self._record.calls[argument.place]
            raise self.refused(
                call,
                f"its weight is computed from parameters by {made.op}; a transposed, tied, shared "
                "or reparameterised matrix has no rule",
            )
        raise self.refused(call, "its weight is not a parameter of the module")

    def number(self, argument: Any, call: Call) -> float:
        """Return an argument that is a number, or a tensor or parameter of equal entries."""
        if isinstance(argument, (int, float)):
            return float(argument)
        if hasattr(argument, "shape"):
            entries = np.asarray(argument.detach().cpu() if hasattr(argument, "cpu") else argument)
            if entries.size and np.all(entries == entries.flat[0]):
                return float(entries.flat[0])
            raise self.refused(
                call,
                "it takes a tensor of numbers that differ, such as statistics of a trained module; "
                "wanted one number",
            )
        if isinstance(argument, Param):
            law = law_of(argument.name, self._parameters)
            if law.kind == "constant":
                return law.mean * argument.factor
            raise self.refused(
                call, f"{argument.name} is {law.kind}, not a constant; there is no rule for random "
                "factors or offsets of channels that are not the bias of an affine map",
            )  # fmt: skip
        raise self.refused(call, f"wanted a number, got {type(argument).__name__}")

    def grows(self, argument: Any, axis: int) -> bool:
        """Whether an axis of a parameter grows with the width; True if there is one width."""
        if self._wide_parameters is None:
            return True
        name = argument.name
        return self._parameters[name].shape[axis] != self._wide_parameters[name].shape[axis]

    def groups_grow(self, call: Call) -> bool:
        """Whether groups, the second argument of a call, have channels that grow in number."""
        if self._wider is None:
            return not self.alone
        sizes = []
        for each in (call, self._wider.calls[call.index]):
            groups = each.args[1] if len(each.args) > 1 else each.kwargs["num_groups"]
            sizes.append(each.shape[1] // groups)
        return sizes[0] < sizes[1]

    def positions_as_channels(self, value: Value) -> bool:
        """Whether channels of a value are of different positions or branches."""
        return value.node in self._mixed

    def check_alike(self, call: Call, one: Value, two: Value) -> None:
        """Refuse two values whose axes or shapes differ."""
        if one.axes != two.axes or one.shape != two.shape or one.data != two.data:
            raise self.refused(
                call,
                f"it joins values of the shapes {one.shape} and {two.shape} by broadcasting, in "
                "another order of axes, or hidden values with the input",
            )

    # What they become

    def node(self, call: Call, join: str, *values: Value, factors: Any = ()) -> str:
        """Append a join of values."""
        reads = [value.node for value in values]
        return self.nodes.add(f"{call.module}.{call.op}".strip("."), join, *reads, factors=factors)

    def layer(self, call: Call, layer: Layer, value: Value) -> str:
        """Append a layer without weights, which is named as its module."""
        name = self.nodes.add(call.module or call.op, layer, value.node)
        self._made[name] = call.index
        if call.op in ("view", "reshape", "flatten"):
            self._mixed.add(name)
        return name

    def pooled(self, call: Call, pool: Layer, value: Value, mean: Layer, count: int) -> str:
        """Append a pool; a sum over positions becomes the mean where it is divided by their number.

        ``mean``, ``count``: that mean, and the number.
        """
        node = self.layer(call, pool, value)
        if pool != mean:
            self._means[node] = mean, count
        return node

    def function(self, call: Call, argument: Any, name: str, *constants: Any) -> Value:
        """Return an elementwise function of an argument."""
        value = self.value(argument, call)
        node = self.layer(call, activation(name, *(float(c) for c in constants)), value)
        return Value(node, value.axes, value.shape, value.data)

    def scaled(self, call: Call, value: Value, factor: float) -> Value:
        """Return a value times a number."""
        if factor == 1:
            return value
        if factor == 0:
            raise self.refused(call, "it multiplies by 0, so that nothing is left of its argument")
        if value.node in self._means:
            mean, count = self._means[value.node]
            if math.isclose(factor * count, 1, rel_tol=1e-6):
                ((_, summed),) = self.nodes.reads[value.node]
                return replace(value, node=self.layer(call, mean, replace(value, node=summed)))
        node = self.node(call, "sum", value, factors=(factor,))
        self._made[node] = self._scaled[node] = call.index
        return Value(node, value.axes, value.shape, value.data)

    def shifted(self, call: Call, value: Value, by: float) -> Value:
        """Return a value plus a number."""
        if by == 0:
            return value
        node = self.layer(call, activation("shift", by), value)
        return Value(node, value.axes, value.shape, value.data)

    def with_gain(self, call: Call, value: Value, gain: Any, offset: Any) -> Value:
        """Return a value behind a gain and an offset of all channels alike."""
        factor = 1.0 if gain is None else self.number(gain, call)
        value = self.scaled(call, value, factor)
        if self._made.get(value.node) == call.index:
            named = [each.name if isinstance(each, Param) else None for each in (gain, offset)]
            self.nodes.note_gains(value, (named[0], named[1]), factor, self._parameters)
        return value if offset is None else self.shifted(call, value, self.number(offset, call))

    def with_channels(self, call: Call, value: Value, place: int) -> Value:
        """Return a value with the axis at a place as channels; of data it is now known."""
        if not value.data or "channels" in value.axes:
            if value.axes[place] != "channels":
                raise self.refused(call, "it acts on an axis of samples or positions as channels")
            return value
        axis, others = value.axes[place], sorted(a for a in value.axes if isinstance(a, int))
        if not isinstance(axis, int):
            raise self.refused(call, "it acts on an axis of samples as channels")
        space = [other for other in others if other != axis]
        node = value.node
        if axis != others[-1]:
            letters = iter(LETTERS)
            order = "".join("C" if other == axis else next(letters) for other in others)
            node = self.nodes.add(f"{order} to last", Axes(order), node)
        labels: dict[Any, Any] = {axis: "channels", **{a: n for n, a in enumerate(space)}}
        axes: Any = tuple(labels.get(a, a) for a in value.axes)
        return Value(node, axes, value.shape, data=True)

    def affine(
        self, call: Call, value: Value, place: int, weight: Any, bias: Any,
        fan_in: tuple[int, ...], fan_out: int, geometry: dict[str, Any] | None = None,
    ) -> Value:  # fmt: skip
        """Return an affine map of the channels at a place of a value."""
        name = self._parameter(weight, call)
        value = self.with_channels(call, value, place)
        offset = None if bias is None else self._parameter(bias, call)
        if not value.data and not self.grows(weight, fan_in[0]):
            raise refused(
                name,
                f"it reads {self._parameters[name].shape[fan_in[0]]} channels, a number that does "
                "not grow with the width; there is a rule where all hidden layers grow",
            )
        if offset is not None and self._biases.setdefault(offset, name) != name:
            raise refused(offset, "it is the bias of two maps, whose outputs are then correlated")
        found = Map(
            name, offset, fan_in, fan_out, value.data, geometry, call.place,
            weight_factor=weight.factor,
        )  # fmt: skip
        if (used := self._uses.get(name)) is None:
            node = self.nodes.add(part_of(name), found, value.node)
            self._uses[name] = node
            self._made[node] = call.index
            wider = self._wide_parameters or self._parameters
            self._outputs[node] = tuple(p[name].shape[fan_out] for p in (self._parameters, wider))  # pyright: ignore
        else:
            first = self.nodes.does[used]
            assert isinstance(first, Map)
            if first.use != found.use:
                raise refused(
                    name,
                    f"it is used in {first.place} and in {call.place} in different ways, such as "
                    "with its transpose or with another bias; there is a rule for equal ones",
                )
            node = self.nodes.add(call.module or name, ("again", used), value.node)
        mean = 0.0 if offset is None else law_of(offset, self._parameters).mean
        return self.shifted(call, Value(node, value.axes, call.shape), mean)

    def total(self, call: Call, one: Any, two: Any, a: float, b: float) -> Value:
        """Return a·x + b·y, where x or y may be a number or a bias."""
        if not self.is_value(one):
            one, two, a, b = two, one, b, a
        value = self.value(one, call)
        if self.is_value(two):
            other = self.value(two, call)
            self.check_alike(call, value, other)
            return value.at(self.node(call, "sum", value, other, factors=(a, b)), call.shape)
        offset = two._replace(factor=two.factor * b) if isinstance(two, Param) and a == 1 else None
        if offset is not None and self.takes_bias(value, offset, one):
            return value
        return self.shifted(call, self.scaled(call, value, a), b * self.number(two, call))

    def takes_bias(self, value: Value, offset: Param, argument: Ref) -> bool:
        """Add a parameter as the bias of the map that it is added to, up to constant factors."""
        bias, node, factor, place = offset.name, value.node, 1.0, argument.place
        while self._made.get(node) == place and self._readers[place] == 1:
            does = self.nodes.does[node]
            if (of_node := self.nodes.factor(node)) is not None:
                factor *= of_node
                before = self._record.calls[self._scaled[node]].refs()
                if len(before) != 1:  # the factor is that of a normalisation
                    return False
                (place,), ((_, node),) = before, self.nodes.reads[node]
                continue
            used = ("again", node) in self.nodes.does.values() or bias in self._biases
            fits = self._of_channels(offset, value)
            centred = law_of(bias, self._parameters).mean == 0
            if not isinstance(does, Map) or does.bias is not None or used or not (fits and centred):
                return False
            does.bias, does.bias_factor = bias, offset.factor / factor
            self._biases[bias] = does.weight
            return True
        return False

    def _of_channels(self, offset: Param, value: Value) -> bool:
        """Whether a parameter has a number for each channel of a value that it is added to."""
        shape, place = self._parameters[offset.name].shape, value.channels
        axes = tuple(range(len(shape))) if offset.axes is None else offset.axes
        long = [axis for axis, n in enumerate(shape) if n != 1]
        if place is None or math.prod(shape) != value.shape[place] or len(long) != 1:
            return place is not None and not long and value.shape[place] == 1
        # Axes of arrays that are joined are aligned at their ends.
        return axes.index(long[0]) - len(axes) == place - len(value.shape)

    # The whole

    def _finish(self, output: str) -> None:
        """Find the read-out, check that all that should grow does, and set ratios of widths."""
        last = self.nodes.read_out(output)
        maps = self.nodes.maps
        unit = next((self._outputs[name] for name in maps if name != last), (1, 1))
        for name, each in maps.items():
            small, large = self._outputs[self._uses[each.weight]]
            each.last = name == last
            if each.last:
                continue
            if self._wider is not None and small == large:
                raise refused(
                    each.weight,
                    f"its {small} outputs do not grow with the width; there is a rule where all "
                    "hidden layers grow",
                )
            each.ratio = Fraction(small, unit[0])
            if Fraction(large, unit[1]) != each.ratio:
                raise refused(
                    each.weight,
                    f"its {small} outputs become {large} where those of the first layer go from "
                    f"{unit[0]} to {unit[1]}; wanted widths in fixed ratios",
                )
