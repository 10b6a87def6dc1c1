"""Where a PyTorch module uses its parameters, recorded while it is called.

Every function of PyTorch that gets a parameter is seen by a ``TorchFunctionMode``. Linear maps,
convolutions, rows of tables, gains and biases leave factors of the derivative, Σ_t a_t ⊗ δ_t, with
an input a of the map and the cotangent δ of its output. Other parameters are *plain*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from largen.networks.tangents.contraction import Labels


class Read(NamedTuple):
    """A use of a parameter, read from the arguments of a call."""

    operand: Tensor | None  # a, of shape (\*position, \*of_input); None for a bias, where it is 1
    # of_input, of_output: labels of the axes of the parameter in a and in δ.
    of_input: Labels
    of_output: Labels
    # Brings a cotangent of the output into the shape (\*position, \*of_output).
    arrange: Callable[[Tensor], Tensor]
    positions: int  # the number of axes of positions, the samples among them


@dataclass(frozen=True)
class TorchUse:
    """A use of a parameter, and the output whose cotangent is to be taken."""

    name: str
    read: Read
    output: Tensor


class Recorder(TorchFunctionMode):
    """Records the uses of parameters in calls, and names of those used in another way."""

    def __init__(self, parameters: Mapping[str, Tensor]):
        super().__init__()
        self.names = {id(parameter): name for name, parameter in parameters.items()}
        self.uses: list[TorchUse] = []
        self.plain: set[str] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call a function, and record which parameters it used."""
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if id(leaf) in self.names]
        if not given:
            return func(*args, **kwargs)
        inner = None if func in _READERS else _body(func)
        if inner is not None:
            with self:
                return inner(*args, **kwargs)
        output = func(*args, **kwargs)
        if not _has_gradient(output):
            return output
        found = _READERS[func](*args, **kwargs) if func in _READERS else {}
        for parameter in given:
            read = found.get(id(parameter))
            if read is None or sum(parameter is other for other in given) > 1:
                self.plain.add(self.names[id(parameter)])
            else:
                self.uses.append(TorchUse(self.names[id(parameter)], read, output))
        # What is changed in place afterwards is a copy.
        return output.clone() if isinstance(output, Tensor) else output


def _has_gradient(output: Any) -> bool:
    """Whether any tensor among a function's results depends on parameters."""
    return any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(output))


def _body(func: Any) -> Callable[..., Any] | None:
    """Return a function of ``torch.nn.functional`` whose inner calls are seen as well."""
    if not isinstance(func, FunctionType) or func.__module__ != functional.__name__:
        return None
    asked = [name for name in func.__globals__ if name.startswith("has_torch_function")]
    blind = {**func.__globals__, **dict.fromkeys(asked, lambda *_: False)}
    inner = FunctionType(func.__code__, blind, func.__name__, func.__defaults__, func.__closure__)
    inner.__kwdefaults__ = func.__kwdefaults__
    return inner


Reads = dict[int, Read]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Reads:
    found = {id(weight): Read(input.detach(), (1,), (0,), _same, input.ndim - 1)}
    if bias is not None:
        found[id(bias)] = Read(None, (), (0,), _same, input.ndim - 1)
    return found


def _same(cotangent: Tensor) -> Tensor:
    return cotangent


