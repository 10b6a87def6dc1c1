"""Walks from a tensor of a recorded forward pass back to the weights to which it is proportional.

Views, sums, means, constant factors and gates are linear in the walk's signal, so that the walk
continues through them. At a product with a weight it ends: a factor of the weight (and of the
biases) is a factor of the tensor. Any other operation is a nonlinear end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from largen.transfer.torch.recording import Node, Record

# Operations that are linear in all of their floating-point arguments together.
LINEAR = frozenset({
    "view", "_unsafe_view", "reshape", "_reshape_alias", "t", "transpose", "permute", "expand",
    "slice", "select", "unsqueeze", "squeeze", "clone", "contiguous", "_to_copy", "to", "detach",
    "alias", "unbind", "split", "split_with_sizes", "chunk", "narrow", "index", "index_select",
    "gather", "take", "flip", "roll", "repeat", "repeat_interleave", "constant_pad_nd", "mean",
    "sum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "mkldnn_adaptive_avg_pool2d", "dropout",
    "native_dropout", "lift_fresh", "unfold", "as_strided", "diagonal", "movedim", "flatten",
    "masked_fill", "tril", "triu", "upsample_bilinear2d", "upsample_nearest2d",
    "upsample_bicubic2d", "cumsum", "pixel_shuffle", "pixel_unshuffle", "neg", "im2col",
    "add", "sub", "rsub", "cat", "stack", "where", "index_add", "index_put", "_index_put_impl",
    "scatter", "scatter_add", "copy", "masked_scatter", "sort", "swapaxes", "split_copy",
    "unbind_copy", "view_copy", "_pad_circular", "reflection_pad2d", "replication_pad2d",
})  # fmt: skip
VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "_reshape_alias", "t", "transpose", "permute", "expand",
    "unsqueeze", "squeeze", "clone", "contiguous", "_to_copy", "to", "detach", "alias",
    "lift_fresh", "dropout", "native_dropout", "flatten", "movedim", "swapaxes", "roll", "slice",
    "select", "constant_pad_nd", "index", "unbind", "split", "split_with_sizes", "narrow",
})  # fmt: skip
PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "mv", "addmv", "dot",
    "_grouped_mm", "convolution", "_convolution", "convolution_overrideable", "conv1d", "conv2d",
    "conv3d", "mkldnn_convolution", "_scaled_grouped_mm", "addcmul",
})  # fmt: skip
NORMS = frozenset({
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm", "rms_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
    "_batch_norm_with_update", "batch_norm", "layer_norm", "group_norm", "_batch_norm_no_update",
    "instance_norm",
})  # fmt: skip
# Nonlinear functions of one signal, entry by entry.
ACTIVATIONS = frozenset({
    "relu", "leaky_relu", "elu", "celu", "gelu", "silu", "mish", "softplus", "tanh", "hardtanh",
    "hardswish",
})  # fmt: skip
REPEATS = frozenset({"expand", "repeat", "repeat_interleave"})
GATES = frozenset({"_softmax", "_safe_softmax", "sigmoid", "hardsigmoid"})
MULTIPLIES = frozenset({"mul", "div", "multiply", "divide", "true_divide"})


@dataclass(frozen=True)
class End:
    """One end of a walk."""

    node: int  # index of the tensor's node
    kind: str  # "product" or "gain" (of a weight), "table" (a row of one), "input", or "other"
    # Parameters to which the tensor is proportional; a factor can be folded into any one.
    weights: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()  # parameters that the same operation adds


@dataclass
class Walk:
    """A walk back from one tensor."""

    ends: dict[int, End] = field(default_factory=dict)  # the ends of the walk, each once
    biases: set[str] = field(default_factory=set)  # parameters that are added along the walk
    factor: float = 1.0  # the product of the constant factors between the tensor and the first end
    seen: list[int] = field(default_factory=list)  # indices of the nodes along the walk

    @property
    def takes_a_factor(self) -> bool:
        """Whether a factor can be folded into weights at every end."""
        return bool(self.ends) and all(end.weights for end in self.ends.values())


def walk(record: Record, start: int) -> Walk:
    """Walk back from a tensor to the weights to which it is proportional."""
    found, visited = Walk(), set()
    if record.nodes[start].is_weight:
        return _to_parameter(record, start)
    stack = [(start, 1.0)]
    while stack:
        place, factor = stack.pop()
        if place in visited:
            continue
        visited.add(place)
        node = record.nodes[place]
        onward = _onward(record, node, found)
        if onward is None:
            if not found.ends:
                found.factor = factor
            found.ends[place] = end_at(record, node)
        else:
            found.seen.append(place)
            factor *= constant_factor(record, node)
            stack.extend((i, factor) for i in reversed(onward))
    return found


def _to_parameter(record: Record, start: int) -> Walk:
    """Walk back from a tensor that is made of weights alone, such as learned queries."""
    found, place = Walk(), start
    while True:
        node = record.nodes[place]
        number = node.op in MULTIPLIES and len(node.inputs) == 1
        if node.parameter is not None or not (node.op in VIEWS or node.op in REPEATS or number):
            break
        found.seen.append(place)
        found.factor *= constant_factor(record, node)
        place = node.inputs[0]
    found.ends[place] = End(place, "gain", _proportional(record, place))
    return found


def _onward(record: Record, node: Node, found: Walk) -> list[int] | None:
    """Return the nodes at which the walk continues; None where it ends."""
    data = record.signals(node)
    if not node.is_data or not data:
        return None
    if node.op in LINEAR:
        if node.op in ("add", "sub", "rsub", "copy"):
            found.biases.update(_parameters(record, record.weights(node)))
        return list(dict.fromkeys(data))
    if node.op not in MULTIPLIES or record.weights(node):
        return None
    if len(data) > 1:
        return _side_beside_gate(record, node, data)
    return data if data[0] == node.inputs[0] or node.op.startswith("mul") else None


def _side_beside_gate(record: Record, node: Node, data: list[int]) -> list[int] | None:
    """Return the side of a product of two signals on which the walk continues, if one is a gate."""
    sides = data[:1] if node.op.startswith("div") or node.op.startswith("true") else data
    for side in sides:
        others = [other for other in data if other != side]
        inner = walk(record, side)
        if not inner.takes_a_factor or not others:
            continue
        gate = any(record.nodes[i].op in GATES for i in (*inner.seen, *inner.ends))
        # In a norm the other side, computed from this one, cancels a factor.
        undone = any(
            record.before(end, other) or end == other
            for end in inner.ends for other in others
        )  # fmt: skip
        if not gate and not undone:
            return [side]
    return None


def constant_factor(record: Record, node: Node) -> float:
    """Return the constant by which a node multiplies its signal; 1 for other operations."""
    if node.op not in MULTIPLIES:
        return 1.0
    inputs = [record.nodes[i] for i in node.inputs]
    if len(inputs) == 1 and node.numbers:
        number = node.numbers[0]
    else:
        numbers = [n.number for n in inputs if n.number is not None]
        if len(inputs) != 2 or not numbers:
            return 1.0
        number = numbers[0]
    if node.op.startswith("mul"):
        return number
    return 1.0 / number if number else 1.0


def end_at(record: Record, node: Node) -> End:
    """Return the end of a walk at a node, with the weights that multiply it."""
    weights = record.weights(node)
    if node.op == "input":
        return End(node.index, "input")
    if node.op == "embedding" or (
        node.op in ("index", "index_select") and node.inputs[0] in weights
    ):
        return End(node.index, "table", _proportional(record, node.inputs[0]))
    if not weights or not node.is_data:
        return End(node.index, "other")
    if node.op in MULTIPLIES:
        divided = node.op.startswith(("div", "true")) and node.inputs[-1] in weights
        names = () if divided else _proportional(record, weights[0])
        return End(node.index, "gain", names)
    if node.op in NORMS:
        names = _proportional(record, weights[0])
        return End(node.index, "gain", names, _parameters(record, weights[1:]))
    if node.op in PRODUCTS:
        return _end_at_product(record, node)
    return End(node.index, "other")


def _end_at_product(record: Record, node: Node) -> End:
    """Return the end at a product of the signal with a weight, to which a bias may be added."""
    factors, bias = factors_and_bias(node)
    multiplied = [i for i in factors if record.nodes[i].is_weight]
    if len(multiplied) != 1:
        return End(node.index, "other")
    names = _proportional(record, multiplied[0])
    return End(node.index, "product", names, _parameters(record, bias))


def factors_and_bias(node: Node) -> tuple[Sequence[int], Sequence[int]]:
    """Return the two factors of a product, and what it adds to them."""
    # These operations add their first argument; convolutions add their third.
    if node.op in ("addmm", "baddbmm", "addbmm", "addmv"):
        return node.inputs[1:3], node.inputs[:1]
    return node.inputs[:2], node.inputs[2:]


def _parameters(record: Record, places: Sequence[int]) -> tuple[str, ...]:
    """Return the parameters of which the weights among some nodes are computed."""
    return tuple(p for i in places if record.nodes[i].is_weight for p in record.parameters(i))


def _proportional(record: Record, place: int) -> tuple[str, ...]:
    """Return a parameter to which a tensor is proportional: g of w = g v/|v|; none of 1 + w."""
    node = record.nodes[place]
    while node.parameter is None:
        inputs = [record.nodes[i] for i in node.inputs]
        own = [n for n in inputs if n.is_weight]
        if node.op == "_weight_norm_interface":
            node = inputs[1]
        elif node.op in LINEAR and node.op not in ("add", "sub", "rsub") and len(own) == 1:
            node = own[0]
        elif node.op.startswith("mul") and own:
            node = own[-1]
        elif node.op in MULTIPLIES and own and inputs[0].is_weight:
            node = inputs[0]
        else:
            return ()
    return (node.parameter,)


def concatenated(record: Record, node: Node) -> tuple[str, ...]:
    """Return the parameters of which a product's weight is a concatenation, if it is one."""
    for i in node.inputs:
        while record.nodes[i].is_weight and record.nodes[i].op in VIEWS:
            i = record.nodes[i].inputs[0]
        if record.nodes[i].is_weight and record.nodes[i].op == "cat":
            return tuple(record.parameters(i))
    return ()


def through_views(record: Record, place: int) -> int:
    """Return the tensor upstream of views, casts, copies and constant factors."""
    while True:
        node = record.nodes[place]
        data = record.signals(node)
        passes = node.op in VIEWS or (node.op in MULTIPLIES and not record.weights(node))
        if not passes or len(data) != 1 or not record.nodes[node.inputs[0]].is_data:
            return place
        place = data[0]
