"""Constants of a family of models as a population has them: in the limit, or of a width."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from largen.reading.calls import Call, Param, Record, Ref
from largen.reading.family import Family
from largen.reading.laws import Constant, Law, Parameter, constant_of
from largen.reading.nodes import law_of
from largen.reading.refusals import refused

FACTORS = ("mul", "div")
# Calls that leave numbers what they are.
SEEN = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose")


class Widths:
    """A family at two widths: which axes grow, and how constants depend on the width."""

    def __init__(self, family: Family, widths: tuple[int, int]):
        self.family, self.widths = family, widths
        self.parameters = tuple(family.at(width) for width in widths)
        small, large = (family.calls(width) for width in widths)
        self.records: tuple[Record, Record] = small, large
        self._taken: set[int] = set()  # calls whose numbers are with the constants of weights

    def calls(self, index: int) -> tuple[Call, Call]:
        """Return a call at both widths."""
        small, large = self.records
        return small.calls[index], large.calls[index]

    def shapes(self, leaf: Ref | Param) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of a tensor at both widths."""
        if isinstance(leaf, Ref):
            one, two = self.calls(leaf.place)
            return one.shape, two.shape
        one, two = (leaf.seen(p[leaf.name].shape) for p in self.parameters)
        return one, two

    def wide(self, leaf: Ref | Param) -> tuple[int, ...]:
        """Return the axes of a tensor that grow with the width."""
        pairs = zip(*self.shapes(leaf), strict=True)
        return tuple(axis for axis, (small, large) in enumerate(pairs) if small != large)

    def law(self, name: str) -> Law:
        """Return the law of a parameter at the first width."""
        return law_of(name, self.parameters[0])

    def factors(self, index: int, *, before: bool = True) -> tuple[float, float]:
        """Return the product of the numbers that multiply what a call reads and makes, per width.

        They are with the constants of its weights, where powers of the width cancel.
        """
        one = two = 1.0
        for small, large in self._numbers(index, before):
            one, two = one * small, two * large
        return one, two

    def _numbers(self, index: int, before: bool) -> Iterator[tuple[float, float]]:
        place = index
        while (behind := self._reader(place)) is not None and (n := self._factor(behind)):
            self._taken.add(behind)
            yield n
            place = behind
        if not before:
            return
        for place in self.records[0].calls[index].refs()[:2]:
            while self._reader(place) is not None and (n := self._factor(place)):
                self._taken.add(place)
                yield n
                if not (refs := self.records[0].calls[place].refs()):
                    break
                (place,) = refs

    def _reader(self, index: int) -> int | None:
        """Return the only call that reads a value, if there is one."""
        found = self._readers.get(index, [])
        return found[0] if len(found) == 1 else None

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for call in self.records[0].calls:
            for index in set(call.refs()):
                found.setdefault(index, []).append(call.index)
        return found

    def _factor(self, index: int) -> tuple[float, float] | None:
        """Return the number at both widths by which a call multiplies a value, if it does."""
        op = self.records[0].calls[index].op
        if op in SEEN:
            return 1.0, 1.0
        if op not in FACTORS:
            return None
        one, two = (_number(call) for call in self.calls(index))
        return None if one is None or two is None else (one, two)

    def check_numbers(self, elementwise: frozenset[str]) -> None:
        """Refuse elementwise functions with numbers of the width, away from weights and means."""
        small, large = self.records
        for one, two in zip(small.calls, large.calls, strict=True):
            if one.op not in elementwise or one.index in self._taken:
                continue
            values = [
                [
                    n
                    for arg in (*call.args, *call.kwargs.values())
                    if (n := as_number(arg)) is not None
                ]
                for call in (one, two)
            ]
            if values[0] != values[1]:
                raise refused(
                    one.place,
                    f"it has the number {values[0]} at width {self.widths[0]} and {values[1]} at "
                    f"{self.widths[1]}; such factors have a rule before and behind affine maps",
                )

    def constant(
        self, name: str, fan_in: tuple[int, ...], factors: tuple[float, float]
    ) -> Constant:
        """Return Var·fan_in of a parameter, with factors of the forward pass."""
        pair = tuple(
            _sum(p, name, fan_in) * f**2 for p, f in zip(self.parameters, factors, strict=True)
        )

        def at_large() -> tuple[float, float]:
            one, two = self.family.at_large(self.widths[0])
            return _sum(one, name, fan_in), _sum(two, name, fan_in)

        flat = at_large if factors[0] == factors[1] else None
        found = constant_of((pair[0], pair[1]), self.widths[1] / self.widths[0], flat)
        if found is None:
            raise refused(
                name,
                f"its variance is not a power of the width: times the fan-in it is {pair[0]:.4g} "
                f"at width {self.widths[0]} and {pair[1]:.4g} at {self.widths[1]}",
            )
        return found


