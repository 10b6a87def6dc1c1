"""Outputs that are sums of products of two signals over the width, such as those of two towers.

They are read-outs without a weight: what training changes in both signals adds up coherently, as in
the product of features with an embedding that is the read-out as well.
"""

from __future__ import annotations

from fractions import Fraction
from math import log

import torch

from largen.transfer.torch.logits import BATCHED
from largen.transfer.torch.recording import Node, Record
from largen.transfer.torch.walks import LINEAR, MULTIPLIES, constant_factor

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
