"""Placement of the attention logits' factor: on the weights of the queries, or of the keys.

Logits q·k are bilinear: a factor of the queries is a factor of the logits. The weights that
multiply one side of the product and nothing else are found behind normalisations and rotations,
and verified by a forward pass in which they are multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any

import torch
from torch import nn

from largen.errors import InvalidInput
from largen.transfer.shapes import Shapes
from largen.transfer.torch.examples import NotCallable, record_call
from largen.transfer.torch.logits import Logits, Product, all_logits, side_weights
from largen.transfer.torch.reading import LOGITS, Reading, all_of
from largen.transfer.torch.recording import Record
from largen.transfer.torch.survey import on_meta
from largen.transfer.torch.walks import VIEWS, walk


class NoPlace(InvalidInput):
    """No weight and no module multiplies logits alone."""


Pair = tuple[Logits, Logits]  # the logits of one attention in the base and in the wider model


@dataclass(frozen=True)
class Attention:
    """The weights or the module that take the factor of one attention's logits, by base names."""

    weights: tuple[str, ...] = ()  # weights into which the factor can be folded
    # module, where: a module, and the part of its output that multiplies the logits and nothing
    # else; for nn.MultiheadAttention, its "key".
    module: str | None = None
    where: str = "output"


def heads_ratio(reading: Reading, pair: Pair, sizes: Shapes) -> float:
    """Return the ratio of an attention's head dimension in the plan's target to the base's."""
    small, wide = (own.products[0].head for own in pair)
    keys = [k for k in sizes.base if sizes.base[k] != sizes.wide[k]]
    ratios = {sizes.target[k] / sizes.base[k] for k in keys}
    wider = {sizes.wide[k] / sizes.base[k] for k in keys}
    if len(ratios) == len(wider) == 1:
        (ratio,), (doubled,) = ratios, wider
        more = (ratio - 1) / (doubled - 1)
        if wide < small:  # heads share a fixed number of features, and their number is affine
            return 1 / (1 + (small / wide - 1) * more)
        # Head dimensions are affine in the width: a part of them may be fixed.
        return 1 + (wide / small - 1) * more
    at = {**sizes.target, **{k: v for k, v in sizes.base.items() if k not in keys}}
    try:
        model = on_meta(reading.make_model, at).eval()
        record, _ = record_call(model, reading.example, at)
        if pair in reading.logits:
            own = all_logits(record)[reading.logits.index(pair)]
            return own.products[0].head / small
        return record.nodes[pair[0].products[0].keys].shape[-2] / small
    except (NotCallable, IndexError) as error:
        raise InvalidInput(
            f"attention: how much the heads' dimension grows to {at} was not found ({error}); "
            "pass hints=Hints(attention={'path.of.queries': ratio of the heads' dimensions})."
        ) from None


def heads_count_ratio(reading: Reading, pair: Pair, at: Shapes) -> float:
    """Return the ratio of the numbers of heads in the target of these shapes and in the base."""
    small, wide = (own.products[0] for own in pair)
    records = reading.base.record, reading.wide.record
    sizes = [
        r.nodes[p.queries].value.numel() / p.head
        for r, p in zip(records, (small, wide), strict=True)
    ]
    if sizes[0] == sizes[1]:
        return 1.0
    keys = [k for k in at.base if at.base[k] != at.wide[k]]
    doubled = max(at.wide[k] / at.base[k] for k in keys)
    grown = max(at.target[k] / at.base[k] for k in keys)
    return 1 + (sizes[1] / sizes[0] - 1) * (grown - 1) / (doubled - 1)


def built_power(reading: Reading, pair: Pair) -> Fraction:
    """Return the power of the head dimension that the model's own logits have beyond q·k."""
    base, wide = (own.products[0] for own in pair)
    records = reading.base.record, reading.wide.record
    factors = [abs(own.factor) for own in (base, wide)]
    if not all(factors):
        return Fraction(-1, 2)
    if base.head == wide.head:
        whole = log(factors[0]) / log(base.head) if base.head > 1 else 0.0
        return Fraction(round(4 * whole), 4)
    grown = log(wide.head / base.head)
    sizes = [_normalised_size(r, own) for own, r in zip((base, wide), records, strict=True)]
    # Normalised entries are of size 1 or, in unit vectors, head^(−½).
    own = Fraction(round(2 * log(sizes[1] / sizes[0]) / grown), 2) if all(sizes) else Fraction(0)
    return Fraction(round(4 * log(factors[1] / factors[0]) / grown), 4) + own


def _normalised_size(record: Record, own: Product) -> float:
    """Return the size of the entries of normalised queries and keys."""
    size = 1.0
    for side in (own.queries, own.keys):
        ends = walk(record, side).ends.values()
        made = record.nodes[side].is_data  # learned queries have no size that the model sets
        if made and not all(end.kind == "product" for end in ends):
            size *= float(record.nodes[side].value.double().square().mean().sqrt())
    return size