class Constants:
    """The constants of a population of ``neurons`` neurons: of a width, or in the limit (None)."""

    def __init__(self, widths: Widths, neurons: int, width: int | None):
        self.widths, self.neurons, self.width = widths, neurons, width
        self._at = None if width is None else widths.family.at(width)
        self.vanished: dict[str, None] = {}  # parameters whose variances are 0 in the limit alone

    def variance(self, name: str, fan_in: tuple[int, ...], factors: tuple[float, float]) -> float:
        """Return Var·fan_in for the population, whose forward pass has the factors itself."""
        of_factors = self._power(name, factors)
        if self._at is not None:
            # The factors of this width, over those that the population has.
            assert self.width is not None
            return _sum(self._at, name, fan_in) * (self.width / self.neurons) ** (2 * of_factors)
        constant = self.widths.constant(name, fan_in, factors)
        found = constant.limit
        if not math.isfinite(found):
            raise refused(name, "its variance times the fan-in grows with the width")
        if found != constant.value:
            self.vanished[name] = None
        first = factors[0] * (self.neurons / self.widths.widths[0]) ** of_factors
        return found / first**2

    def own_variance(self, name: str) -> float:
        """Return the variance of a parameter at the width, of the first width in the limit."""
        return law_of(name, self._at or self.widths.parameters[0]).variance

    def law(self, name: str, fan_in: tuple[int, ...], factors: tuple[float, float]) -> Law:
        """Return the law of a parameter's entries in the population."""
        law = self.widths.law(name)
        fan = prod(self.widths.parameters[0][name].shape[axis] for axis in fan_in)
        return replace(law, variance=self.variance(name, fan_in, factors) / fan)

    def _power(self, name: str, factors: tuple[float, float]) -> float:
        """Return the power of the width in factors of the forward pass."""
        one, two = factors
        if one == two:
            return 0.0
        found = constant_of((one**2, two**2), self.widths.widths[1] / self.widths.widths[0], None)
        if found is None or found.power is None:
            raise refused(name, "a factor of the forward pass is not a power of the width")
        return float(found.power) / 2


def _sum(parameters: Any, name: str, fan_in: tuple[int, ...]) -> float:
    """Return Var·fan_in of a parameter."""
    found: Parameter = parameters[name]
    return law_of(name, parameters).variance * prod(found.shape[axis] for axis in fan_in)


def _number(call: Call) -> float | None:
    """Return the number that a call multiplies or divides one value by."""
    if any(each is not None for each in call.kwargs.values()) or len(call.args) != 2:
        return None
    values = [arg for arg in call.args if isinstance(arg, Ref)]
    number = as_number(call.args[1] if isinstance(call.args[0], Ref) else call.args[0])
    if len(values) != 1 or not number:
        return None
    if call.op == "div":
        return 1 / number if isinstance(call.args[0], Ref) else None
    return number


def as_number(argument: Any) -> float | None:
    """Return an argument that is a number, or an array of equal ones."""
    if isinstance(argument, (int, float)):
        return float(argument)
    if not hasattr(argument, "dtype") or getattr(argument, "is_meta", False):
        return None
    entries = np.asarray(argument)
    same = entries.size and np.all(entries == entries.flat[0])
    return float(entries.flat[0]) if same else None
