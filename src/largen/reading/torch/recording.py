"""One forward pass of a module, recorded as the calls of functions that PyTorch documents.

The recorder of :mod:`largen.transfer.torch` works where PyTorch dispatches to kernels. Here calls
are recorded one level above, where a convolution or a normalisation is still one call with its
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from largen.errors import InvalidInput, LargenError, NoRule
from largen.reading.calls import Call, Param, Record, Ref, leaves_of
from largen.reading.refusals import refused
from largen.transfer.torch.process import ALONE, fixed_seed
from largen.transfer.torch.recording import forget, output_of, tensors_in, watching

# Calls that return numbers of a tensor to Python, where what is done with them is not seen.
LEAVES = frozenset({
    "item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__",
    "equal", "allclose", "is_nonzero", "__contains__",
})  # fmt: skip

TURNS = frozenset({"T", "t", "mT", "transpose"})  # of a matrix

SYNONYMS = {
    "iadd": "add", "radd": "add", "isub": "sub", "imul": "mul", "rmul": "mul", "multiply": "mul",
    "truediv": "div", "itruediv": "div", "divide": "div", "true_divide": "div", "rtruediv": "rdiv",
    "concat": "cat", "concatenate": "cat", "subtract": "sub", "swapaxes": "transpose",
    "negative": "neg", "absolute": "abs", "clip": "clamp", "ipow": "pow", "logistic": "sigmoid",
}  # fmt: skip


def record(module: nn.Module, x: Tensor) -> Record:
    """Call a module in evaluation mode on an input, and record its forward pass."""
    was_training = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        forget(module)
        with ALONE, fixed_seed(0):
            return run_under(Recorder(module, x), module, x)
    finally:
        for part, training in was_training:
            part.training = training


def run_under(mode: Recorder, module: nn.Module, x: Tensor) -> Record:
    """Call a module on an input under a recorder, and return what was recorded."""

    def leave(path: str, given: Any, output: Any) -> None:
        mode.stack.pop()

    try:
        with watching(mode, module, mode.stack.append, leave):
            output = _output(module(x), mode)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
        if isinstance(error, LargenError):
            raise
        said = str(error).partition("\n")[0][:200]
        raise InvalidInput(
            f"x: the module fails on inputs of shape {tuple(x.shape)} and {x.dtype}: {said}"
        ) from None
    place = None if output is None else mode.known.get(id(output))
    if place is None or not mode.record.calls[place].of_input:
        raise refused(
            type(module).__name__,
            "its output does not depend on x by calls of PyTorch's functions; functions of "
            "autograd of one's own, and values that pass through NumPy, are not seen",
        )
    mode.record.output = place
    return mode.record


def _output(value: Any, mode: Recorder) -> Tensor | None:
    """Return the logits of a module's outputs, or the only one that depends on the input."""
    main = output_of(value)
    known = {id(t): mode.known.get(id(t)) for t in tensors_in(value) if t.is_floating_point()}
    read = [i for i, at in known.items() if at is not None and mode.record.calls[at].of_input]
    named = value.get("logits") if isinstance(value, Mapping) else getattr(value, "logits", None)
    if named is not main and len(read) > 1:
        raise InvalidInput(
            f"x: the module returns {len(read)} tensors that depend on x, and names none of them "
            "logits; read a module around it that returns one of them."
        )
    return main


