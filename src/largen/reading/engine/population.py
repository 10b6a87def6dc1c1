"""A forward pass of the user's own code at a population of representative neurons.

The model is run with S neurons in the place of its width. A product with a random matrix of many
neurons draws its outputs from their law, given all that the matrix multiplied before; everything
else runs as it is. Derivatives along a random direction of all parameters are carried by forward
differentiation, and their covariance at the outputs is the tangent kernel. So no matrix is ever
stored, and no rule of a function is required. Libraries differ in how calls are seen and run, and
in what holds a value and its derivative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from largen.errors import InvalidInput, NoRule
from largen.reading.calls import Param, Record, Ref, leaves_of
from largen.reading.engine.calls import Affine, Offset, Pending, ReadOut
from largen.reading.engine.constants import Constants
from largen.reading.engine.fields import Drawn, Fields, Matrix, Use
from largen.reading.laws import Law, normal
from largen.reading.nodes import Map, centred_law
from largen.reading.refusals import refused

SHARED = (
    "so that one draw is shared by all neurons and the kernel is random in the limit. If it only "
    "adds a linear map of the input to the output, Var[W]·⟨x, x′⟩ adds to the kernel of the model "
    "without it"
)


class Engine(ABC):
    """What all libraries share of a run at a population of neurons.

    ``shapes``: the shapes of parameters in the population.
    """

    record: Record

    def __init__(
        self,
        constants: Constants,
        shapes: Mapping[str, tuple[int, ...]],
        seed: int,
        rates: Callable[[str], float] | None = None,
    ):
        self.constants, self.widths, self.fields = constants, constants.widths, Fields(seed)
        self._shapes, self._rates = shapes, rates
        self._matrices: dict[str, Matrix] = {}
        self._roles: dict[str, Any] = {}
        self._entries: dict[str, Any] = {}
        self._tables: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {}
        self.maps: dict[str, tuple[Map, tuple[tuple[float, float], tuple[float, float]]]] = {}
        self.read_out: ReadOut | None = None
        self.offsets: list[Offset] = []
        self.products: list[int] = []

    # What libraries say

    @abstractmethod
    def tensors(self, value: Any, call: Pending) -> Any:
        """Return arguments with values in the place of references."""

    @abstractmethod
    def joined(self, value: np.ndarray, derivative: np.ndarray | None) -> Any:
        """Return a value with its derivative."""

    @abstractmethod
    def parted(self, value: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a value and its derivative, if it has one."""

    @abstractmethod
    def replayed(self, index: int, starts: np.ndarray, behind: set[int]) -> np.ndarray:
        """Return the outputs if the result of a call is each of ``starts``, (start, *shape).

        ``behind``: the calls that depend on it, up to the output.
        """

    def check_place(self, call: Pending) -> None:
        """Check that the call is the one that was recorded at this place."""
        calls = self.widths.records[0].calls
        known = calls[call.index] if call.index < len(calls) else None
        if known is None or known.op.partition("[")[0] != call.op:
            raise self.refused(
                call,
                f"the forward pass does something else with {self.constants.neurons} neurons, or "
                "with other samples, than with those that were read",
            )

    def refused(self, call: Pending, why: str) -> NoRule:
        """Return the error for a call."""
        return refused(call.place, why)

    # Questions to a call

    def of_parameters(self, tensors: list[Ref | Param]) -> str:
        """Return what made those tensors that are of parameters alone, or an empty text."""
        for tensor in tensors:
            if isinstance(tensor, Param):
                return tensor.name
            if not self.record.calls[tensor.place].of_input:
                return self.record.calls[tensor.place].op
        return ""

    def check_numbers(self, call: Pending) -> None:
        """Refuse numbers that differ from channel to channel."""
        small, large = (_numbers(each.args) for each in self.widths.calls(call.index))
        for one, two in zip(small, large, strict=False):
            grow = [axis for axis, n in enumerate(one.shape) if n != two.shape[axis]]
            if any(bool((two != two[(slice(None),) * axis + (slice(1),)]).any()) for axis in grow):
                raise self.refused(
                    call,
                    "it reads numbers that differ from channel to channel, of which there are more "
                    "at larger widths; wanted one number, or a parameter",
                )

    def check_mean(self, call: Pending, what: str) -> None:
        """Refuse a sum over neurons that is no mean of them."""
        one, two = self.widths.factors(call.index)
        self.check_scale(call, what, one, two)

    def check_scale(self, call: Pending, what: str, one: float, two: float) -> None:
        """Refuse a sum over neurons with a factor, at both widths, that does not make it a mean."""
        ratio = self.widths.widths[1] / self.widths.widths[0]
        if abs(two / one * ratio - 1) > 0.01:
            raise self.refused(
                call,
                f"{what} is random at every width, or grows; wanted a factor 1/width before or "
                "behind it, or a number of heads that grows in the place of their size",
            )

    # Parameters

    def vector(self, name: str, call: Pending, factors: tuple[float, float] = (1.0, 1.0)) -> Any:
        """Return the entries of a parameter of which each neuron has a few."""
        self._take(name, "entries", call)
        return self.entries(name, (), factors, call)

    def entries(
        self, name: str, fan_in: tuple[int, ...], factors: tuple[float, float], call: Pending,
        *, trained: bool = False,
    ) -> Any:  # fmt: skip
        """Return the entries of a parameter, drawn from their own law for each neuron."""
        if name in self._entries:
            return self._entries[name]
        law, wide = self.widths.law(name), self.widths.wide(Param(name))
        shape = self._shapes[name]
        if law.kind == "constant":
            value, direction = np.full(shape, law.mean), None
            if trained and self._rates is not None:
                _, found = self.fields.entries(normal(0.0, 1.0), shape, wide[0] if wide else 0)
                direction = found * self._rates(name) ** 0.5
        elif len(wide) != 1:
            raise refused(
                name,
                f"it is a random matrix of neurons that is used in {call.place}; only products "
                "with it by a linear map, a matrix product or a convolution have a rule"
                if wide
                else f"no axis of it grows with the width (used in {call.place}), {SHARED}",
            )
        else:
            law = self.constants.law(name, fan_in, factors)
            value, direction = self._drawn(name, law, shape, wide[0])
        self._entries[name] = self.joined(value, direction)
        return self._entries[name]

    def _drawn(
        self, name: str, law: Law, shape: tuple[int, ...], neurons: int
    ) -> tuple[np.ndarray, np.ndarray]:
        values, direction = self.fields.entries(law, shape, neurons)
        if law.variance:
            direction = direction * (self.own_rate(name, law.variance) / law.variance) ** 0.5
        return values, direction

    def rows(
        self, name: str, ids: np.ndarray, untrained: int | None, call: Pending,
        factors: tuple[float, float] = (1.0, 1.0),
    ) -> Any:  # fmt: skip
        """Return rows of a table, of which those that are read are drawn.

        ``untrained``: the row of padding, which gets no gradient.
        """
        self._take(name, "rows", call)
        wide = self.widths.wide(Param(name))
        if wide != (1,):
            raise refused(name, "only a table whose rows grow with the width has a rule")
        table, count = self._tables.setdefault(name, {}), self._shapes[name][0]
        untrained = None if untrained is None else untrained % count
        if bool(((ids < 0) | (ids >= count)).any()):
            raise InvalidInput(f"x: {name} has rows for 0 to {count - 1}, got {int(ids.max())}.")
        if new := sorted(set(ids.flatten().tolist()) - set(table)):
            shape = (len(new), self._shapes[name][1])
            behind = self.widths.factors(call.index, before=False)
            one, two = (a * b for a, b in zip(behind, factors, strict=True))
            law = self.constants.law(name, (), (one, two))
            if law.kind == "constant":
                drawn = np.full(shape, law.mean), np.zeros(shape)
            else:
                drawn = self._drawn(name, law, shape, 1)
            table.update(zip(new, zip(*drawn, strict=True), strict=True))
            zero = self.widths.parameters[0][name].zero_row
            if zero in new and zero != untrained:
                raise refused(name, f"its row {zero} is 0 and trained; pass padding_idx={zero}")
            if untrained is not None and untrained in new:
                value, direction = table[untrained]
                table[untrained] = value * (untrained != zero), 0 * direction
        values, directions = zip(*(table[i] for i in ids.flatten().tolist()), strict=True)
        shape = (*ids.shape, -1)
        return self.joined(np.stack(values).reshape(shape), np.stack(directions).reshape(shape))

    def drawn_entries(self, name: str) -> Any:
        """Return entries that were drawn."""
        return self._entries[name]

    def shape(self, parameter: Param) -> tuple[int, ...]:
        """Return the shape of a parameter in the population."""
        return self._shapes[parameter.name]

    def _take(self, name: str, role: Any, call: Pending) -> None:
        """Note what a parameter is used as; every use has to be the same."""
        if self._roles.setdefault(name, role) != role:
            raise refused(
                name,
                f"it is used in {call.place} in another way than before, such as with its "
                "transpose, with another bias or as a table of tokens; such uses are dependent, "
                "and each of them has a rule with a weight that is not tied to another one "
                "(tie_word_embeddings=False)",
            )

    # Products

    def affine(
        self, call: Pending, input: Any, its: Affine, native: Callable[[Any, Any, Any], Any]
    ) -> Any:
        """Return the product of a value with a random matrix, with its bias."""
        name = its.weight
        wide = self.widths.wide(Param(name))
        self._take(name, (its.fan_in, its.bias), call)
        if its.bias is not None:
            self._take(its.bias, name, call)
        if not set(its.fan_in) & set(wide):
            return self._few(call, input, its, native, bool(wide))
        centred_law(name, self.widths.parameters[0])
        value = self.tensors(input, call)
        self._note(call, its, its.fan_out in wide)
        use = self._use(value, its)
        if its.fan_out not in wide:
            return self._read_out(call, its, use)
        drawn = self.fields.use(self._matrix(its), use, its.outputs)
        return self._placed(drawn, its, self._mean(its.bias))

    def _matrix(self, its: Affine) -> Matrix:
        return self._matrices.setdefault(its.weight + its.part, Matrix())

    def _use(self, value: Any, its: Affine) -> Use:
        x, derivative = self.parted(value)
        weight = self.constants.variance(its.weight, its.fan_in, its.factors[0])
        bias = 0.0
        if its.bias is not None:
            bias = self.constants.variance(its.bias, (), its.factors[1])
        return Use(
            np.moveaxis(np.asarray(x, np.float64), its.axis, -1),
            None
            if derivative is None
            else np.moveaxis(np.asarray(derivative, np.float64), its.axis, -1),
            its.move,
            weight,
            bias,
            self.own_rate(its.weight, weight),
            0.0 if its.bias is None else self.own_rate(its.bias, bias),
        )

    def own_rate(self, name: str, summed: float) -> float:
        """Return ρ·fan_in of a parameter, given Var·fan_in."""
        if self._rates is None:
            return summed
        variance = self.constants.own_variance(name)
        return self._rates(name) * (summed / variance if variance else 1.0)

    def _mean(self, bias: str | None) -> float:
        return 0.0 if bias is None else self.widths.law(bias).mean

    def _placed(self, drawn: Drawn, its: Affine, mean: float) -> Any:
        def place(numbers: np.ndarray) -> np.ndarray:
            return np.moveaxis(numbers.T.reshape(*drawn.rows, its.outputs), -1, its.axis)

        return self.joined(place(drawn.value) + mean, place(drawn.derivative))

    def _few(
        self, call: Pending, input: Any, its: Affine, native: Callable[[Any, Any, Any], Any],
        grows: bool,
    ) -> Any:  # fmt: skip
        """Return the product with the few entries of each neuron, which keep their own law."""
        if not grows and self.widths.law(its.weight).kind != "constant":
            raise refused(
                its.weight, f"no axis of it grows with the width (used in {call.place}), {SHARED}"
            )
        self._note(call, its, grows)
        weight = self.entries(its.weight, its.fan_in, its.factors[0], call)
        bias = (
            None
            if its.bias is None
            else self.entries(its.bias, (), its.factors[1], call, trained=True)
        )
        return native(self.tensors(input, call), weight, bias)

    def _note(self, call: Pending, its: Affine, hidden: bool) -> None:
        read = self.before([leaf.place for leaf in leaves_of(call.args) if isinstance(leaf, Ref)])
        reads_data = not any(product in read for product in self.products)
        self.products.append(call.index)
        node = (its.weight.removesuffix(".weight") or its.weight) + its.part
        found = Map(
            its.weight, its.bias, its.fan_in, its.fan_out, reads_data, None, call.place,
            last=not hidden,
        )  # fmt: skip
        self.maps.setdefault(node, (found, its.factors))

    def _read_out(self, call: Pending, its: Affine, use: Use) -> Any:
        if self.read_out is not None:
            first = next(found.weight for found, _ in self.maps.values() if found.last)
            raise refused(
                first if first == its.weight else f"{first} and {its.weight}",
                "outputs of channels that grow with the width do not grow, before those of the "
                "model; there is a rule for one read-out, and hidden layers that grow",
            )
        if self._mean(its.bias):
            raise refused(str(its.bias), "outputs have a constant offset at initialisation")
        drawn = self.fields.use(self._matrix(its), use, its.outputs)
        self.read_out = ReadOut(call.index, drawn, its.axis, its.outputs)
        return self._placed(drawn, its, 0.0)

    def behind(self, index: int) -> set[int]:
        """Return the calls that depend on one."""
        found = {index}
        for call in self.record.calls[index + 1 :]:
            if any(ref in found for ref in call.refs()):
                found.add(call.index)
        return found - {index}

    def before(self, stack: list[int]) -> set[int]:
        """Return calls and those that they depend on."""
        found = set(stack)
        while stack:
            new = set(self.record.calls[stack.pop()].refs()) - found
            found |= new
            stack += new
        return found


def _numbers(value: Any) -> list[Any]:
    """Return the arrays among arguments that depend on nothing."""
    if isinstance(value, tuple):
        return [found for item in value for found in _numbers(item)]
    return [value] if getattr(value, "shape", ()) and 0 not in value.shape else []
