"""Powers of the width in the user's own forward pass.

Gemma multiplies its embeddings by √d, T5 divides its features by √d before a tied read-out. The
base and the wider model perform the same operations, whose constant factors are compared one by
one. Factors of attention logits are treated in :mod:`largen.transfer.torch.attention`; factors
inside a norm do not change the size of its result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from math import log, log2

from largen.errors import InvalidInput
from largen.transfer.torch.logits import CAPS, SOFTMAXES, Logits, users
from largen.transfer.torch.reading import Reading, all_of
from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.walks import LINEAR, MULTIPLIES, VIEWS, End, constant_factor, walk

WRITES = frozenset({"index_put", "_index_put_impl", "masked_scatter"})
FLAT = 0.25  # a power of the width smaller than this counts as 0


@dataclass(frozen=True)
class OwnFactor:
    """A factor n^power in the user's forward pass."""

    # The tensor that it multiplies. "module": an embedding, or what a module makes by nonlinear
    # operations (a gated convolution, say); "read-out": the features before the read-out;
    # "product": a product with weights.
    kind: str
    # The weights of the embedding or of the product; for "read-out" those of the read-out.
    weights: tuple[str, ...]
    module: str  # for "module", the module whose output it multiplies
    power: Fraction
    # Parameters that the module writes to some rows of its output, which the factor does not
    # multiply.
    written: tuple[str, ...] = ()


def own_factors(reading: Reading, known: Collection[int] = ()) -> list[OwnFactor]:
    """Return the powers of the width in the user's forward pass, except for attention logits.

    ``known``: tensors whose powers are known.
    """
    base, wide = reading.base.record, reading.wide.record
    found = []
    for small, large in _paired_numbers(reading):
        was, now = constant_factor(base, small), constant_factor(wide, large)
        if was == 0 or now == 0 or abs(now / was - 1) < 1e-6 or small.index in known:
            continue
        power, flat = _power(reading, small, large, now / was)
        if not flat and not _of_shared_logits(base, small):
            found.append(_place(reading, small, power))
    return found


def _of_shared_logits(record: Record, node: Node) -> bool:
    """Whether a number multiplies a softmax's input that weights make which are used elsewhere.

    An example is a memory that is read by softmax(h·Mᵀ/√d)·M: a factor of M for the logits would be
    one of what is read as well, so that the logits are left as they are, and measured.
    """
    found = walk(record, node.index)
    names = set(all_of(found))
    places = {*found.ends, *found.seen}
    elsewhere = any(
        other.is_data and other.index not in places and names.intersection(record.parameters(i))
        for other in record.nodes
        for i in record.weights(other)
    )
    return elsewhere and _into_softmax(record, node.index)


def _into_softmax(record: Record, place: int) -> bool:
    """Whether every use of a tensor leads to a softmax, by linear operations."""
    consumers, stack, reached = users(record), [place], False
    while stack:
        for i in consumers.get(stack.pop(), ()):
            node = record.nodes[i]
            if node.op in SOFTMAXES:
                reached = True
            elif node.op in LINEAR | MULTIPLIES | CAPS:
                stack.append(i)
            else:
                return False
    return reached


def _paired_numbers(reading: Reading) -> list[tuple[Node, Node]]:
    """Return nodes of the base and the wider model that multiply by a constant, in pairs."""
    small = [a for a, _ in reading.logits] + [own.base for own in reading.scores]
    large = [b for _, b in reading.logits] + [own.wide for own in reading.scores]
    numbers = _numbers(reading.base.record, small), _numbers(reading.wide.record, large)
    keys = [[(node.op, node.module) for node in own] for own in numbers]
    if keys[0] != keys[1]:
        at = next((a for a, b in zip(*keys, strict=False) if a != b), ("", ""))[1]
        raise InvalidInput(
            f"make_model: the forward pass does different things at {reading.sizes.base} and "
            f"{reading.sizes.wide}, first in {at or 'the model'}, so that its factors of width "
            "cannot be compared; take a base and a delta of one kind."
        )
    return list(zip(*numbers, strict=True))


def _numbers(record: Record, logits: list[Logits]) -> list[Node]:
    """Return nodes that multiply by a constant and depend on weights, except attention logits."""
    logits_own = {i for own in logits for i in own.seen}
    for own in logits:
        for product in own.products:
            for side in (product.queries, product.keys):
                logits_own.update(walk(record, side).seen)
    used = 0  # a bit set of what the model's outputs are computed from
    for i in record.calls[-1].outputs:
        used |= record.ancestors[i] | 1 << i
    return [
        node
        for node in record.nodes
        if node.op in MULTIPLIES
        and node.of_weights
        and used >> node.index & 1
        and node.value.is_floating_point()
        and node.index not in logits_own
        and ((len(node.inputs) == 1 and node.numbers) or _constant(record, node))
    ]