class Recorder(TorchFunctionMode):
    """A mode that records every call on tensors that depend on the input or on parameters."""

    def __init__(self, module: nn.Module, x: Tensor):
        super().__init__()
        self.record, self.stack = Record(), [""]
        self.known: dict[int, int] = {}
        self._turned: dict[int, tuple[Param, Tensor]] = {}  # matrices of parameters, transposed
        self._parameters = {id(p): name for name, p in module.named_parameters()}
        self._overwritten: dict[int, str] = {}
        self._alive: list[Tensor] = []  # the result of each call
        self._add("input", (), {}, x, True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and record it."""
        kwargs = kwargs or {}
        full = _full_name(func)
        name = _plain(full)
        given, named = self._noted(args, name), self._noted(kwargs, name)
        leaves = list(leaves_of((given, named)))  # calls and parameters
        if not leaves:
            return func(*args, **kwargs)
        if name in TURNS and isinstance(first := given[0], Param) and args[0].ndim == 2:
            out = func(*args, **kwargs)
            turned = (1, 0) if first.axes is None else None
            self._turned[id(out)] = first._replace(axes=turned), out
            return out
        of_input = self.record.of_input(leaves)
        if of_input and full in LEAVES:
            raise self._unreadable(
                name,
                "it takes numbers out of a tensor, on which the forward pass may depend; write it "
                "with functions of tensors",
            )
        before = [(tensor, tensor._version) for tensor in tensors_in((args, kwargs))]
        out = self.run(func, args, kwargs, name, given, named)
        changed = [tensor for tensor, version in before if tensor._version != version]
        for op, tensor in self._made(out, changed, name):
            self._add(op, given, named, tensor, of_input)
        return out

    def _unreadable(self, name: str, why: str) -> NoRule:
        return refused(f"{self.stack[-1] or 'forward'} ({name})", why)

    def run(self, func: Any, args: Any, kwargs: Any, name: str, given: Any, named: Any) -> Any:
        """Run a call on tensors that depend on the input or on parameters.

        ``name``: the function's name; ``given``, ``named``: the arguments with references in the
        place of tensors.
        """
        return func(*args, **kwargs)

    def result(self, ref: Ref) -> Tensor:
        """Return the tensor that an argument refers to."""
        return self._alive[ref.place]

    def _made(self, out: Any, changed: list[Tensor], name: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors that a call changed or returns, with its name or that of a part."""
        for tensor in changed:
            self._change(tensor, name)
            if tensor is not out:
                yield name, tensor
        if isinstance(out, Tensor):
            yield name, out
        elif isinstance(out, (tuple, list)) and not isinstance(out, torch.Size):
            for n, part in enumerate(out):
                if isinstance(part, Tensor):
                    yield f"{name}[{n}]", part

    def _noted(self, value: Any, name: str) -> Any:
        """Return arguments with references in the place of tensors; lists are copied."""
        if isinstance(value, Tensor):
            if id(value) in self._overwritten:
                raise self._unreadable(
                    name,
                    f"it reads a view of a tensor that {self._overwritten[id(value)]} changed in "
                    "place; use the function that is not in place",
                )
            if id(value) in self.known:
                return Ref(self.known[id(value)])
            if id(value) in self._parameters:
                return Param(self._parameters[id(value)])
            return self._turned.get(id(value), (value,))[0]
        if isinstance(value, Mapping):
            return {key: self._noted(item, name) for key, item in value.items()}
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            return tuple(self._noted(item, name) for item in value)
        return value

    def _change(self, tensor: Tensor, name: str) -> None:
        """Mark other tensors in the memory of one that is changed in place."""
        memory = tensor.untyped_storage()._cdata
        for other in tensors_in(self._alive):
            if other is not tensor and other.untyped_storage()._cdata == memory:
                self._overwritten[id(other)] = name

    def _add(self, op: str, args: Any, kwargs: Any, out: Tensor, of_input: bool) -> None:
        shape, module = tuple(out.shape), self.stack[-1]
        call = Call(len(self.record.calls), op, args, kwargs, shape, module, of_input)
        self.record.calls.append(call)
        self.known[id(out)] = call.index
        self._overwritten.pop(id(out), None)
        self._alive.append(out)  # a tensor that is deleted could lend its id to another one


def _full_name(func: Any) -> str:
    """Return the name of a function, or of the attribute that it reads."""
    parts = (resolve_name(func) or getattr(func, "__name__", str(func))).split(".")
    return parts[-2] if parts[-1] == "__get__" and len(parts) > 1 else parts[-1]


def _plain(name: str) -> str:
    """Return a name without the underscores of operators and of in-place variants."""
    name = name.strip("_")
    return SYNONYMS.get(name, name)
