"""Effects of one update of every weight of one network, from a forward and a few backward passes.

See :mod:`largen.transfer.verdicts`. Hooks take modules' inputs and outputs, a mode the inputs of
softmaxes; fused attention is written out, since its logits are no tensor otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from largen.transfer.plan import Plan
from largen.transfer.torch.layouts import fan_in_axes
from largen.transfer.torch.names import modules, parameters, plain
from largen.transfer.torch.process import ALONE
from largen.transfer.torch.recording import forget, output_of
from largen.transfer.torch.watching import Scores, along_itself, along_numbers
from largen.transfer.verdicts import Key, Layout, change_by_update

SOFTMAXES = frozenset({F.softmax, torch.softmax, Tensor.softmax})
FUSED = F.scaled_dot_product_attention
ON_OUTPUT, ON_TENSOR, ON_LOGITS, ON_INPUT = range(1, 5)  # seeds of the directions


@dataclass
class Pass:
    """The tensors of one forward pass."""

    # outputs, inputs: by module, in the order of the calls' ends; of several calls, the last.
    outputs: dict[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    # The inputs of softmaxes, with the modules that call them.
    logits: list[tuple[str, Tensor]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    scores: Scores = field(default_factory=Scores)

    @property
    def where(self) -> str:
        """The module that runs."""
        return self.stack[-1] if self.stack else ""

    @property
    def output(self) -> Tensor:
        """The model's output."""
        return self.outputs[""]

    def logits_at(self, number: int) -> Tensor:
        """Return the logits of a softmax, or with larger numbers a product of two signals."""
        if number < len(self.logits):
            return self.logits[number][1]
        return self.scores.found[number - len(self.logits)].tensor

    def note(self, logits: Tensor) -> None:
        """Add the input of a softmax, if a weight determines it."""
        self.scores.read_by_softmax(logits)
        if logits.requires_grad:
            self.logits.append((self.where, logits))


class _Logits(TorchFunctionMode):
    """A mode that notes the inputs of softmaxes, and products of two signals."""

    def __init__(self, found: Pass):
        super().__init__()
        self.found, self.note = found, found.note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and note what it reads and computes."""
        kwargs = kwargs or {}
        output = self.call(func, args, kwargs)
        self.found.scores.after(func, args, kwargs, output, self.found.where)
        return output

    def call(self, func: Any, args: tuple, kwargs: Any) -> Any:
        """Note the input of a softmax; write fused attention out."""
        if func in SOFTMAXES:
            self.note(args[0] if args else kwargs["input"])
        elif func is FUSED:
            return self.attention(*args, **kwargs)
        elif func is F.multi_head_attention_forward:
            # Functions that it calls do not reach the mode, which is off inside a call.
            with patch.multiple(
                F, softmax=self.softmax, scaled_dot_product_attention=self.attention
            ):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def softmax(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Note the input, and compute the softmax."""
        self.note(x)
        return x.softmax(*args[:1], **{k: v for k, v in kwargs.items() if k in ("dim", "dtype")})

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
        enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return softmax(q·k) v from operations that can be watched."""
        if enable_gqa:
            copies = query.shape[-3] // key.shape[-3]
            key, value = (t.repeat_interleave(copies, -3) for t in (key, value))
        logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        self.note(logits)
        if is_causal:
            hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
            logits = logits.masked_fill(hidden, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            logits = logits.masked_fill(~attn_mask, torch.finfo(logits.dtype).min)
        elif attn_mask is not None:
            logits = logits + attn_mask
        return logits.softmax(-1) @ value


def forward(model: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Pass:
    """Call a model; return the tensors that verdicts need."""
    return watched(model, lambda: model(*args, **kwargs))


def watched(model: nn.Module, call: Callable[[], Any]) -> Pass:
    """Return the tensors that verdicts need of a function that calls a model."""
    found, handles = Pass(), []

    def before(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
            if not path:
                found.scores.begin((args, kwargs))
            found.stack.append(path)

        return hook

    def after(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: Mapping[str, Any], output: Any) -> None:
            found.stack.pop()
            given, made = output_of((args, kwargs)), output_of(output)
            if given is not None:
                found.inputs[path] = given
            if made is not None:
                found.outputs.pop(path, None)
                found.outputs[path] = made

        return hook

    for path, module in model.named_modules():
        if "parametrizations" not in path:  # their modules return weights
            handles.append(module.register_forward_pre_hook(before(plain(path)), with_kwargs=True))
            handles.append(module.register_forward_hook(after(plain(path)), with_kwargs=True))
    try:
        with ALONE, torch.enable_grad(), _Logits(found):
            call()
    finally:
        for handle in handles:
            handle.remove()
    return found


@contextmanager
def as_in_training(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, but for batch normalisation."""
    forget(model.eval())
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    yield


