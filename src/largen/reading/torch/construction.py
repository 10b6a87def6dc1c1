"""Laws of parameters, read from the random operations of a module's own construction.

Operations that fill tensors are watched while the module is built. The last one on the memory of a
parameter is its law, exactly; it is then compared with the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from largen.reading.entries import compared, estimated
from largen.reading.laws import (
    TRUNCATED,
    Law,
    Parameter,
    constant,
    cut,
    inverse_error_function,
    normal,
    uniform,
)
from largen.transfer.torch.process import ALONE, fixed_seed

ENOUGH = 1000  # fewest entries from which a variance is estimated

# Operations that return or change nothing that a law depends on.
NEUTRAL = frozenset({"requires_grad_", "detach_", "set_", "resize_", "rename_"})
COPIES = frozenset({"clone", "_to_copy", "alias", "detach", "lift_fresh", "view", "t", "transpose"})


class _Construction(TorchDispatchMode):
    """A dispatch mode that keeps the law of each tensor's memory."""

    def __init__(self):
        super().__init__()
        self.laws: dict[int, Law | str] = {}
        # Of memory of which one part was then set to 0: the law of the rest, and the part.
        self.rest: dict[int, tuple[Law, Part]] = {}
        self._alive: list[Tensor] = []

    def of(self, tensor: Tensor) -> Law | str | None:
        """Return the law of a tensor's entries, or why there is none; None if nothing filled it."""
        return self.laws.get(_memory(tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note what it leaves in the memory that it fills."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        schema = func._schema
        name = schema.name.rpartition("::")[2]
        given = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
        given |= {arg.name: value for arg, value in zip(schema.arguments, args, strict=False)}
        given |= kwargs
        target = args[0] if args and isinstance(args[0], Tensor) else None
        if name.endswith("_") and not name.startswith("__") and target is not None:
            if name not in NEUTRAL:
                self.fill(target, self._in_place(name, target, given))
        elif isinstance(out, Tensor):
            self._new(out, self._returned(name, target, given))
        return out

    def fill(self, target: Tensor, law: Law | str) -> None:
        """Note the law with which a tensor is filled."""
        memory = _memory(target)
        before, rest = self.of(target), self.rest.pop(memory, None)
        if target.numel() * target.element_size() != target.untyped_storage().nbytes():
            if before == law:
                return
            if law == constant(0.0):
                rest = (before, _part(target)) if isinstance(before, Law) else rest
                if rest and rest[1] == _part(target):
                    self.rest[memory] = rest
            law = "a part of it was overwritten"
        self.laws[memory] = law
        self._alive.append(target)

    def _new(self, out: Tensor, law: Law | str | None) -> None:
        if law is not None and _memory(out) not in self.laws:
            self.laws[_memory(out)] = law
        self._alive.append(out)

    def _in_place(self, name: str, target: Tensor, given: Mapping[str, Any]) -> Law | str:
        before = self.of(target)
        if name == "copy_" and isinstance(given["src"], Tensor):
            return self._copied(given["src"])
        if isinstance(before, Law):
            if name == "erfinv_" and before.kind == "uniform":
                return inverse_error_function(before)
            if name == "clamp_" and before.kind == TRUNCATED:
                return before  # torch.nn.init.trunc_normal_ clamps to bounds that it keeps to
        changed = _changed(name[:-1], before, given)
        return changed or _filled(name[:-1], given) or f"the operation {name} changed it"

    def _copied(self, source: Tensor) -> Law | str:
        number = source.numel() == 1 and source.device.type != "meta"
        law = self.of(source) or (constant(float(source)) if number else None)
        return law or "it was copied from a tensor that nothing random filled"

    def _returned(
        self, name: str, target: Tensor | None, given: Mapping[str, Any]
    ) -> Law | str | None:
        if name in COPIES and target is not None:
            return self.of(target)
        if name in ("rand", "rand_like"):
            return uniform(0.0, 1.0)
        if name in ("randn", "randn_like"):
            return normal(0.0, 1.0)
        if name in ("ones", "ones_like", "new_ones"):
            return constant(1.0)
        if name in ("zeros", "zeros_like", "new_zeros"):
            return constant(0.0)
        if name in ("full", "full_like", "new_full"):
            return constant(float(given["fill_value"]))
        before = None if target is None else self.of(target)
        return _changed(name, before, given) if isinstance(before, Law) else None


Part = tuple[Any, ...]  # of a tensor's memory: offset, shape and strides


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _part(tensor: Tensor) -> Part:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _filled(name: str, given: Mapping[str, Any]) -> Law | None:
    """Return the law of an operation that fills a tensor."""
    match name:
        case "uniform":
            return uniform(given["from"], given["to"])
        case "normal":
            return normal(given["mean"], given["std"])
        case "zero":
            return constant(0.0)
        case "fill":
            return constant(float(given["value"]))
    return None


def _changed(name: str, before: Law | str | None, given: Mapping[str, Any]) -> Law | None:
    """Return the law behind a number that multiplies, divides or is added."""
    other = given.get("other")
    if isinstance(other, Tensor):
        other = other.item() if other.numel() == 1 and other.device.type != "meta" else None
    if not isinstance(before, Law) or not isinstance(other, (int, float)):
        return None
    sign = given.get("alpha", 1)
    match name:
        case "mul":
            return before.scaled(other)
        case "div":
            return before.scaled(1 / other)
        case "add":
            return before.shifted(other * sign)
        case "sub":
            return before.shifted(-other * sign)
    return None


@contextmanager
def _truncated(watch: _Construction) -> Iterator[None]:
    """Note the law of torch.nn.init.trunc_normal_, which draws until all entries are inside."""
    name = "_no_grad_trunc_normal_"
    if (original := getattr(nn.init, name, None)) is None:
        yield
        return

    def draw(tensor: Tensor, mean: float, std: float, a: float, b: float, **options: Any) -> Tensor:
        found = original(tensor, mean, std, a, b, **options)
        watch.fill(tensor, cut((a - mean) / std, (b - mean) / std).scaled(std).shifted(mean))
        return found

    with patch.object(nn.init, name, draw):
        yield


def construct(
    build: Callable[[], nn.Module], *, meta: bool = False
) -> tuple[nn.Module, dict[str, Parameter]]:
    """Build a module; return it with its parameters' laws by name.

    ``meta``: whether tensors are to have shapes but no entries, which are then not compared with
    laws.
    """
    watch = _Construction()
    with ALONE, fixed_seed(0), torch.device("meta" if meta else "cpu"), _truncated(watch), watch:
        module = build()
    found = {
        name: _parameter(watch.of(p.data), p.detach()) for name, p in module.named_parameters()
    }
    found |= {name: p for name, p in _padded(module, watch) if name in found}
    unfilled = [n for n, p in found.items() if p.law is None and watch.of(_data(module, n)) is None]
    if unfilled and not meta:
        with fixed_seed(1):
            again = build()
        for name in unfilled:  # entries that are the same in every draw are numbers of the program
            entries = _data(module, name)
            if entries.numel() == 1 and bool((_data(again, name) == entries).all()):
                found[name] = Parameter(constant(float(entries)), found[name].shape)
    return module, found


def _padded(module: nn.Module, watch: _Construction) -> Iterator[tuple[str, Parameter]]:
    """Yield tables with a row of padding that is 0; their law is that of the other rows."""
    for path, part in module.named_modules():
        if not isinstance(part, nn.Embedding) or part.padding_idx is None:
            continue
        table, row = part.weight.data, part.padding_idx
        law, zero = watch.rest.get(_memory(table), (None, None))
        if law is not None and zero == _part(table[row]):
            rest = _parameter(law, torch.cat([table[:row], table[row + 1 :]]))
            name = f"{path}.weight".strip(".")
            yield name, rest._replace(shape=tuple(table.shape), zero_row=row)


def _data(module: nn.Module, name: str) -> Tensor:
    return module.get_parameter(name).data


def of_instance(module: nn.Module) -> dict[str, Parameter]:
    """Return the laws of a module that exists, by name.

    Where the module's ``reset_parameters`` draws from a law with which its entries agree, that is
    the law; otherwise the variance is estimated from the entries.
    """
    copy, watch = deepcopy(module), _Construction()
    with ALONE, fixed_seed(0), torch.no_grad(), _truncated(watch), watch:
        for part in copy.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    redrawn = {name: watch.of(p.data) for name, p in copy.named_parameters()}
    found = {}
    for name, p in module.named_parameters():
        parameter = _parameter(redrawn[name], p.detach())
        if parameter.law is None and p.numel() >= ENOUGH:
            parameter = Parameter(estimated(_array(p)), tuple(p.shape))
        found[name] = parameter
    return found


def _parameter(law: Law | str | None, entries: Tensor) -> Parameter:
    """Return a parameter's law after it has been compared with the entries."""
    if entries.device.type == "meta":
        shape = tuple(entries.shape)
        return Parameter(law if isinstance(law, Law) else None, shape, str(law))
    return compared(law or "no operation that was seen filled it", _array(entries))


def _array(entries: Tensor) -> np.ndarray:
    return entries.detach().cpu().double().numpy()
