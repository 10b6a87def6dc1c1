"""A network as a program: what every theory and computation reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

from largen.programs.operations import Data, MoveChannels, Operation, Repeat
from largen.programs.signals import Signal

Path = tuple[int, ...]
Role = Literal["input", "hidden", "output"]


class Source(NamedTuple):
    """The layer that an operation is of, for messages.

    Attributes
    ----------
    text
        The layer as text.
    path
        Its path in the network.
    node
        The name of its node, in a graph.
    """

    text: str
    path: Path = ()
    node: str = ""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Weight:
    """A weight matrix with its bias, or the gains of channels with their offsets.

    Attributes
    ----------
    path
        The indices of parts from the root of the network to the layer that holds the weight.
    weight_std, bias_std
        σ_w and σ_b, of order one; without a bias σ_b = 0. Gains have 1, and 1 or 0.
    width_ratio
        The number of output features per unit of width.
    patch
        The number of features that each output sums over, per channel of the data or per unit of
        width.
    from_data
        Whether the first operation with this weight reads the data.
    in_branch
        Whether the weight is in a residual branch, where the powers of depth apply.
    copies
        The number of copies that repetitions make of it; may be ``math.inf``.
    last
        Whether it is the network's last matrix.
    gain
        Whether it is gains.
    """

    path: Path
    weight_std: float
    bias_std: float
    width_ratio: Fraction
    patch: Fraction
    from_data: bool
    in_branch: bool
    copies: float
    last: bool = False
    gain: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its parameters: matrix and bias, or gains and offsets."""
        kinds = ("gain", "offset") if self.gain else ("weight", "bias")
        return kinds if self.bias_std else kinds[:1]

    @property
    def role(self) -> Role:
        """Which sides of the weight grow with the width: input, hidden or output."""
        return "output" if self.last else "input" if self.from_data else "hidden"

    @property
    def name(self) -> str:
        """The path as text, such as ``"1.0.1"``."""
        return name_of(self.path)


def name_of(path: Path) -> str:
    """Return a path as text; the path of a network that is one layer is ``"0"``."""
    return ".".join(map(str, path)) or "0"


@dataclass(frozen=True)
class Program:
    """Operations in the order in which they are carried out; the last value is the output.

    Programs with the same operations are equal, whatever the names and numbers of their weights:
    compiled functions depend on the operations alone.

    Attributes
    ----------
    operations
        The operations; the first is :class:`Data`, and each reads values before it.
    signals
        The shape of each value.
    sources
        The layer of each operation.
    weights
        The weights, in the order in which they are first used.
    seeds
        Numbers from which random draws begin, such as those of the heads of attention.
    """

    operations: tuple[Operation, ...]
    signals: tuple[Signal, ...] = field(compare=False, repr=False)
    sources: tuple[Source, ...] = field(compare=False, repr=False)
    weights: tuple[Weight, ...] = field(compare=False, default=(), repr=False)
    seeds: tuple[int, ...] = field(compare=False, default=(), repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.operations)

    @property
    def output(self) -> int:
        """The position of the last value."""
        return len(self.operations) - 1

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The operations that read each value."""
        found: list[list[int]] = [[] for _ in self.operations]
        for position, operation in enumerate(self.operations):
            for read in set(operation.reads):
                found[read].append(position)
        return tuple(map(tuple, found))

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Values on which all later ones depend only through them, the first and last included.

        No weight is used on both sides of such a value.
        """
        used = [operation.weights_used() for operation in self.operations]
        last_use = {weight: place for place, its in enumerate(used) for weight in its}
        furthest, found = 0, []
        for position, readers in enumerate(self.readers):
            furthest = max(furthest, *(last_use[weight] for weight in used[position]), 0)
            if furthest <= position:
                found.append(position)
            furthest = max(furthest, *readers, 0)
        return tuple(found)

    @cached_property
    def most_positions(self) -> int:
        """The largest number of positions of a value that an operation reads.

        Data whose channels are moved do not count: channels may be among their positions.
        """
        found = [1]
        for operation in self.operations:
            if isinstance(operation, Repeat):
                found.append(operation.body.most_positions)
            elif not isinstance(operation, MoveChannels):
                found += [prod(self.signals[read].space or ()) for read in operation.reads]
        return max(found)

    def between(self, start: int, end: int) -> Program:
        """Return the program of the operations from one value to another.

        The value ``start`` takes the place of the data: nothing on the way to ``end`` may depend
        on values before it in another way.

        Raises
        ------
        ValueError
            If something does.
        """
        needed, stack = {end}, [end]
        while stack:
            position = stack.pop()
            if position == start:
                continue
            if position < start or isinstance(self.operations[position], Data):
                raise ValueError(f"value {end} depends on {position}, before {start}")
            for read in self.operations[position].reads:
                if read not in needed:
                    needed.add(read)
                    stack.append(read)
        order = sorted(needed | {start})
        if len(order) == len(self.operations):
            return self
        new = {old: place for place, old in enumerate(order)}
        operations = (
            Data(),
            *(
                replace(op, reads=tuple(new[r] for r in op.reads))
                for op in (self.operations[old] for old in order[1:])
            ),
        )
        return replace(
            self,
            operations=operations,
            signals=tuple(self.signals[old] for old in order),
            sources=tuple(self.sources[old] for old in order),
        )

    def all_operations(self) -> tuple[Operation, ...]:
        """Return the operations of the program and of the bodies of its repetitions."""
        return tuple(operation for operation, _ in self.with_sources())

    def with_sources(self) -> Iterator[tuple[Operation, Source]]:
        """Yield the operations, those of the bodies of repetitions too, with their layers."""
        for operation, source in zip(self.operations, self.sources, strict=True):
            yield operation, source
            if isinstance(operation, Repeat):
                yield from operation.body.with_sources()
