"""A forward pass of a module at a population of representative neurons.

Calls of PyTorch's functions are seen as a recorder sees them. Values are dual tensors of forward
differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from largen.errors import LargenError
from largen.reading.calls import Param, Ref
from largen.reading.engine.calls import Computed, Pending, Rule
from largen.reading.engine.constants import Constants
from largen.reading.engine.population import Engine
from largen.reading.refusals import by_rule
from largen.reading.torch.population.native import ATTRIBUTES, check
from largen.reading.torch.recording import Recorder


class Population(Engine, Recorder):
    """A mode in which the functions of PyTorch act on a population of neurons."""

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        constants: Constants,
        rules: dict[str, Rule],
        seed: int,
        rates: Callable[[str], float] | None = None,
    ):
        Recorder.__init__(self, module, x)
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        Engine.__init__(self, constants, shapes, seed, rates)
        self._rules = rules
        self.functions: dict[int, tuple[Any, Any, Any, int | None]] = {}

    def run(self, func: Any, args: Any, kwargs: Any, name: str, given: Any, named: Any) -> Any:
        """Run a call on the population."""
        if name in ATTRIBUTES:
            return func(*args, **kwargs)
        call = Pending(len(self.record.calls), name, given, named, self.stack[-1])
        self.check_place(call)
        out = None
        if (rule := self._rules.get(name)) is not None:
            out = by_rule(self, rule, call)
        if out is None:
            check(self, call)
            out = self._natively(call, func)
        parts = out if isinstance(out, (tuple, list)) else (out,)
        for n, part in enumerate(p for p in parts if isinstance(p, Tensor)):
            single = None if isinstance(out, Tensor) else n
            self.functions[call.index + n] = (func, given, named, single)
            if part.device.type == "meta":
                raise self.refused(call, "it makes a tensor without entries")
        return out

    def _natively(self, call: Pending, func: Any) -> Any:
        args, kwargs = self.tensors(call.args, call), self.tensors(call.kwargs, call)
        try:
            return func(*args, **kwargs)
        except (RuntimeError, NotImplementedError) as error:
            if isinstance(error, LargenError):
                raise
            said = str(error).partition("\n")[0][:160]
            raise self.refused(call, f"it fails on a population of neurons: {said}") from None

    def tensors(self, value: Any, call: Pending) -> Any:
        """Return arguments with tensors in the place of references."""
        if isinstance(value, Computed):
            return value.value
        if isinstance(value, Ref):
            return self.result(value)
        if isinstance(value, Param):
            entries = self.vector(value.name, call)
            return entries.mT if value.axes else entries
        if isinstance(value, dict):
            return {key: self.tensors(item, call) for key, item in value.items()}
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self.tensors(item, call) for item in value)
        if isinstance(value, Tensor) and value.device.type == "meta":
            raise self.refused(
                call, "it reads a tensor that the module's construction made; register_buffer it"
            )
        return value

    def joined(self, value: np.ndarray, derivative: np.ndarray | None) -> Tensor:
        """Return a dual tensor."""
        primal = torch.tensor(value)
        return primal if derivative is None else forward_ad.make_dual(
            primal, torch.tensor(derivative)
        )  # fmt: skip

    def parted(self, value: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the parts of a dual tensor."""
        primal, tangent = forward_ad.unpack_dual(value)
        return primal.double().numpy(), None if tangent is None else tangent.double().numpy()

    def draws(self, call: Pending) -> bool:
        """Whether a dropout is in training mode."""
        p = call.kwargs.get("p", call.args[1] if len(call.args) > 1 else 0.5)
        training = call.kwargs.get("training", call.args[2] if len(call.args) > 2 else True)
        return bool(p) and bool(training)

    def replayed(self, index: int, starts: np.ndarray, behind: set[int]) -> np.ndarray:
        """Return the outputs if the result of a call is each of ``starts``."""
        return np.stack([self._replayed(index, torch.tensor(start), behind) for start in starts])

    def _replayed(self, index: int, start: Tensor, behind: set[int]) -> np.ndarray:
        known = {index: start}
        for place in sorted(behind & set(self.functions)):
            func, args, kwargs, part = self.functions[place]
            made = func(*self._kept(args, known), **self._kept(kwargs, known))
            known[place] = made if part is None else made[part]
        return known[self.record.output].numpy()

    def _kept(self, value: Any, known: dict[int, Tensor]) -> Any:
        """Return arguments with tensors in the place of references, which may be changed."""
        if isinstance(value, Ref) and value.place in known:
            return known[value.place].clone()
        if isinstance(value, Ref):
            return forward_ad.unpack_dual(self.result(value)).primal
        if isinstance(value, Param):
            entries = forward_ad.unpack_dual(self.drawn_entries(value.name)).primal
            return entries.mT if value.axes else entries
        if isinstance(value, dict):
            return {key: self._kept(item, known) for key, item in value.items()}
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self._kept(item, known) for item in value)
        return value