def _rows(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Reads:
    if max_norm is not None or scale_grad_by_freq:
        return {}
    hot = (input[..., None] == torch.arange(len(weight), device=input.device)).to(weight.dtype)
    if padding_idx is not None:
        hot[..., padding_idx] = 0.0
    return {id(weight): Read(hot, (0,), (1,), _same, input.ndim)}


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Reads:
    space = weight.ndim - 2
    if input.ndim != weight.ndim:
        return {}
    window = weight.shape[2:]
    stride, dilation = (_each(value, space) for value in (stride, dilation))
    reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    if padding == "same":
        ends = [(r // 2, r - r // 2) for r in reach]
    elif padding == "valid":
        ends = [(0, 0)] * space
    else:
        ends = [(p, p) for p in _each(padding, space)]
    patches = functional.pad(input.detach(), [p for pair in ends[::-1] for p in pair])
    for axis in range(space):
        patches = patches.unfold(2 + axis, reach[axis] + 1, stride[axis])
        patches = patches[..., :: dilation[axis]]
    # (sample, channel, *position, *window) → (sample, *position, group, channel, *window)
    patches = patches.movedim(1, 1 + space)
    patches = patches.unflatten(1 + space, (groups, -1))

    def by_group(cotangent: Tensor) -> Tensor:
        return _channels_last(cotangent).unflatten(-1, (groups, -1))

    inner: Labels = tuple(range(1, weight.ndim))
    if groups == 1:
        patches = patches.squeeze(1 + space)
        found = {id(weight): Read(patches, inner, (0,), _channels_last, 1 + space)}
    else:
        labels: Labels = (("group", groups), *inner), (("group", groups), ("within", groups))
        found = {id(weight): Read(patches, *labels, by_group, 1 + space)}
    if bias is not None:
        found[id(bias)] = Read(None, (), (0,), _channels_last, 1 + space)
    return found


def _each(value: Any, count: int) -> Sequence[int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * count if len(values) == 1 else values


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Reads:
    axes = tuple(range(len(normalized_shape)))
    normal = functional.layer_norm(input.detach(), normalized_shape, None, None, eps)
    return _gain(weight, bias, normal, axes, _same, input.ndim - len(axes))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Reads:
    if training:
        return {}
    normal = functional.batch_norm(input.detach(), running_mean, running_var, eps=eps)
    return _gain(weight, bias, _channels_last(normal), (0,), _channels_last, input.ndim - 1)


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Reads:
    normal = functional.group_norm(input.detach(), num_groups, eps=eps)
    return _gain(weight, bias, _channels_last(normal), (0,), _channels_last, input.ndim - 1)


def _channels_last(values: Tensor) -> Tensor:
    return values.movedim(1, -1)


def _gain(weight, bias, normal, axes, arrange, positions) -> Reads:
    found = {}
    if weight is not None:
        found[id(weight)] = Read(normal, axes, axes, arrange, positions)
    if bias is not None:
        found[id(bias)] = Read(None, (), axes, arrange, positions)
    return found


def _sum(input: Any, other: Any, *, alpha: float = 1.0, out: Any = None) -> Reads:
    """A sum with a parameter that has fewer axes or axes of size 1, such as embedded positions."""
    if alpha != 1.0 or out is not None:
        return {}
    found = {}
    for parameter, rest in ((input, other), (other, input)):
        if not isinstance(rest, Tensor) or not isinstance(parameter, Tensor):
            continue
        ahead = rest.ndim - parameter.ndim
        if ahead < 0 or any(
            mine not in (1, its)
            for mine, its in zip(parameter.shape, rest.shape[ahead:], strict=True)
        ):
            continue
        ones = [i for i, size in enumerate(parameter.shape) if size == 1]
        kept = [i for i in range(parameter.ndim) if i not in ones]

        def arrange(cotangent: Tensor, ahead=ahead, ones=tuple(ones), kept=tuple(kept)) -> Tensor:
            first = [*range(ahead), *(ahead + i for i in ones)]
            return cotangent.permute(*first, *(ahead + i for i in kept))

        found[id(parameter)] = Read(None, (), tuple(kept), arrange, ahead + len(ones))
    return found


_READERS: dict[Any, Callable[..., Reads]] = {
    functional.linear: _linear,
    functional.embedding: _rows,
    functional.layer_norm: _layer_norm,
    functional.batch_norm: _batch_norm,
    functional.group_norm: _group_norm,
    **dict.fromkeys((functional.conv1d, functional.conv2d, functional.conv3d), _convolution),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), _sum),
}


def by_sample(array: Tensor, positions: int, samples: int, first: bool) -> Tensor | None:
    """Return (sample, position, ...) of axes of positions that hold samples first or last."""
    count = prod(array.shape[:positions])
    if count % samples:
        return None
    rest = array.shape[positions:]
    if first:
        return array.reshape(samples, count // samples, *rest)
    return array.reshape(count // samples, samples, *rest).movedim(1, 0)
