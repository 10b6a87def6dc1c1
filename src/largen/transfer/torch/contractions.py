"""Outputs that are sums of products of two signals over the width, such as those of two towers.

They are read-outs without a weight: what training changes in both signals adds up coherently, as in
the product of features with an embedding that is the read-out as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING

import torch

from largen.transfer.torch.logits import BATCHED, users
from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.trial import run_again, same
from largen.transfer.torch.walks import LINEAR, MULTIPLIES, End, constant_factor, end_at

if TYPE_CHECKING:
    from largen.transfer.torch.reading import Reading

TRIED = 1.5  # factor by which weights are multiplied
SAME = 1e-3  # relative distance below which lengths are equal


def read_by_contraction(
    base: Record,
    wide: Record,
    widening: float,  # the ratio of the two models' widths
) -> tuple[Fraction, frozenset[int]]:
    """Return the power of the width of an output that is such a sum, and the tensors in it.

    The power is that of coherent signals. There are no tensors if any part of the output is
    something else.
    """
    nothing = Fraction(0), frozenset[int]()
    last = _fixed_output(base, wide)
    if widening == 1.0 or last is None:
        return nothing
    stack, found, powers = [(last, 0.0)], set[int](), set[Fraction]()
    while stack:
        i, constants = stack.pop()
        node, large = base.nodes[i], wide.nodes[i]
        data = base.signals(node)
        was, now = constant_factor(base, node), constant_factor(wide, large)
        found.add(i)
        if len(data) == len(node.inputs) and _terms(base, node) != _terms(wide, large):
            powers.add(_power(base, wide, i, constants, widening))
        elif was * now and (node.op in LINEAR or (node.op in MULTIPLIES and len(data) == 1)):
            stack += [(j, constants + log(now / was)) for j in data if j not in found]
        else:
            return nothing
    return (powers.pop(), frozenset(found)) if len(powers) == 1 else nothing


@dataclass(frozen=True)
class Contraction:
    """A sum over the width of products of two signals that is one part of the output of several."""

    node: int
    power: Fraction  # of the width, for coherent signals
    # Weights to which each of the two signals is proportional, and those that read these signals
    # elsewhere.
    weights: tuple[str, ...]
    readers: tuple[str, ...]


def contracted_summands(reading: Reading) -> list[Contraction]:
    """Return the parts of an output that are such sums, beside others that are not.

    A factor of the weights, and the inverse of it at the readers, multiplies nothing else; this is
    verified by forward passes.
    """
    base, wide = reading.base.record, reading.wide.record
    last = _fixed_output(base, wide) if reading.sizes.widening != 1.0 else None
    stack, seen = ([] if last is None else [last]), set[int]()
    sums, others = [], False
    while stack:
        i = stack.pop()
        seen.add(i)
        node, large = base.nodes[i], wide.nodes[i]
        data = base.signals(node)
        was, now = constant_factor(base, node), constant_factor(wide, large)
        if data and len(data) == len(node.inputs) and _terms(base, node) != _terms(wide, large):
            sums.append(i)
        elif was == now and (node.op in LINEAR or (node.op in MULTIPLIES and len(data) == 1)):
            stack += [j for j in data if j not in seen]
        else:
            others = True
    found = [_contraction(reading, i) for i in sums] if others else []
    return [each for each in found if each is not None and _multiplies_alone(reading, each, sums)]


def _contraction(reading: Reading, i: int) -> Contraction | None:
    """Return the sum over the width at a node; None if it is not proportional to weights."""
    record, ends, stack = reading.base.record, dict[int, End](), [i]
    inside = {i}
    while stack:
        node = record.nodes[stack.pop()]
        end = end_at(record, node)
        if end.weights and end.kind in ("table", "product"):
            ends[node.index] = end
        elif node.is_data and (node.op in LINEAR | MULTIPLIES | BATCHED or node.op == "pow"):
            stack += [j for j in record.signals(node) if j not in inside]
            inside.update(record.signals(node))
        else:
            return None
    names = dict.fromkeys(n for end in ends.values() for n in (*end.weights, *end.biases))
    readers = _readers(record, ends, inside)
    if readers is None:
        return None
    power = _power(record, reading.wide.record, i, 0.0, reading.sizes.widening)
    return Contraction(i, power, tuple(names), tuple(dict.fromkeys(readers)))


def _readers(record: Record, ends: Iterable[int], inside: Collection[int]) -> list[str] | None:
    """Return the weights that multiply some signals; None if anything else is done with them."""
    consumers, stack, found = users(record), list(ends), list[str]()
    while stack:
        for user in consumers.get(stack.pop(), ()):
            node = record.nodes[user]
            end = end_at(record, node)
            if end.kind == "product" and end.weights:
                found += end.weights
            elif node.op in LINEAR and len(set(record.signals(node))) == 1:
                stack.append(user)
            elif user not in inside:
                return None
    return found


def _multiplies_alone(reading: Reading, own: Contraction, sums: Sequence[int]) -> bool:
    """Whether the factor of a contraction's weights and readers is one of contractions alone."""
    factors = dict.fromkeys(own.weights, TRIED) | dict.fromkeys(own.readers, 1 / TRIED)
    before = run_again(reading.base, sums, {})
    again = run_again(reading.base, sums, factors)
    whole = same(again.results[own.node], before.results[own.node], TRIED**2)
    replaced = run_again(reading.base, sums, factors, before.results)
    return whole and same(replaced.output, before.output)


def _fixed_output(base: Record, wide: Record) -> int | None:
    """Return the output if it has one shape at both widths; None for features."""
    if len(base.nodes) != len(wide.nodes) or base.output is None:
        return None
    same = base.nodes[base.output].shape == wide.nodes[base.output].shape
    return base.output if same else None


def _power(base: Record, wide: Record, i: int, constants: float, widening: float) -> Fraction:
    """Return the power of the width of a sum; ``constants``: the log ratio of those behind it."""
    units = sum(_are_unit_vectors(base.nodes[j], wide.nodes[j]) for j in _signals(base, i))
    more = _terms(wide, wide.nodes[i]) / _terms(base, base.nodes[i])
    power = (constants + log(more)) / log(widening) - units / 2
    return Fraction(round(4 * power), 4)


def _terms(record: Record, node: Node) -> float:
    """Return the number of terms that are added up in each entry of a tensor."""
    if node.op == "sum":
        return record.nodes[node.inputs[0]].value.numel() / node.value.numel()
    return record.nodes[node.inputs[-1]].shape[-2] if node.op in BATCHED else 1.0


def _signals(record: Record, place: int) -> tuple[int, ...]:
    """Return the two sides of a product of matrices, or of the products that are added up."""
    node = record.nodes[place]
    inner = record.nodes[node.inputs[0]]
    return inner.inputs if node.op == "sum" and inner.op == "mul" else node.inputs


def _are_unit_vectors(small: Node, large: Node) -> bool:
    """Whether the vectors along the axis that grows have the same length in both models."""
    pairs = enumerate(zip(small.shape, large.shape, strict=True))
    axis = next((i for i, (a, b) in pairs if a != b), None)
    if axis is None:
        return False
    lengths = torch.cat([n.value.double().norm(dim=axis).flatten() for n in (small, large)])
    return bool(lengths.max() - lengths.min() < SAME * lengths.max())