def place_of(reading: Reading, own: Logits, parts: float) -> Attention:
    """Return the weights or the module that take the factor of an attention's logits."""
    record, model = reading.base.record, reading.base.model
    for weights in _sides(record, own):
        if reading.multiplies_logits(own, dict.fromkeys(weights, LOGITS)):
            return Attention(tuple(weights))
    product = own.products[0]
    if len(own.products) == 1:
        outputs = list(_outputs(record, product))
        made = [path for path in outputs if not isinstance(model.get_submodule(path), nn.Identity)]
        if made:
            return Attention(module=made[0])
        fused = _fused_queries(reading, own, product, parts)
        if fused is not None:
            return fused
        if outputs:
            return Attention(module=outputs[0])
    where = record.nodes[own.node].module
    holder = model.get_submodule(where)
    if isinstance(holder, nn.MultiheadAttention) and not _appends_a_key(holder):
        return Attention(module=where, where="key")
    kind = type(holder).__name__
    raise NoPlace(
        f"attention: of {where or 'the model'} ({kind}), no part's output multiplies the logits of "
        "one softmax and nothing else; make the queries in a layer of their own, or pass "
        "Hints(attention={}) to leave all logits as they are."
    )


def _sides(record: Record, own: Logits) -> Iterator[list[str]]:
    """Yield weights that multiply one side of every product, the queries' side first."""
    first = own.products[0]
    for side in (first.queries, first.keys):
        found, weights = side_weights(record, side)
        if not found.takes_a_factor:
            continue
        names = all_of(found)
        for other in own.products[1:]:
            for place in (other.queries, other.keys):
                more, theirs = side_weights(record, place)
                if theirs <= weights:
                    names += [name for name in all_of(more) if name not in names]
        yield names


def _outputs(record: Record, product: Product) -> Iterator[str]:
    """Yield modules whose output, after linear operations only, is one side of a product."""
    for side, other in ((product.queries, product.keys), (product.keys, product.queries)):
        found, theirs = walk(record, side), walk(record, other)
        if len(found.ends) != 1:
            continue
        chain = set(found.ends)
        for place in sorted(found.seen):
            node = record.nodes[place]
            if node.op in VIEWS and set(node.inputs) & chain:
                chain.add(place)
        chain -= set(theirs.ends) | set(theirs.seen)
        for call in record.calls:
            if call.path and call.outputs[:1] and call.outputs[0] in chain:
                yield call.path


def _fused_queries(
    reading: Reading, own: Logits, product: Product, parts: float
) -> Attention | None:
    """Return the channels of the queries in a fused layer of queries, keys and values."""
    record = reading.base.record
    ends = list(walk(record, product.queries).ends.values())
    if len(ends) != 1 or not ends[0].weights:
        return None
    weight, biases = ends[0].weights[0], ends[0].biases
    module = weight.rpartition(".")[0]
    holder: Any = reading.base.model.get_submodule(module)
    if isinstance(holder, nn.MultiheadAttention):
        if _appends_a_key(holder):
            raise InvalidInput(
                f"attention: {module} appends a key of its own, which cannot be scaled with the "
                "others; pass Hints(attention={}) to leave all logits as they are."
            )
        return Attention(module=module, where="key")
    tensor = dict(reading.base.model.named_parameters())[weight]
    axes = reading.contracted_axes.get(weight, {1})
    out = next((axis for axis in range(tensor.ndim) if axis not in axes), 0)
    channels = tensor.shape[out]
    for count, share in _patterns(channels, product.head):
        mask = torch.ones(channels // count)
        mask[: round(share * len(mask))] = LOGITS
        mask = mask.repeat(count)
        shape = [channels if axis == out else 1 for axis in range(tensor.ndim)]
        tried: dict[str, Any] = {weight: mask.reshape(shape), **dict.fromkeys(biases, mask)}
        if reading.multiplies_logits(own, tried):
            groups = round(count * parts) if count > 1 else 1
            third = groups == 1 and share == Fraction(1, 3)
            where = "first third" if third else f"first {share} of each of {groups} parts"
            return Attention(module=module, where=where)
    return None


def _appends_a_key(module: nn.MultiheadAttention) -> bool:
    return module.bias_k is not None or module.add_zero_attn


def _patterns(channels: int, head: int) -> Iterator[tuple[int, Fraction]]:
    """Yield layouts of queries in a fused output: (equal parts, leading share of each part)."""
    if channels % 3 == 0:
        yield 1, Fraction(1, 3)
    if channels % (3 * head) == 0:
        yield channels // (3 * head), Fraction(1, 3)
    total = channels // head
    for keys in range(1, total // 2):
        queries = total - 2 * keys
        if queries > 0:
            yield 1, Fraction(queries, total)
            if queries % keys == 0:
                yield keys, Fraction(queries // keys, queries // keys + 2)
