"""The populations of neurons in a network of attention, normalisations and perceptrons.

Attention with logits of order one and normalisations act on a population of neurons through
averages over it. Affine maps multiply a field by a Gaussian matrix, so that the fields behind them
are linear combinations of the Gaussian vectors of their population, whatever the fields before
them. Activations and products act on each neuron of their population, which then has to be sampled;
so has a population of heads of a fixed size, in each of which logits are products of few neurons.
Neurons that are added up, such as those of a residual stream, or multiplied form one population;
queries and keys of an attention layer, whose products are averaged, do so as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from largen.errors import NoTheory
from largen.expectations import as_activation
from largen.parameterizations import CanonicalForm
from largen.programs import (
    Affine,
    Attend,
    Concatenate,
    Function,
    Normalise,
    Operation,
    Pool,
    Product,
    Program,
    Source,
    Sum,
    check_independent,
    no_rule,
    written_out,
)
from largen.programs.refusals import at
from largen.theories.chains.constants import MapConstants

READING = "the mean-field limit of branches and attention"
LINEAR = as_activation("linear")
_OF_PARTS = (Affine, Concatenate, Function, Pool)
_KNOWN = (*_OF_PARTS, Attend, Normalise, Product, Sum)


class Populations:
    """The populations of a network, numbered; some turn out to be the same."""

    def __init__(self) -> None:
        self._same: list[int] = []
        self._activated: list[int] = []
        self._split: list[tuple[int, int]] = []

    def new(self) -> int:
        """Return the number of a new population."""
        self._same.append(len(self._same))
        return self._same[-1]

    def unite(self, *numbers: int) -> int:
        """Make populations the same, and return its number."""
        found = set(map(self.of, numbers))
        for number in found:
            self._same[number] = min(found)
        return min(found)

    def activate(self, number: int) -> None:
        """Note that a function acts on each neuron of a population."""
        self._activated.append(number)

    def split(self, number: int, size: int) -> None:
        """Note that a population consists of heads of some number of neurons."""
        self._split.append((number, size))

    @property
    def activated(self) -> set[int]:
        """The numbers of the populations on which functions act."""
        return set(map(self.of, self._activated))

    @property
    def head_sizes(self) -> dict[int, int]:
        """The numbers of neurons of a head, of populations that consist of heads."""
        return {self.of(number): size for number, size in self._split}

    @property
    def sampled(self) -> set[int]:
        """The numbers of the populations that have to be sampled."""
        return self.activated | set(self.head_sizes)

    def of(self, number: int) -> int:
        """Return the number under which a population is known."""
        while self._same[number] != number:
            number = self._same[number]
        return number


@dataclass(frozen=True)
class Node:
    """An operation on fields."""

    operation: Operation
    # The nodes whose fields it reads. An affine map reads several ones if they are the parts of a
    # concatenation.
    reads: tuple[int, ...] = ()
    population: int | None = None  # the number of the population behind it; None for data
    ratio: float = 1.0  # the number of neurons behind it per unit of width


@dataclass(frozen=True)
class PopulatedNetwork:
    """A program as operations on fields of populations, and the constants of a parameterization."""

    program: Program  # the program, without repetitions
    nodes: tuple[Node, ...]  # its operations, the data first, and the read-out last
    populations: Populations  # which populations are the same
    form: CanonicalForm

    @property
    def positions(self) -> int:
        """The number of positions of a sample."""
        return prod(self.program.signals[0].space or ())

    @property
    def attentions(self) -> int:
        """The number of attention layers."""
        return sum(isinstance(node.operation, Attend) for node in self.nodes)

    def constants(self, affine: Operation) -> MapConstants:
        """Return the constants of an affine map."""
        assert isinstance(affine, Affine)
        return MapConstants.of(self.form, self.program.weights[affine.weight])

    def ratio_of(self, population: int) -> float:
        """Return the number of neurons of a population per unit of width."""
        of = self.populations.of
        numbers = ((node.population, node.ratio) for node in self.nodes)
        return next(r for number, r in numbers if number is not None and of(number) == population)

    def is_matrix(self, node: Node) -> bool:
        """Whether an operation is an affine map between populations."""
        return isinstance(node.operation, Affine) and all(
            self.nodes[read].population is not None for read in node.reads
        )

    def shares(self, node: Node) -> list[float]:
        """Return the share of each node that another one reads in their neurons."""
        ratios = [self.nodes[read].ratio for read in node.reads]
        return [ratio / sum(ratios) for ratio in ratios]


def populated(program: Program, form: CanonicalForm) -> PopulatedNetwork:
    """Return a network with its populations.

    ``form``: the constants of its weights.
    """
    program = written_out(program)
    check_independent(program, READING)
    if not isinstance(program.operations[-1], Affine):
        raise NoTheory(f"{READING} wants a network that ends in Dense(), got {program.sources[-1]}")
    reader = _Reader(program)
    for value in range(1, len(program.operations)):
        reader.add(value)
    return PopulatedNetwork(program, tuple(reader.nodes), reader.populations, form)


class _Reader:
    """The operations on fields so far, and the parts of each value of a program."""

    def __init__(self, program: Program):
        self._program, self.populations = program, Populations()
        self.nodes = [Node(program.operations[0])]
        self._parts: list[tuple[int, ...]] = [(0,)]

    def add(self, value: int) -> None:
        """Append the operation of a value."""
        operation, source = self._program.operations[value], self._program.sources[value]
        reads = [self._parts[read] for read in operation.reads]
        parts = tuple(part for read in reads for part in read)
        affine = isinstance(operation, Affine)
        if isinstance(operation, Function) and operation.phi == LINEAR:
            self._parts.append(parts)
            return
        if not affine and any(self.nodes[part].population is None for part in parts):
            raise NoTheory(
                f"this limit wants a Dense(), the read-in, before {at(source)}, which reads the "
                "data."
            )
        if isinstance(operation, Concatenate):
            self._parts.append(parts)
        elif isinstance(operation, Function | Pool):
            self._parts.append(tuple(self._append(operation, (part,), source) for part in parts))
        elif affine or len(parts) == len(reads):
            self._parts.append((self._append(operation, parts, source),))
        else:
            raise no_rule(f"{READING}, behind a concatenation", operation, source, _OF_PARTS)

    def _append(self, operation: Operation, reads: tuple[int, ...], source: Source) -> int:
        population, ratio = self._behind(operation, reads, source)
        self.nodes.append(Node(operation, reads, population, ratio))
        return len(self.nodes) - 1

    def _behind(
        self, operation: Operation, reads: tuple[int, ...], source: Source
    ) -> tuple[int, float]:
        """Return the population behind an operation, and its neurons per unit of width."""
        if isinstance(operation, Affine) and operation.dense:
            ratio = float(self._program.weights[operation.weight].width_ratio)
            return self.populations.new(), ratio
        numbers = [self.nodes[part].population or 0 for part in reads]
        ratios = [self.nodes[part].ratio for part in reads]
        match operation:
            case Function() | Product():
                self.populations.activate(self.populations.unite(*numbers))
            case Sum():
                self.populations.unite(*numbers)
            case Attend():
                self._attend(operation, numbers, ratios[2] / ratios[1], at(source))
            case Normalise(over="channels" | "sample") | Pool(window=None):
                pass
            case _:
                raise no_rule(READING, operation, source, _KNOWN)
        return numbers[-1], ratios[-1]

    def _attend(self, operation: Attend, numbers: list[int], share: float, where: str) -> None:
        """Unite queries and keys, and with them the values of heads of a fixed size."""
        self.populations.unite(*numbers[:2])
        if operation.concentrated and operation.softmax:
            return
        if operation.key_size is None:
            raise NoTheory(
                f"{where} has heads whose keys grow in number with the width, and logits q·k/√d "
                "that stay random; their limit under training is not implemented. With key_size=… "
                "there is that of heads of a fixed size, and with logits q·k/d, those of "
                "lg.QKVAttention(), that of large keys."
            )
        if not operation.softmax:
            raise NoTheory(f"{where} has no softmax; its limit under training is not implemented.")
        if share != 1:
            raise NoTheory(
                f"{where} has {share:g} values for each key; the limit of heads of a fixed size "
                "wants as many values as keys."
            )
        self.populations.split(self.populations.unite(*numbers), operation.key_size)
