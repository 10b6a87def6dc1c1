"""Which functions of PyTorch run as they are at a population of neurons, and which must not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from largen.reading.calls import Param, Ref, leaves_of
from largen.reading.engine.native import (
    UNKNOWN,
    Table,
    check_along,
    check_by,
    check_join,
    check_part,
    check_product,
    check_sum,
)

if TYPE_CHECKING:
    from largen.reading.engine.calls import Pending
    from largen.reading.torch.population.run import Population

# Attributes and functions that say what a tensor is, without its entries.
ATTRIBUTES = frozenset({
    "shape", "size", "dim", "ndim", "ndimension", "device", "dtype", "numel", "nelement", "stride",
    "requires_grad", "is_floating_point", "is_cuda", "is_contiguous", "is_meta", "is_nested",
    "is_sparse", "is_quantized", "layout", "element_size", "len", "hash", "get_device",
    "is_complex", "is_mps", "is_xpu", "is_cpu", "is_leaf", "grad_fn", "is_inference", "is_mkldnn",
})  # fmt: skip

ELEMENTWISE = frozenset({
    "relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "elu", "selu", "celu", "leaky_relu",
    "mish", "hardswish", "hardsigmoid", "hardtanh", "relu6", "logsigmoid", "softsign", "erf", "sin",
    "cos", "exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "abs", "square", "pow", "neg", "tan",
    "reciprocal", "sign", "atan", "sinh", "cosh", "prelu", "threshold", "hardshrink", "softshrink",
    "tanhshrink", "glu", "add", "sub", "rsub", "mul", "div", "rdiv", "maximum", "minimum", "clamp",
    "where", "masked_fill", "lerp", "addcmul", "addcdiv", "float", "double", "to", "type_as",
    "type", "contiguous", "clone", "detach", "requires_grad_", "gt", "lt", "ge", "le", "eq", "ne",
    "logical_not", "logical_and", "logical_or", "invert", "and", "or", "bool", "long", "int",
    "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor",
    "nan_to_num", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
    "feature_dropout", "feature_alpha_dropout", "broadcast_tensors", "fill", "zero",
    "one_hot",
})  # fmt: skip
DRAWS = frozenset(name for name in ELEMENTWISE if "dropout" in name)
VIEWS = frozenset({
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "mT",
    "T", "t", "movedim", "moveaxis", "expand", "expand_as", "getitem", "split", "chunk", "unbind",
    "narrow", "select", "view_as", "tensor_split", "iter", "reshape_as",
})  # fmt: skip
COPIES = frozenset({"expand", "expand_as", "broadcast_to", "repeat", "tile"})
# Functions along an axis (the second argument, or by name) that no growing axis may be.
ALONG = frozenset({
    "softmax", "log_softmax", "logsumexp", "max", "min", "amax", "amin", "argmax", "argmin",
    "median", "cumsum", "cumprod", "prod", "sort", "argsort", "topk", "norm", "normalize", "flip",
    "roll", "all", "any", "tril", "triu", "softmin", "index_select", "repeat_interleave",
    "gather", "std", "var", "var_mean",
})  # fmt: skip
MEANS = frozenset({"mean", "var", "std", "var_mean", "cosine_similarity"})  # those that converge
NORMS = frozenset({"layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"})
POSITIONS = frozenset({
    "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "interpolate", "upsample", "pixel_shuffle",
    "pixel_unshuffle", "lp_pool1d", "lp_pool2d", "max_pool1d_with_indices",
    "max_pool2d_with_indices",
})  # fmt: skip
FACTORS = {
    "matmul": ("input", "other"), "bmm": ("input", "mat2"), "mm": ("input", "mat2"),
    "linear": ("input", "weight"), "baddbmm": ("input", "batch1", "batch2"),
}  # fmt: skip
CONTRACTIONS = frozenset({"einsum", *FACTORS})
JOINS = frozenset({"cat", "stack", "hstack", "concat"})
REASONS: dict[str, str] = dict.fromkeys(
    ("weight_norm", "_weight_norm", "weight_norm_interface"),
    "weights that are divided by their norm have no rule; without it "
    "(torch.nn.utils.parametrize.remove_parametrizations) the initial network is the same",
)
DEFAULT_AXIS = {"normalize": 1, "topk": -1, "sort": -1, "argsort": -1, "median": None}


def check(population: Population, call: Pending) -> None:
    """Refuse a call that cannot run as it is."""
    check_by(_TABLE, population, call, REASONS.get(call.op, UNKNOWN))


def _anywhere(population: Population, call: Pending) -> None:
    if call.op in DRAWS and population.draws(call):
        raise population.refused(call, "it draws masks; wanted training=self.training")


def _copies(population: Population, call: Pending) -> None:
    """Every neuron several times, as keys and values of a group of heads, has a limit."""


def _along(population: Population, call: Pending) -> None:
    tensors = list(leaves_of((call.args, call.kwargs)))
    if len(tensors) > 1 and call.op in ("max", "min"):
        return  # of two tensors
    count = len(population.widths.shapes(tensors[0])[0])
    axes = _axes(call, count)
    if call.op == "repeat_interleave" and axes != tuple(range(count)):
        times = call.kwargs.get("repeats", (*call.args, None)[1])
        if isinstance(times, int):
            return  # as of _copies
    if call.op not in MEANS:
        check_along(population, call, tensors[0], axes)


def _sum(population: Population, call: Pending) -> None:
    (tensor,) = leaves_of((call.args, call.kwargs))
    check_sum(population, call, tensor, _axes(call, len(population.widths.shapes(tensor)[0])))


def _axes(call: Pending, count: int) -> tuple[int, ...]:
    """Return the axes that a call acts along."""
    missing = DEFAULT_AXIS.get(call.op)
    place = 2 if call.op in ("norm", "topk", "roll", "normalize", "repeat_interleave") else 1
    given = call.args[place] if len(call.args) > place else missing
    for name in ("dim", "axis", "dims"):
        given = call.kwargs.get(name, given)
    if call.op in ("tril", "triu"):
        given = (-2, -1)
    if given is None or isinstance(given, bool):
        return tuple(range(count))
    found = given if isinstance(given, (tuple, list)) else (given,)
    return tuple(int(axis) % max(count, 1) for axis in found)


def _norm(population: Population, call: Pending) -> None:
    """Normalisations are elementwise but for means."""


def _positions(population: Population, call: Pending) -> None:
    tensor = next(leaves_of(call.args))
    if set(population.widths.wide(tensor)) - {0, 1}:
        raise population.refused(
            call, "it acts along an axis that grows with the width; wanted (N, C, positions)"
        )


def _join(population: Population, call: Pending) -> None:
    if call.op in ("stack", "hstack"):
        return
    tensors = list(leaves_of(call.args[0]))
    axis = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else 0)
    rank = len(population.widths.shapes(tensors[0])[0])
    check_join(population, call, tensors, axis % rank)


def _contraction(population: Population, call: Pending) -> None:
    check_product(population, call, _contracted(population, call))


def _contracted(population: Population, call: Pending) -> list[tuple[Any, tuple[int, ...]]]:
    """Return the factors of a product with the axes over which it sums; numbers have none."""
    if call.op == "einsum":
        return _contracted_in_equation(population, call)
    named = dict(zip(FACTORS[call.op], call.args, strict=False)) | call.kwargs
    found = []
    for name, from_right in zip(FACTORS[call.op][-2:], (1, 2), strict=True):
        factor = named[name]
        if isinstance(factor, (Ref, Param)):
            rank = len(population.widths.shapes(factor)[0])
            last = call.op == "linear" or rank == 1
            found.append((factor, (rank - (1 if last else from_right),)))
    return found


def _contracted_in_equation(
    population: Population, call: Pending
) -> list[tuple[Any, tuple[int, ...]]]:
    inputs, arrow, output = str(call.args[0]).replace(" ", "").partition("->")
    kept = output if arrow else [letter for letter in inputs if inputs.count(letter) == 1]
    one = call.args[1]  # a list of all, or the first
    operands = call.args[1:] if isinstance(one, (Ref, Param)) or hasattr(one, "shape") else one
    found = []
    for term, factor in zip(inputs.split(","), operands, strict=True):
        if isinstance(factor, (Ref, Param)):
            before, _, behind = term.partition("...")
            from_right = len(population.widths.shapes(factor)[0]) - len(behind)
            axes = [*enumerate(before), *enumerate(behind, from_right)]
            found.append((factor, tuple(i for i, letter in axes if letter not in kept)))
    return found


_TABLE: Table = (
    (ELEMENTWISE, _anywhere),
    (VIEWS, check_part),
    (COPIES, _copies),
    (MEANS | ALONG, _along),
    (frozenset({"sum"}), _sum),
    (NORMS, _norm),
    (POSITIONS, _positions),
    (JOINS, _join),
    (CONTRACTIONS, _contraction),
    (frozenset({"pad"}), check_part),
)
