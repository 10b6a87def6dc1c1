"""Core operations that are products: of matrices, convolutions, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from largen.traces.torch.forms.reductions import _safe_softmax as softmax

HIGHEST = lax.Precision.HIGHEST  # PyTorch multiplies in the precision of the numbers


def _product(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y, precision=HIGHEST)


def _sum_and_product(start: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = _product(x, y) if alpha == 1 else alpha * _product(x, y)
    if beta == 0:
        return product
    return (start if beta == 1 else beta * start) + product


def _convolution(
    x: Any, weight: Any, bias: Any, strides: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    space = x.ndim - 2
    strides, padding, dilation, more = (
        [*given] * (space // len(given)) for given in (strides, padding, dilation, output_padding)
    )
    if transposed:
        sizes = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        ends = [(s - p, s - p + m) for s, p, m in zip(sizes, padding, more, strict=True)]
        inputs, outputs, *window = weight.shape
        weight = weight.reshape(groups, inputs // groups, outputs, *window)
        weight = jnp.swapaxes(weight, 1, 2).reshape(groups * outputs, inputs // groups, *window)
        weight = jnp.flip(weight, tuple(range(2, 2 + space)))
        strides, inside = [1] * space, strides
    else:
        ends, inside = [(p, p) for p in padding], [1] * space
    letters = "DHW"[3 - space :]
    names = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    out = lax.conv_general_dilated(
        x, weight, strides, ends, inside, dilation, names, groups, precision=HIGHEST
    )
    return out if bias is None else out + bias.reshape(-1, *[1] * space)


def _attention(
    q: Any, k: Any, v: Any, dropout: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None, **rest: Any,
) -> Any:  # fmt: skip
    scores = _product(q, jnp.swapaxes(k, -2, -1))
    scores = scores * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    if attn_mask is not None:
        masks = attn_mask.dtype == bool
        scores = jnp.where(attn_mask, scores, -jnp.inf) if masks else scores + attn_mask
    return _product(softmax(scores, -1), v), None


def _trilinear(
    one: Any, two: Any, three: Any, new_one: Any, new_two: Any, new_three: Any, summed: Any,
    unroll: int = 1,
) -> Any:  # fmt: skip
    factors = [
        jnp.expand_dims(x, tuple(new))
        for x, new in ((one, new_one), (two, new_two), (three, new_three))
    ]
    return (factors[0] * factors[1] * factors[2]).sum(tuple(summed))


FORMS = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention, "_trilinear": _trilinear,
    "addbmm": lambda start, x, y, **by: _sum_and_product(
        start, jnp.concatenate([*x], 1), jnp.concatenate([*y], 0), **by
    ),
    "addmm": _sum_and_product, "addmv": _sum_and_product, "baddbmm": _sum_and_product,
    "bmm": _product, "convolution": _convolution, "dot": _product, "mm": _product, "mv": _product,
    "vdot": _product,
}  # fmt: skip
