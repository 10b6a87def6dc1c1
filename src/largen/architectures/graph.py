"""Networks whose values are read where they are needed: graphs of named nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

from largen.architectures.containers import Container, Sequence, parts_of
from largen.architectures.traits import Layer
from largen.errors import InvalidInput
from largen.programs import operations
from largen.programs.builder import Builder
from largen.programs.signals import Signal, difference
from largen.scalars import real
from largen.text import shown

ENTRY = "x"
Join = Literal["sum", "product", "concatenate"]
JOINS: tuple[str, ...] = get_args(Join)


class Node(NamedTuple):
    """A node of a graph."""

    name: str
    # A layer; "sum", "product" or "concatenate"; or the name of an earlier node, whose layer it
    # applies with the same weights.
    does: Layer | str
    reads: tuple[str, ...]  # the names of the nodes that it reads
    factors: tuple[float, ...]  # the factor of each of them; 1 except in sums


@dataclass(frozen=True, repr=False)
class Graph(Container):
    """A network of named nodes, each of which reads the nodes before it.

    The last node is the output. With it skip connections over several scales, several streams, and
    weights that are used more than once, as in recurrent and siamese networks, are written down as
    they are drawn. A graph is a layer like any other, and may be a part of others.

    Parameters
    ----------
    nodes
        A dictionary from names to tuples: what a node does, and the names of the nodes that it
        reads. ``"x"`` is what enters the graph. A node does one of the following:

        - a layer, of one node: ``"h": (lg.Dense(), "x")``;
        - the layer of an earlier node once more, with the same weights: ``"h2": ("h", "a")``;
        - ``"sum"``, ``"product"`` or ``"concatenate"`` (along channels) of two or more nodes:
          ``"s": ("sum", "h", "h2")``. Terms of a sum may have factors:
          ``"d": ("sum", "h", (-1.0, "h2"))``; a sum of one node with a factor is its multiple.

    Raises
    ------
    InvalidInput
        If a node reads one that is not before it, is read by no node and is not the last, does
        none of the above, or reads the wrong number of nodes. When a network is used, if nodes that
        are joined have different shapes, or a weight is used on values of different sizes.

    Examples
    --------
    A recurrent network of two steps, whose weight ``W`` is used in each of them:

    >>> import largen as lg, numpy as np
    >>> net = lg.layers.Graph({
    ...     "u": (lg.Dense(), "x"),
    ...     "h1": (lg.Activation("tanh"), "u"),
    ...     "W": (lg.Dense(bias_std=0.1), "h1"),
    ...     "s": ("sum", "W", "u"),
    ...     "h2": (lg.Activation("tanh"), "s"),
    ...     "W2": ("W", "h2"),
    ...     "s2": ("sum", "W2", "u"),
    ...     "h3": (lg.Activation("tanh"), "s2"),
    ...     "f": (lg.Dense(), "h3"),
    ... })
    >>> lg.nngp_kernel(net, np.eye(2)).round(4)
    array([[0.3671, 0.0057],
           [0.0057, 0.3671]])
    """

    nodes: tuple[Node, ...]

    def __init__(self, nodes: Any):
        given = nodes.items() if isinstance(nodes, Mapping) else None
        if isinstance(nodes, tuple) and nodes and all(isinstance(n, Node) for n in nodes):
            object.__setattr__(self, "nodes", nodes)
            return
        if not given:
            raise InvalidInput(
                "nodes: wanted a dictionary from names to tuples such as (lg.Dense(), 'x'), got "
                f"{shown(nodes)}."
            )
        nodes_by_name: dict[str, Node] = {}
        for name, node in given:
            nodes_by_name[name] = _node(name, node, nodes_by_name)
        read = {each for node in nodes_by_name.values() for each in node.reads}
        idle = [name for name in list(nodes_by_name)[:-1] if name not in read]
        if idle:
            raise InvalidInput(f"nodes: no node reads {idle[0]!r}, and it is not the last.")
        object.__setattr__(self, "nodes", tuple(nodes_by_name.values()))

    @property
    def parts(self) -> tuple[Layer, ...]:
        """The layers of the nodes, without those that are used again."""
        return tuple(node.does for node in self.nodes if isinstance(node.does, Layer))

    def with_parts(self, parts: Iterable[Layer]) -> Graph:
        """Return the same graph with other layers, equal in number."""
        new = iter(parts)
        return type(self)(
            tuple(
                node._replace(does=next(new)) if isinstance(node.does, Layer) else node
                for node in self.nodes
            )
        )

    @property
    def keeps_shape(self) -> bool:
        """Whether all layers keep the shape, and there are no concatenations."""
        joined = any(node.does == "concatenate" for node in self.nodes)
        return not joined and all(part.keeps_shape for part in self.parts)

    def signal_behind(self, signal: Signal) -> Signal:
        """Return the signal behind the last node; nodes that are joined must agree in shape."""
        return self._signals(signal)[self.nodes[-1].name]

    def residual_depth(self) -> float:
        """Return the largest number of residual branches in sequence."""
        depths: dict[str, float] = {ENTRY: 0}
        for node in self.nodes:
            layer, before = self._layer(node), max(depths[read] for read in node.reads)
            depths[node.name] = before + (0 if layer is None else layer.residual_depth())
        return depths[self.nodes[-1].name]

    def lower(self, program: Builder, value: int) -> int:
        """Append the operations of all nodes; a layer that is used again has the same weights."""
        layers = (node for node in self.nodes if isinstance(node.does, Layer))
        places = {node.name: place for place, node in enumerate(layers)}
        values, around = {ENTRY: value}, program.node
        for node in self.nodes:
            program.node = f"{around}.{node.name}" if around else node.name
            reads = tuple(values[read] for read in node.reads)
            if (origin := self._origin(node)) is not None:
                layer = origin.does
                assert isinstance(layer, Layer)
                values[node.name] = program.part(places[origin.name], layer, reads[0])
            else:
                values[node.name] = _join(program, node, reads)
        program.node = around
        return values[self.nodes[-1].name]

    def _origin(self, node: Node) -> Node | None:
        """Return the node whose layer a node applies, None for sums, products, concatenations."""
        by_name = {each.name: each for each in self.nodes}
        while isinstance(node.does, str):
            if node.does in JOINS:
                return None
            node = by_name[node.does]
        return node

    def _layer(self, node: Node) -> Layer | None:
        origin = self._origin(node)
        return None if origin is None else origin.does  # pyright: ignore

    def _signals(self, signal: Signal) -> dict[str, Signal]:
        signal_at = {ENTRY: signal}
        for node in self.nodes:
            signals, layer = [signal_at[read] for read in node.reads], self._layer(node)
            if layer is not None:
                signal_at[node.name] = layer.signal_behind(signals[0])
                continue
            for other in signals[1:]:
                one = signals[0]
                if node.does == "concatenate":
                    one, other = replace(one, copies=1), replace(other, copies=1)
                if one != other:
                    raise InvalidInput(
                        f"net: the node {node.name!r} joins values of different shapes; "
                        f"{difference(one, other)}."
                    )
            behind = replace(signals[0], sample=None)
            if node.does == "concatenate":
                behind = replace(behind, copies=sum(each.copies for each in signals))
            signal_at[node.name] = behind
        return signal_at

    def __repr__(self) -> str:
        nodes = ", ".join(f"{node.name!r}: {_shown(node)}" for node in self.nodes)
        return f"Graph({{{nodes}}})"


def _shown(node: Node) -> str:
    reads = [
        repr(read) if factor == 1 else f"({factor}, {read!r})"
        for read, factor in zip(node.reads, node.factors, strict=True)
    ]
    return f"({', '.join([repr(node.does), *reads])})"


def _join(program: Builder, node: Node, reads: tuple[int, ...]) -> int:
    """Append a sum, a product or a concatenation."""
    behind = replace(program.signal(reads[0]), sample=None)
    if node.does == "sum":
        return program.add(operations.Sum(reads, node.factors), behind)
    if node.does == "product":
        return program.add(operations.Product(reads), behind)
    copies = [program.signal(read).copies for read in reads]
    shares = tuple(float(each / Fraction(sum(copies))) for each in copies)
    return program.add(operations.Concatenate(reads, shares), replace(behind, copies=sum(copies)))


def _check_read(name: str, read: Any, before: Mapping[str, Node]) -> None:
    """Check that a node reads the entry or a node before it."""
    if not isinstance(read, str) or (read != ENTRY and read not in before):
        raise InvalidInput(
            f"nodes: {name!r} reads {shown(read)}, which is not 'x' or a node before it: "
            f"{', '.join(before) or 'there is none'}."
        )


def _node(name: Any, given: Any, before: Mapping[str, Node]) -> Node:
    """Return a node as the graph keeps it, after checking it."""
    if not isinstance(name, str) or name in (ENTRY, *JOINS):
        raise InvalidInput(
            f"nodes: wanted names other than 'x', 'sum', 'product' and 'concatenate', got "
            f"{shown(name)}."
        )
    if not isinstance(given, tuple) or len(given) < 2:
        raise InvalidInput(
            f"nodes: the node {name!r} is to be a tuple of what it does and what it reads, such as "
            f"(lg.Dense(), 'x'), got {shown(given)}."
        )
    does, *places = given
    joins = isinstance(does, str) and does in JOINS
    reads, factors = [], []
    for place in places:
        factor, read = 1.0, place
        if does == "sum" and isinstance(place, tuple) and len(place) == 2:
            factor, read = real(f"factor in the node {name!r}", place[0]), place[1]
        _check_read(name, read, before)
        reads.append(read)
        factors.append(factor)
    if not joins:
        _check_applies(name, does, reads, before)
    elif len(reads) < 2 and factors in ([], [1.0]):
        raise InvalidInput(f"nodes: {name!r} is a {does} of one node; wanted two or more.")
    return Node(name, does, tuple(reads), tuple(factors))


def _check_applies(name: str, does: Any, reads: list[str], before: Mapping[str, Node]) -> None:
    """Check that a node applies a layer, or that of a node before it, to one value."""
    if isinstance(does, str) and does in before:
        again = before[does].does
        if isinstance(again, str) and again in JOINS:
            raise InvalidInput(f"nodes: {name!r} uses {does!r} again, which has no layer.")
        if isinstance(again, Layer) and _repeats(again):
            raise InvalidInput(
                f"nodes: {name!r} uses {does!r} again, which repeats a layer: copies of a "
                "repetition have weights of their own. Write them out as nodes."
            )
    elif not isinstance(does, Layer):
        raise InvalidInput(
            f"nodes: {name!r} is to apply a layer, a node before it, 'sum', 'product' or "
            f"'concatenate', got {shown(does)}."
        )
    if len(reads) != 1:
        raise InvalidInput(f"nodes: {name!r} applies a layer to {len(reads)} nodes; wanted one.")


def _repeats(layer: Layer) -> bool:
    repeated = isinstance(layer, Sequence) and layer.times > 1
    return repeated or any(map(_repeats, parts_of(layer)))
