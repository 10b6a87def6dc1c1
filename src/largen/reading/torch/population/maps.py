"""Rules of functions of PyTorch that multiply neurons by parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from largen.reading.calls import Param, registering
from largen.reading.engine.calls import Affine, Computed, Pending, Rule
from largen.reading.nodes import centred_law
from largen.reading.torch.population.run import Population

F64 = torch.float64
RULES: dict[str, Rule] = {}
ONE = (1.0, 1.0)


class Form(NamedTuple):
    """How a product with a parameter goes over axes, as :class:`Affine` has it."""

    fan_in: tuple[int, ...]
    fan_out: int
    axis: int
    move: Callable[[np.ndarray], np.ndarray] = lambda features: features
    part: str = ""
    share: int = 1  # the number of matrices in the parameter


# For functions of a population, a call and its arguments, named as PyTorch's.
rule = registering(RULES)


@rule("linear")
def _(population: Population, call: Pending, input: Any, weight: Any, bias: Any = None) -> Any:
    return dense(population, call, input, weight, bias, F.linear, (1,), 0)


@rule("matmul", "mm")
def _(population: Population, call: Pending, input: Any, other: Any) -> Any:
    if isinstance(input, Param) and len(population.widths.wide(input)) > 1:
        raise population.refused(call, "the matrix is on the left; only x @ W has a rule")
    if not isinstance(other, Param) or len(population.widths.shapes(other)[0]) != 2:
        return None
    return dense(population, call, input, other, None, lambda x, w, b: x @ w, (0,), 1)


@rule("addmm")
def _(
    population: Population, call: Pending, input: Any, mat1: Any, mat2: Any, beta: Any = 1,
    alpha: Any = 1,
) -> Any:  # fmt: skip
    if beta != 1 or alpha != 1:
        raise population.refused(call, "only alpha=beta=1 has a rule")
    return dense(population, call, mat1, mat2, input, lambda x, w, b: x @ w + b, (0,), 1)


def dense(
    population: Population, call: Pending, input: Any, weight: Any, bias: Any,
    native: Callable[..., Tensor], fan_in: tuple[int, ...], fan_out: int,
) -> Any:  # fmt: skip
    """Return a linear map of the last axis; None for a matrix that is no parameter."""
    if not isinstance(weight, Param):
        return None
    if weight.axes:
        fan_in, fan_out, weight = (fan_out,), fan_in[0], weight._replace(axes=None)
        plain, native = native, lambda x, w, b: plain(x, w.mT, b)
    rank = input.ndim if isinstance(input, Tensor) else len(population.widths.shapes(input)[0])
    form = Form(fan_in, fan_out, rank - 1)
    return product(population, call, input, weight, bias, form, native)


def product(
    population: Population, call: Pending, input: Any, weight: Param, bias: Any, form: Form,
    native: Callable[..., Tensor], whole: bool = True,
) -> Tensor:  # fmt: skip
    """Return the product of a value and a parameter; ``whole``: whether the call does no more."""
    if weight.axes:
        raise population.refused(call, f"{weight.name} is transposed; wanted the parameter itself")
    factors = ONE, ONE
    if whole:
        of = population.widths.factors
        factors = of(call.index), of(call.index, before=False)
    its = Affine(
        weight.name, _bias(population, call, bias), *form[:4], factors,
        population.shape(weight)[form.fan_out] // form.share, form.part,
    )  # fmt: skip
    return population.affine(call, input, its, native)


def _bias(population: Population, call: Pending, bias: Any) -> str | None:
    if bias is None:
        return None
    if not isinstance(bias, Param) or len(population.widths.shapes(bias)[0]) != 1:
        raise population.refused(call, "its bias is no parameter of the module")
    return bias.name


@rule("conv1d", "conv2d", "conv3d")
def _(
    population: Population, call: Pending, input: Any, weight: Any, bias: Any = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Any:  # fmt: skip
    func: Any = getattr(F, call.op)
    return _convolution(
        population, call, input, weight, bias, groups, (1, 0),
        lambda x, w, b, groups: func(x, w, b, stride, padding, dilation, groups),
    )  # fmt: skip


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _(
    population: Population, call: Pending, input: Any, weight: Any, bias: Any = None,
    stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    func: Any = getattr(F, call.op)
    return _convolution(
        population, call, input, weight, bias, groups, (0, 1),
        lambda x, w, b, groups: func(
            x, w, b, stride, padding, output_padding, groups, dilation
        ),
    )  # fmt: skip


def _convolution(
    population: Population, call: Pending, input: Any, weight: Any, bias: Any, groups: int,
    axes: tuple[int, int], func: Callable[..., Tensor],
) -> Tensor:  # fmt: skip
    """Return a convolution, with the given axes of inputs and outputs in its weight."""
    if not isinstance(weight, Param):
        raise population.refused(call, "its weight is computed from parameters")
    window = population.shape(weight)[2:]
    taps = math.prod(window)

    def move(given: np.ndarray) -> np.ndarray:
        features, rank = torch.from_numpy(given), given.shape[-1]
        one = torch.eye(taps, dtype=F64).reshape(taps, 1, *window)
        one = one if axes == (1, 0) else one.transpose(0, 1)
        moved = func(features.movedim(-1, 1), one.repeat(rank, *(1 for _ in one.shape[1:])),
                     None, rank)  # fmt: skip
        return moved.movedim(1, -1).numpy() / math.sqrt(taps)

    if groups > 1 and (axes == (0, 1) or 1 in population.widths.wide(weight)):
        raise population.refused(
            call,
            f"it has {groups} groups, and a convolution in groups has a rule only where its "
            "number of channels does not grow with the width",
        )
    form = Form((axes[0], *range(2, len(window) + 2)), axes[1], 1, move)
    return product(
        population, call, input, weight, bias, form, lambda x, w, b: func(x, w, b, groups)
    )


@rule("embedding")
def _(
    population: Population, call: Pending, input: Any, weight: Any, padding_idx: Any = None,
    max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:  # fmt: skip
    if not isinstance(weight, Param) or weight.axes or max_norm is not None:
        raise population.refused(call, "only tables that are parameters, without max_norm")
    ids = population.tensors(input, call).numpy()
    return population.rows(weight.name, ids, padding_idx, call)


@rule("embedding_bag")
def _(
    population: Population, call: Pending, input: Any, weight: Any, offsets: Any = None,
    *args: Any, **options: Any,
) -> Any:  # fmt: skip
    bound = inspect.signature(F.embedding_bag).bind(input, weight, offsets, *args, **options)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    others = (offsets, given.max_norm, given.per_sample_weights, given.padding_idx)
    if not isinstance(weight, Param) or given.mode == "max" or any(x is not None for x in others):
        raise population.refused(
            call,
            "only means and sums of bags of equal size, (sample, id), have a rule, without offsets "
            "or weights; nn.Embedding, and a mean over its rows, has one",
        )
    ids = population.tensors(input, call).numpy()
    rows = population.rows(weight.name, ids, None, call)
    return rows.mean(-2) if given.mode == "mean" else rows.sum(-2)


@rule("scaled_dot_product_attention")
def _(
    population: Population, call: Pending, query: Any, key: Any, value: Any, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p:
        raise population.refused(call, "it draws masks in evaluation mode")
    shapes = population.widths.shapes(query)
    last = len(shapes[0]) - 1
    if last in population.widths.wide(query):
        scales = [c.kwargs.get("scale") for c in population.widths.calls(call.index)]
        one, two = (s or shape[-1] ** -0.5 for s, shape in zip(scales, shapes, strict=True))
        population.check_scale(call, "the logit of attention heads of a growing size", one, two)
    if last - 1 in population.widths.wide(query) or last - 1 in population.widths.wide(key):
        raise population.refused(call, "softmax over an axis that grows has no limit")
    q, k, v, mask = (population.tensors(each, call) for each in (query, key, value, attn_mask))
    if enable_gqa:
        k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
    return attention(q, k, v, mask, is_causal, scale)[0]


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Return the values that attention averages, and its weights."""
    logits = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        allowed = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
        logits = logits.masked_fill(~allowed, -math.inf)
    if mask is not None:
        off = -math.inf
        logits = logits.masked_fill(~mask, off) if mask.dtype == torch.bool else logits + mask
    weights = logits.softmax(-1)
    return weights @ v, weights


