"""Elementwise operations joined into one function of each value that is not elementwise itself.

Gaussian integrals are over preactivations. A function of a function, a sum x + c·φ(x) or a product
of functions is not Gaussian, but is one function of the same Gaussian preactivation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

import jax.numpy as jnp

from largen.expectations import ActivationFunction, as_activation
from largen.expectations.composition import compose, product, slope, weighted_sum
from largen.programs.operations import (
    BRANCH,
    Concatenate,
    Flatten,
    Function,
    Gain,
    Operation,
    Product,
    Repeat,
    Sum,
)
from largen.programs.program import Program, Source
from largen.programs.rewriting import Rewriter, inline, replay
from largen.programs.signals import Signal

_LINEAR, _ONE = as_activation("linear"), ActivationFunction("1", jnp.ones_like)
Gains = tuple[tuple[int, ActivationFunction, ActivationFunction | float | None], ...]


class Elementwise(NamedTuple):
    """A value as a function of another one."""

    base: int  # the position of the value that the function is applied to
    phi: ActivationFunction | None  # the function; None for the value itself
    gains: Gains = ()  # trained gains inside of the function, as in Function

    @property
    def function(self) -> ActivationFunction:
        """The function, with the identity for the value itself."""
        return _LINEAR if self.phi is None else self.phi

    @property
    def explicit(self) -> Gains:
        """The gains with functions in place of numbers."""
        found = []
        for weight, of_gain, of_offset in self.gains:
            if isinstance(of_offset, float):
                of_offset = weighted_sum((of_offset, slope(self.function)))
            found.append((weight, of_gain, of_offset))
        return tuple(found)


def join_elementwise(
    program: Program, branch: float = 1.0, *, multiples: bool = False, gains: bool = False
) -> Program:
    """Return an equal program in which no function is applied to an elementwise function.

    Repetitions that begin or end with functions are written out where those have to be joined with
    functions around them.

    Parameters
    ----------
    program
        The program.
    branch
        The factor of residual branches, as a number.
    multiples
        Whether functions x -> c x become sums with the factor c, which keep a Gaussian value so.
    gains
        Whether gains before functions become a part of these.
    """
    joiner = _Joiner(program, branch, multiples, gains)
    return joiner.found.program(replay(program, 0, joiner.place))


class _Joiner:
    """A program while its elementwise operations are joined."""

    def __init__(self, program: Program, branch: float, multiples: bool, gains: bool):
        self.found, self._branch = Rewriter(program), branch
        self._multiples, self._gains = multiples, gains

    def place(self, operation: Operation, signal: Signal, source: Source) -> int:
        """Append an operation, joined with the elementwise ones that it reads."""
        match operation:
            case Function(reads, phi, gains):
                factor = phi.slope if self._multiples and not gains else None
                if factor is None:
                    return self._function(phi, reads[0], source, gains)
                return self.found.add(Sum(reads, (factor,)), signal, source)
            case Sum():
                return self._sum(operation, signal, source)
            case Product(reads):
                return self._product(reads, signal, source)
            case Repeat():
                return self._copies(operation, signal, source)
        return self.found.add(operation, signal, source)

    def _elementwise(self, value: int) -> Elementwise:
        """Return a value as a function of one that is no function."""
        match self.found.operations[value]:
            case Function(reads, phi, gains):
                return Elementwise(reads[0], phi, gains)
            case Gain(reads, weight, initial, offset) if self._gains:
                its = self._elementwise(reads[0])
                own: Any = None
                if offset:
                    own = _ONE if its.phi or not initial else 1 / initial
                phi = its.function if initial == 1 else weighted_sum((initial, its.function))
                gains = _times(its.gains, initial)
                return Elementwise(its.base, phi, (*gains, (weight, its.function, own)))
            case Sum(reads, factors) if len(reads) == 1:
                its, factor = self._elementwise(reads[0]), self._number(factors[0])
                if its.phi is not None:
                    phi = weighted_sum((factor, its.phi))
                    return Elementwise(its.base, phi, _times(its.gains, factor))
        return Elementwise(value, None)

    def _number(self, factor: float | str) -> float:
        return self._branch if factor == BRANCH else float(factor)

    def _function(
        self, phi: ActivationFunction, value: int, source: Source, own: Gains = ()
    ) -> int:
        its = self._elementwise(value)
        base, gains = its.base, own
        if its.phi is not None:
            own = Elementwise(base, phi, own).explicit
            gains = _each(own, lambda of: compose(of, its.function))
            gains += _times(its.gains, compose(slope(phi), its.phi) if its.gains else 1.0)
            phi = compose(phi, its.phi)
        signal = self.found.signals[base]
        behind = self.found.operations[base]
        if isinstance(behind, Flatten | Concatenate):  # functions commute with both
            reads = tuple(self._function(phi, read, source, gains) for read in behind.reads)
            return self.found.add(replace(behind, reads=reads), signal, source)
        return self.found.add(Function((base,), phi, gains), signal, source)

    def _sum(self, operation: Sum, signal: Signal, source: Source) -> int:
        reads, factors = [], []
        for base, members in self._by_base(operation.reads).items():
            terms = [(operation.factors[i], operation.reads[i], its) for i, its in members]
            if len(terms) == 1:
                reads.append(terms[0][1])
                factors.append(terms[0][0])
                continue
            if all(its.phi is None for _, _, its in terms):
                reads.append(base)
                factors.append(sum(self._number(factor) for factor, _, _ in terms))
                continue
            numbers = [(self._number(factor), its.function) for factor, _, its in terms]
            gains = [
                _times(its.explicit, c) for (c, _), (*_, its) in zip(numbers, terms, strict=True)
            ]
            phi = Function((base,), weighted_sum(*numbers), _joined(gains))
            reads.append(self.found.add(phi, self.found.signals[base], source))
            factors.append(1.0)
        if factors == [1.0]:
            return reads[0]
        return self.found.add(Sum(tuple(reads), tuple(factors)), signal, source)

    def _product(self, given: tuple[int, ...], signal: Signal, source: Source) -> int:
        reads = []
        for base, members in self._by_base(given).items():
            if len(members) == 1:
                reads.append(given[members[0][0]])
                continue
            phi = reduce(product, (its.function for _, its in members))
            gains = []
            for place, (_, its) in enumerate(members):
                others = [other.function for i, (_, other) in enumerate(members) if i != place]
                gains.append(_times(its.explicit, reduce(product, others)))
            joined = Function((base,), phi, _joined(gains))
            reads.append(self.found.add(joined, self.found.signals[base], source))
        if len(reads) == 1:
            return reads[0]
        return self.found.add(Product(tuple(reads)), signal, source)

    def _by_base(self, reads: tuple[int, ...]) -> dict[int, list[tuple[int, Elementwise]]]:
        """Return the places of values among the reads, by the value that they are functions of."""
        found: dict[int, list[tuple[int, Elementwise]]] = {}
        for place, read in enumerate(reads):
            its = self._elementwise(read)
            found.setdefault(its.base, []).append((place, its))
        return found

    def _copies(self, copies: Repeat, signal: Signal, source: Source) -> int:
        # Kernels behind infinitely many copies have closed forms and tables for functions only.
        multiples = self._multiples and copies.times < float("inf")
        body = join_elementwise(copies.body, self._branch, multiples=multiples, gains=self._gains)
        begins = any(isinstance(o, Function) and o.reads == (0,) for o in body.operations)
        ends = isinstance(body.operations[-1], Function | Gain)
        joins = self._elementwise(copies.reads[0]).phi is not None
        if copies.times < float("inf") and (ends or (begins and joins)):
            return inline(copies, self.found, self.place)
        # Copies that were written out inside the body have weights that its copies lack as yet.
        more = body.weights[len(copies.body.weights) :]
        rows = tuple((*row, *map(self.found.weight, more)) for row in copies.weights)
        return self.found.add(replace(copies, body=body, weights=rows), signal, source)


def _each(gains: Gains, change: Callable[[ActivationFunction], ActivationFunction]) -> Gains:
    """Return gains with all functions changed."""
    found = []
    for weight, of_gain, of_offset in gains:
        if isinstance(of_offset, ActivationFunction):
            of_offset = change(of_offset)
        found.append((weight, change(of_gain), of_offset))
    return tuple(found)


def _times(gains: Gains, factor: float | ActivationFunction) -> Gains:
    """Return the gains of a function that is multiplied by a number, or has an outer derivative."""
    if factor == 1:
        return gains
    if isinstance(factor, ActivationFunction):
        return _each(gains, lambda of: factor if of == _ONE else product(factor, of))
    return _each(gains, lambda of: weighted_sum((factor, of)))


def _joined(parts: list[Gains]) -> Gains:
    """Return the gains of a sum of functions, some of which may have the same gains."""
    found: dict[int, Any] = {}
    for weight, *functions in (each for part in parts for each in part):
        both: Any = zip(found.get(weight, functions), functions, strict=True)
        if weight in found:
            functions = [of and weighted_sum((1.0, of), (1.0, other)) for of, other in both]
        found[weight] = functions
    return tuple((weight, *functions) for weight, functions in found.items())