def measured(
    model: nn.Module,
    plan: Plan,
    call: Callable[[], Any],
    along: str,
    inputs: bool = False,
    scores: Mapping[int, int | None] | None = None,
) -> tuple[dict[Key, float], Layout]:
    """Return the effects of one update of every weight, and the network's parts.

    In ``"depth"``, weights have no effects on single tensors. ``inputs``: whether to measure
    effects on inputs of modules, too; ``scores``: the numbers of the products of two signals
    to measure effects on → the axis of the result that grows.
    """
    with as_in_training(model):
        passed = watched(model, call)
        if (
            not passed.output.requires_grad
        ):  # gradients of a scalar may be differentiable in training
            passed = watched(model.train(), call)
    weights = {name: p for name, p in parameters(model).items() if p.requires_grad}
    layout = _layout(weights, passed)
    found: dict[Key, float] = {("start", "output", ""): _rms(passed.output)}
    for side, tensors in (("input", passed.inputs), ("output", passed.outputs)):
        for path, z in tensors.items():
            if path:
                found["start", f"{side} of {path}", ""] = _rms(z)
    holding = modules(model)
    for name in layout.inner:
        path, _, leaf = name.rpartition(".")
        shape = weights[name].shape
        axes = fan_in_axes(holding[path], leaf, len(shape))
        into = prod(shape[axis] for axis in axes if axis < len(shape))
        signals = passed.outputs[layout.holders[name]].numel() * into / weights[name].numel()
        found["uses", "", name] = signals

    def effects(s: Tensor, names: Sequence[str]) -> dict[str, float]:
        wanted = [weights[name] for name in names]
        slopes = torch.autograd.grad(s, wanted, retain_graph=True, allow_unused=True)
        return {
            name: change_by_update(
                plan,
                name,
                float(gradient.detach().double().abs().sum()),
                float(gradient.detach().double().square().sum()),
            )
            for name, gradient in zip(names, slopes, strict=True)
            if gradient is not None and bool(gradient.any())
        }

    # The change of one tensor by gradient descent depends on the gradient behind it.
    single = along == "width" and plan.update.kind != "proportional"
    for kind, place, s, names in _numbers(
        passed, layout, list(weights), single, inputs, scores or {}
    ):
        for name, value in effects(s, names).items():
            found[kind, place, name] = value
    return found, layout


def _numbers(
    passed: Pass,
    layout: Layout,
    every: Sequence[str],
    single: bool,
    inputs: bool,
    scores: Mapping[int, int | None],
) -> Iterator[tuple[str, str, Tensor, Sequence[str]]]:
    """Yield a kind, a place, the mean s of a tensor along a direction, and weights that act on it.

    ``single``: whether to yield tensors that weights act on first; ``inputs``: those of modules.
    """
    local: dict[str, list[str]] = {}
    for name in layout.inner if single else ():
        local.setdefault(layout.holders[name], []).append(name)
    for path, names in local.items():
        if passed.outputs[path].requires_grad:
            yield "tensor", "", along_numbers(passed.outputs[path], ON_TENSOR), names
    for i, (path, z) in enumerate(passed.logits):
        yield "logits", f"{path}#{i}", along_numbers(z, ON_LOGITS), every
    # Steps of a memory are many: those of one module are added.
    by_module: dict[str, list[int]] = {}
    for i in scores:
        by_module.setdefault(passed.scores.found[i].where, []).append(i)
    for path, numbers in by_module.items():
        found = [(passed.scores.found[i].tensor, scores[i]) for i in numbers]
        whole = torch.stack([along_itself(z, axis, ON_LOGITS) for z, axis in found]).sum()
        yield "logits", f"{path}#{len(passed.logits) + numbers[0]}", whole, every
    seen = set()
    for path in local if inputs else ():
        z = passed.inputs.get(path)
        if z is not None and z.requires_grad and id(z) not in seen:
            seen.add(id(z))
            yield "input", path, along_numbers(z, ON_INPUT), every
    yield "output", "", along_numbers(passed.output, ON_OUTPUT), every


def _layout(weights: Mapping[str, Tensor], passed: Pass) -> Layout:
    holders = {name: _holder(name, passed) for name in weights}
    final = frozenset(p for p, z in passed.outputs.items() if p and z is passed.output)
    return Layout(
        modules=tuple(passed.outputs),
        holders=holders,
        final=final,
        last=frozenset(n for n, p in holders.items() if not p or p in final),
        vectors=frozenset(name for name, w in weights.items() if w.ndim < 2),
        inputs={path: z.numel() for path, z in passed.inputs.items()},
        operations=sum(
            weights[name].numel() * passed.outputs[path].numel() / weights[name].shape[0]
            for name, path in holders.items()
            if weights[name].ndim > 1
        ),
    )


def _holder(name: str, passed: Pass) -> str:
    """Return the innermost called module that holds a weight."""
    path = name.rpartition(".")[0].partition("parametrizations")[0].rstrip(".")
    while path and path not in passed.outputs:
        path = path.rpartition(".")[0]
    return path


def _rms(z: Tensor) -> float:
    return float(z.detach().double().square().mean().sqrt())