@rule("multi_head_attention_forward")
def _(population: Population, call: Pending, *args: Any, **options: Any) -> Any:
    bound = inspect.signature(F.multi_head_attention_forward).bind(*args, **options)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    _check_heads(population, call, given)
    queries, keys, values = _projected(population, call, given)
    length, batch, channels = queries.shape

    def heads(value: Tensor) -> Tensor:
        return value.reshape(value.shape[0], batch, given.num_heads, -1).permute(1, 2, 0, 3)

    masks = [population.tensors(each, call) for each in (given.attn_mask, given.key_padding_mask)]
    mask = _joined(masks[0], masks[1], batch, given.num_heads)
    causal = given.is_causal and mask is None
    out, found = attention(heads(queries), heads(keys), heads(values), mask, causal, None)
    out = Computed(out.permute(2, 0, 1, 3).reshape(length, batch, channels))
    form = Form((1,), 0, 2, part=".out")
    out = product(
        population, call, out, given.out_proj_weight, given.out_proj_bias, form, _fails, whole=False
    )
    if not given.need_weights:
        return out, None
    return out, found.mean(1) if given.average_attn_weights else found


def _check_heads(population: Population, call: Pending, given: SimpleNamespace) -> None:
    """Refuse heads of a growing size, and what has no rule."""
    one, two = population.widths.calls(call.index)
    sizes = [c.args[3] // c.args[4] for c in (one, two)]
    if sizes[0] != sizes[1]:
        raise population.refused(
            call,
            f"its heads have {sizes[0]} and {sizes[1]} channels at the two widths: heads of a "
            "growing size have random logits at every width. Let the number of heads grow, such as "
            "num_heads=n // 8",
        )
    others = (given.bias_k, given.bias_v, given.static_k, given.static_v)
    drops = given.training and given.dropout_p
    if given.add_zero_attn or any(o is not None for o in others) or drops:
        raise population.refused(call, "bias_k, bias_v, zero attention and masks have no rule")


def _projected(population: Population, call: Pending, given: SimpleNamespace) -> list[Tensor]:
    """Return the queries, keys and values."""
    weights, share = [given.in_proj_weight] * 3, 3
    if given.use_separate_proj_weight:
        weights, share = [given.q_proj_weight, given.k_proj_weight, given.v_proj_weight], 1
    found, reads = [], (given.query, given.key, given.value)
    for part, read, weight in zip("qkv", reads, weights, strict=True):
        centred_law(weight.name, population.widths.parameters[0])
        form = Form((1,), 0, 2, part=f".{part}", share=share)
        found.append(
            product(population, call, read, weight, given.in_proj_bias, form, _fails, whole=False)
        )
    return found


def _fails(*args: Any) -> Tensor:
    raise AssertionError("attention reads channels that grow")


def _joined(mask: Any, padding: Any, batch: int, heads: int) -> Tensor | None:
    """Return both masks as numbers that are added to logits."""
    found = None
    for each, shape in ((mask, None), (padding, (batch, 1, 1, -1))):
        if each is None:
            continue
        if each.dtype == torch.bool:
            each = torch.zeros(each.shape, dtype=F64).masked_fill(each, -math.inf)
        if shape is not None:
            each = each.reshape(shape)
        elif each.ndim == 3:
            each = each.reshape(batch, heads, *each.shape[1:])
        found = each if found is None else found + each
    return found