def _constant(record: Record, node: Node) -> bool:
    return any(record.nodes[i].number is not None for i in node.inputs)


def _power(reading: Reading, small: Node, large: Node, ratio: float) -> tuple[Fraction, bool]:
    """Return the factor's power of the width, and whether its result is of constant size."""
    grown = reading.sizes.widening
    if small.shape and large.shape and small.shape[-1] != large.shape[-1]:
        grown = large.shape[-1] / small.shape[-1]
    norms = [float(n.value.double().square().mean().sqrt()) for n in (small, large)]
    flat = min(norms) > 0 and abs(log2(norms[1] / norms[0])) < FLAT * log2(grown)
    return Fraction(round(4 * log(ratio) / log(grown)), 4), flat


def _place(reading: Reading, node: Node, power: Fraction) -> OwnFactor:
    record = reading.base.record
    if end := _read_out_of(reading, node):
        return OwnFactor("read-out", end.weights, "", power)
    if node.is_weight:
        names = record.parameters(node.index)
        module = module_at(record, node.inputs[0])
        if module is not None:
            return OwnFactor("module", names, module, power)
    found = walk(record, node.index)
    kinds = {end.kind for end in found.ends.values()}
    if found.takes_a_factor and kinds == {"table"} and len(found.ends) == 1:
        module, written = _looks_up(record, node, *found.ends)
        if module is not None:
            return OwnFactor("module", tuple(all_of(found)), module, power, written)
    if found.takes_a_factor and kinds <= {"product", "gain"}:
        return OwnFactor("product", tuple(all_of(found)), "", power)
    module, names = _makes(record, node)
    if module is not None and names:
        return OwnFactor("module", names, module, power)
    raise InvalidInput(
        f"make_model: in {node.module or 'the model'}, the forward pass multiplies by a number "
        f"that grows as width^({power}), and what it multiplies ({node.op} of the shape "
        f"{node.shape}) is neither made by a module alone, nor the read-out's input. "
        "Take the number out, or make it independent of the width."
    )


def _read_out_of(reading: Reading, node: Node) -> End | None:
    """Return the read-out whose features are a node's, up to views and constant factors."""
    record = reading.base.record
    for end in reading.read_outs:
        data = record.signals(record.nodes[end.node])
        if data and node.index in behind(record, data[0]):
            return end
    return None


def _looks_up(record: Record, node: Node, rows: int) -> tuple[str | None, tuple[str, ...]]:
    """Return the module whose output rows of a table are, and what it writes to some of them."""
    module = module_at(record, rows) or module_at(record, node.index)
    return _overwritten(record, node) if module is None else (module, ())


def _overwritten(record: Record, node: Node) -> tuple[str | None, tuple[str, ...]]:
    """Return the module whose output is a tensor with some rows overwritten, and by what."""
    consumers, place, written = users(record), node.index, []
    while True:
        module = module_at(record, place)
        onward = consumers.get(place, [])
        if module is not None or len(onward) != 1:
            return (module, tuple(written)) if written else (None, ())
        after = record.nodes[onward[0]]
        if after.op not in WRITES or after.inputs[0] != place:
            return None, ()
        weights = [i for i in after.inputs[1:] if record.nodes[i].is_weight]
        written += [name for i in weights for name in record.parameters(i)]
        place = after.index


def _makes(record: Record, node: Node) -> tuple[str | None, tuple[str, ...]]:
    """Return the module whose output a node alone multiplies, up to views, and its weights."""
    place = next(iter(record.signals(node)), None)
    consumers = users(record)
    while place is not None and len(consumers.get(place, ())) == 1:
        module = module_at(record, place, views=False)
        if module is not None:
            names = record.parameters(place)
            return module, tuple(name for name in names if name.startswith(f"{module}."))
        above = record.nodes[place]
        place = above.inputs[0] if above.op in VIEWS and above.inputs else None
    return None, ()


def behind(record: Record, place: int) -> list[int]:
    """Return a node's index and those upstream of it, through views and constant factors."""
    found = [place]
    while True:
        node = record.nodes[found[-1]]
        data = record.signals(node)
        if len(data) != 1 or record.weights(node) or node.op not in VIEWS | MULTIPLIES:
            return found
        found.append(data[0])


def module_at(record: Record, place: int, views: bool = True) -> str | None:
    """Return the innermost module whose output is the tensor, up to views if wanted."""
    places = {place}
    if views:
        for node in record.nodes[place + 1 :]:
            if node.op in VIEWS and node.inputs and node.inputs[0] in places:
                places.add(node.index)
    for call in record.calls:
        if call.path and call.outputs[:1] and call.outputs[0] in places:
            return call.path
    return None
