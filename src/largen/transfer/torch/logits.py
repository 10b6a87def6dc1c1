"""Attention logits in a recorded forward pass, and the signals from which they are computed.

The input of a softmax is attention logits if it comes, through masks, biases and caps, from the
product of two signals instead of one with a weight. Fused attention is recognised by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.walks import (
    LINEAR,
    MULTIPLIES,
    REPEATS,
    Walk,
    constant_factor,
    walk,
)

FUSED = "_scaled_dot_product"
SOFTMAXES = frozenset({"_softmax", "_safe_softmax"})
BATCHED = frozenset({"bmm", "baddbmm", "mm"})
# Nonlinear operations that may lie between the product and the softmax.
CAPS = frozenset({"tanh", "clamp", "clamp_min", "clamp_max", "maximum", "minimum"})


@dataclass(frozen=True)
class Product:
    """One product q·k in a record."""

    # node, queries, keys: indices of the nodes of the product and of its two sides.
    node: int
    queries: int
    keys: int
    factor: float  # the product of all constants that multiply q·k before the softmax
    head: int  # the head dimension, over which q·k is summed
    learned: bool = False  # whether a weight multiplies the product, too


@dataclass(frozen=True)
class Logits:
    """The logits of one softmax: one product, or a sum of several."""

    node: int  # index of the node of the softmax, or of the fused kernel
    products: tuple[Product, ...]  # the products whose sum, up to biases, the logits are
    values: int | None  # index of the node of the values, which are averaged
    seen: tuple[int, ...] = field(default=(), repr=False)


def all_logits(record: Record) -> list[Logits]:
    """Return the logits of every attention, in the order of the forward pass."""
    found: list[Logits] = []
    consumers = users(record)
    last: tuple[int, ...] = ()
    for node in record.nodes:
        if node.op.startswith(FUSED):
            if node.inputs != last:  # the kernel's first result
                found.append(_fused_attention(record, node))
            last = node.inputs
        elif node.op in SOFTMAXES and node.is_data:
            seen: list[int] = []
            products = _products(record, node.inputs[0], 1.0, False, seen)
            if products:
                values = _values(record, node.index, consumers)
                found.append(Logits(node.index, tuple(products), values, tuple(seen)))
    return found


def users(record: Record) -> dict[int, list[int]]:
    """Return, for every node, the nodes that were computed from it."""
    found: dict[int, list[int]] = {}
    for node in record.nodes:
        for i in dict.fromkeys(node.inputs):
            found.setdefault(i, []).append(node.index)
    return found


def _fused_attention(record: Record, node: Node) -> Logits:
    q, k, v = node.inputs[:3]
    head = record.nodes[q].shape[-1]
    factor = head**-0.5 if node.scale is None else float(node.scale)
    product = _product(record, node.index, q, k, factor, head, False)
    return Logits(node.index, (product,), v)


def _product(
    record: Record, node: int, q: int, k: int, factor: float, head: int, learned: bool
) -> Product:
    for side in (q, k):
        factor *= walk(record, side).factor
    return Product(node, q, k, factor, head, learned)


def _products(
    record: Record, place: int, factor: float, learned: bool, seen: list[int]
) -> list[Product]:
    """Return the products of which a tensor is the sum; ``factor``, ``learned``: of it behind."""
    node = record.nodes[place]
    seen.append(place)
    if node.op in BATCHED:
        return _batched(record, node, factor, learned, seen)
    data = list(dict.fromkeys(record.signals(node)))
    if node.op in MULTIPLIES and len(data) == 1:
        factor *= constant_factor(record, node)
        learned = learned or bool(record.weights(node))
    elif node.op not in LINEAR and node.op not in CAPS:
        return []
    found = {p.node: p for i in data for p in _products(record, i, factor, learned, seen)}
    return list(found.values())


def _batched(
    record: Record, node: Node, factor: float, learned: bool, seen: list[int]
) -> list[Product]:
    """Return the product of two signals, and those in what a batched product adds to it."""
    *added, a, b = node.inputs
    if not all(record.nodes[i].is_data or _repeated(record, i) for i in (a, b)):
        return []
    if node.op == "baddbmm" and node.numbers:
        factor *= node.numbers[-1]  # alpha, behind beta
    own = _product(record, node.index, a, b, factor, record.nodes[a].shape[-1], learned)
    return [own, *(p for i in added for p in _products(record, i, 1.0, learned, seen))]


def _repeated(record: Record, place: int) -> bool:
    """Whether a tensor is of weights that are repeated over samples, such as learned queries."""
    node = record.nodes[place]
    return node.is_weight and any(i.op in REPEATS for i in _made_of(record, place))


def _made_of(record: Record, place: int) -> Iterator[Node]:
    """Yield a tensor's node and all upstream of it."""
    stack, visited = [place], set()
    while stack:
        place = stack.pop()
        if place not in visited:
            visited.add(place)
            yield record.nodes[place]
            stack.extend(record.nodes[place].inputs)


def _values(record: Record, softmax: int, consumers: dict[int, list[int]]) -> int | None:
    """Return the values: the other side of the product with the softmax's output."""
    stack, visited = [softmax], set()
    while stack:
        place = stack.pop(0)
        for user in consumers.get(place, ()):
            node = record.nodes[user]
            if node.op in BATCHED:
                others = [i for i in node.inputs[-2:] if i != place]
                if others:
                    return others[0]
            if user not in visited and (node.op in LINEAR or node.op in MULTIPLIES):
                visited.add(user)
                stack.append(user)
    return None


def side_weights(record: Record, place: int) -> tuple[Walk, frozenset[str]]:
    """Return the walk from a side of a product, and all weights to which it is proportional."""
    found = walk(record, place)
    return found, frozenset(w for end in found.ends.values() for w in end.weights)
