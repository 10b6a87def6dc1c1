"""A forward pass of the user's own code at a population of representative neurons.

The module is run with S neurons in the place of its width. A product with a random matrix of many
neurons draws its outputs from their law, given all that the matrix multiplied before
(:mod:`largen.reading.torch.population.fields`); everything else runs as it is. Derivatives along a
random direction of all parameters are carried by forward differentiation, and their covariance at
the outputs is the tangent kernel. So no matrix is ever stored, and no rule of a function is
required.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from largen.errors import InvalidInput, LargenError, NoRule
from largen.reading.calls import Param, Ref, leaves_of
from largen.reading.laws import Law, normal
from largen.reading.nodes import Map, centred_law
from largen.reading.refusals import refused
from largen.reading.torch.population.calls import Affine, Computed, Pending, ReadOut, Rule
from largen.reading.torch.population.constants import Constants
from largen.reading.torch.population.fields import F64, Drawn, Fields, Matrix, Use
from largen.reading.torch.population.native import ATTRIBUTES, check
from largen.reading.torch.recording import Recorder


class Population(Recorder):
    """A mode in which the functions of PyTorch act on a population of neurons."""

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        constants: Constants,
        rules: dict[str, Rule],
        seed: int,
        rates: Callable[[str], float] | None = None,
    ):
        super().__init__(module, x)
        self.constants, self.widths, self.fields = constants, constants.widths, Fields(seed)
        self._rules, self._rates = rules, rates
        self._matrices: dict[str, Matrix] = {}
        self._roles: dict[str, Any] = {}
        self._entries: dict[str, Tensor] = {}
        self._tables: dict[str, dict[int, Tensor]] = {}
        self._shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        self.maps: dict[str, tuple[Map, tuple[tuple[float, float], tuple[float, float]]]] = {}
        self.read_out: ReadOut | None = None
        self.products: list[int] = []
        self.functions: dict[int, tuple[Any, Any, Any, int | None]] = {}

    # Calls

    def run(self, func: Any, args: Any, kwargs: Any, name: str, given: Any, named: Any) -> Any:
        """Run a call on the population."""
        if name in ATTRIBUTES:
            return func(*args, **kwargs)
        call = Pending(len(self.record.calls), name, given, named, self.stack[-1])
        self._check_place(call)
        out = None
        if (rule := self._rules.get(name)) is not None:
            out = self._by_rule(rule, call)
        if out is None:
            check(self, call)
            out = self._natively(call, func)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        for n, part in enumerate(p for p in parts if isinstance(p, Tensor)):
            single = None if isinstance(out, Tensor) else n
            self.functions[call.index + n] = (func, given, named, single)
            if part.device.type == "meta":
                raise self.refused(call, "it makes a tensor without entries")
        return out

    def _check_place(self, call: Pending) -> None:
        """Check that the call is the one that was recorded at this place."""
        calls = self.widths.records[0].calls
        known = calls[call.index] if call.index < len(calls) else None
        if known is None or known.op.partition("[")[0] != call.op:
            raise self.refused(
                call,
                f"the forward pass does something else with {self.constants.neurons} neurons, or "
                "with other samples, than with those that were read",
            )

    def _by_rule(self, rule: Rule, call: Pending) -> Any:
        try:
            bound = inspect.signature(rule).bind(self, call, *call.args, **call.kwargs)
        except TypeError as error:
            raise self.refused(call, f"there is no rule for these arguments: {error}") from None
        return rule(*bound.args, **bound.kwargs)

    def _natively(self, call: Pending, func: Any) -> Any:
        args, kwargs = self.tensors(call.args, call), self.tensors(call.kwargs, call)
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if isinstance(error, LargenError):
                raise
            said = str(error).partition("\n")[0][:160]
            raise self.refused(call, f"it fails on a population of neurons: {said}") from None

    def tensors(self, value: Any, call: Pending) -> Any:
        """Return arguments with tensors in the place of references."""
        if isinstance(value, Computed):
            return value.tensor
        if isinstance(value, Ref):
            return self.result(value)
        if isinstance(value, Param):
            entries = self.vector(value.name, call)
            return entries.mT if value.axes else entries
        if isinstance(value, dict):
            return {key: self.tensors(item, call) for key, item in value.items()}
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self.tensors(item, call) for item in value)
        if isinstance(value, Tensor) and value.device.type == "meta":
            raise self.refused(
                call, "it reads a tensor that the module's construction made; register_buffer it"
            )
        return value

    def refused(self, call: Pending, why: str) -> NoRule:
        """Return the error for a call."""
        return refused(call.place, why)

    # Questions to a call

    def draws(self, call: Pending) -> bool:
        """Whether a dropout is in training mode."""
        p = call.kwargs.get("p", call.args[1] if len(call.args) > 1 else 0.5)
        training = call.kwargs.get("training", call.args[2] if len(call.args) > 2 else True)
        return bool(p) and bool(training)

    def of_parameters(self, tensors: list[Ref | Param]) -> str:
        """Return what made those tensors that are of parameters alone, or an empty text."""
        for tensor in tensors:
            if isinstance(tensor, Param):
                return tensor.name
            if not self.record.calls[tensor.place].of_input:
                return self.record.calls[tensor.place].op
        return ""

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

    def vector(self, name: str, call: Pending) -> Tensor:
        """Return the entries of a parameter of which each neuron has a few."""
        self._take(name, "entries", call)
        return self.entries(name, (), (1.0, 1.0), call)

    def entries(
        self, name: str, fan_in: tuple[int, ...], factors: tuple[float, float], call: Pending,
        *, trained: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the entries of a parameter, drawn from their own law for each neuron."""
        if name in self._entries:
            return self._entries[name]
        law, wide = self.widths.law(name), self.widths.wide(Param(name))
        shape = self._shapes[name]
        if law.kind == "constant":
            found = torch.full(shape, law.mean, dtype=F64)
            if trained and self._rates is not None:
                _, direction = self.fields.entries(normal(0.0, 1.0), shape, wide[0] if wide else 0)
                found = forward_ad.make_dual(found, direction * self._rates(name) ** 0.5)
        elif len(wide) != 1:
            raise refused(
                name,
                f"it is a random matrix of neurons that is used in {call.place}; only products "
                "with it by a linear map, a matrix product or a convolution have a rule"
                if wide
                else f"no axis of it grows with the width (used in {call.place}), so that one draw "
                "is shared by all neurons and the kernel is random in the limit",
            )
        else:
            law = self.constants.law(name, fan_in, factors)
            found = self._drawn(name, law, shape, wide[0])
        self._entries[name] = found
        return found

    def _drawn(self, name: str, law: Law, shape: tuple[int, ...], neurons: int) -> Tensor:
        values, direction = self.fields.entries(law, shape, neurons)
        if law.variance:
            direction = direction * (self._rate(name, law.variance) / law.variance) ** 0.5
        return forward_ad.make_dual(values, direction)

    def rows(self, name: str, ids: Tensor, untrained: int | None, call: Pending) -> Tensor:
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
            law = self.constants.law(name, (), self.widths.factors(call.index, before=False))
            if law.kind == "constant":
                drawn = torch.full(shape, law.mean, dtype=F64)
            else:
                drawn = self._drawn(name, law, shape, 1)
            table.update(zip(new, drawn, strict=True))
            zero = self.widths.parameters[0][name].zero_row
            if zero in new and zero != untrained:
                raise refused(name, f"its row {zero} is 0 and trained; pass padding_idx={zero}")
            if untrained is not None and untrained in new:
                value = forward_ad.unpack_dual(table[untrained]).primal
                table[untrained] = value * (untrained != zero)
        return torch.stack([table[i] for i in ids.flatten().tolist()]).reshape(*ids.shape, -1)

    def drawn_entries(self, name: str) -> Tensor:
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
        self, call: Pending, input: Any, its: Affine, native: Callable[..., Tensor]
    ) -> Tensor:
        """Return the product of a value with a random matrix, with its bias."""
        name = its.weight
        wide = self.widths.wide(Param(name))
        self._take(name, (its.fan_in, its.bias), call)
        if its.bias is not None:
            self._take(its.bias, name, call)
        if its.fan_in[0] not in wide:
            return self._few(call, input, its, native, its.fan_out in wide)
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

    def _use(self, value: Tensor, its: Affine) -> Use:
        x, derivative = forward_ad.unpack_dual(value)
        weight = self.constants.variance(its.weight, its.fan_in, its.factors[0])
        bias = 0.0
        if its.bias is not None:
            bias = self.constants.variance(its.bias, (), its.factors[1])
        return Use(
            x.to(F64).movedim(its.axis, -1),
            None if derivative is None else derivative.to(F64).movedim(its.axis, -1),
            its.move,
            weight,
            bias,
            self._rate(its.weight, weight),
            0.0 if its.bias is None else self._rate(its.bias, bias),
        )

    def _rate(self, name: str, summed: float) -> float:
        """Return ρ·fan_in of a parameter, given Var·fan_in."""
        if self._rates is None:
            return summed
        variance = self.constants.own_variance(name)
        return self._rates(name) * (summed / variance if variance else 1.0)

    def _mean(self, bias: str | None) -> float:
        return 0.0 if bias is None else self.widths.law(bias).mean

    def _placed(self, drawn: Drawn, its: Affine, mean: float) -> Tensor:
        def place(numbers: Tensor) -> Tensor:
            return numbers.T.reshape(*drawn.rows, -1).movedim(-1, its.axis).contiguous()

        return forward_ad.make_dual(place(drawn.value) + mean, place(drawn.derivative))

    def _few(
        self, call: Pending, input: Any, its: Affine, native: Callable[..., Tensor], out: bool
    ) -> Tensor:
        """Return the product with the few entries of each neuron, which keep their own law."""
        if not out and self.widths.law(its.weight).kind != "constant":
            raise refused(
                its.weight,
                f"no axis of it grows with the width (used in {call.place}), so that one draw is "
                "shared by all neurons and the kernel is random in the limit",
            )
        self._note(call, its, out)
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

    def _read_out(self, call: Pending, its: Affine, use: Use) -> Tensor:
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
