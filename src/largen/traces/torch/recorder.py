"""A forward pass of any PyTorch module as core operations, by PyTorch's own decompositions.

PyTorch decomposes its some two thousand operators into a published set of core operations. They are
recorded where operators are dispatched, on concrete tensors, so that values may be read in
`forward`. What no weight and no input enters is computed and kept as a constant. In-place
operations become operations that return: a tensor's memory is a value, and what is written into a
part of it makes another value of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from largen.traces.torch.operations import DRAWS
from largen.traces.torch.trace import Call, DType, Trace, Var

# Operations whose results are numbers of the program, or have shapes that depend on values.
READS = frozenset({
    "_local_scalar_dense", "equal", "nonzero", "nonzero_numpy", "masked_select", "_unique",
    "_unique2", "unique_dim", "unique_consecutive", "bincount", "repeat_interleave",
})  # fmt: skip
# Operations of which a tensor gives only its shape.
SHAPED = frozenset({
    "empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones",
    "new_zeros", "ones_like", "zeros_like",
})  # fmt: skip
# Options that say nothing about values.
SILENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"})
# Operations in place that change a tensor's shape and not its memory.
ARRANGED = frozenset({
    "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_",
    "detach_", "set_", "resize_", "resize_as_",
})  # fmt: skip


@dataclass
class Memory:
    """The memory that tensors share, as a value of the trace."""

    known: bool  # whether no weight and no input enters it
    base: Var | None = None  # its value, unless it is known
    # Where entries of that value are: shape, strides and offset of a tensor.
    geometry: tuple[Any, ...] = ()
    version: int = 0  # how often it was written


class Recorder(TorchDispatchMode):
    """The mode in which a forward pass is recorded."""

    def __init__(self, named: Mapping[str, Tensor], inputs: list[Tensor]):
        super().__init__()
        self.trace = Trace()
        self.scopes: list[str] = []
        self._count = 0
        self._memories: dict[int, Memory] = {}
        self._seen: dict[int, tuple[Var, int]] = {}  # by tensor: its value, and the version
        self._alive: list[Any] = []  # identities of tensors are their addresses
        for name, tensor in named.items():
            self.trace.named[name] = self._given(tensor)
        self.trace.inputs = [self._given(tensor) for tensor in inputs]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and record the core operations that it is made of."""
        kwargs = kwargs or {}
        name = _name(func)
        if name in ("native_batch_norm", "cudnn_batch_norm", "_batch_norm_with_update"):
            return self._batch_norm(name, *args, **kwargs)
        if func._schema.is_mutable:
            return self._in_place(func, name, args, kwargs)
        with self:
            decomposition = _decompositions().get(func)
            if decomposition is not None:
                output = decomposition(*args, **kwargs)
            else:
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        self._record(func, name, args, kwargs, output)
        return output

    def finish(self, output: Any, named: Mapping[str, Tensor]) -> Trace:
        """Return the trace of a forward pass that has returned."""
        leaves, structure = _pytree.tree_flatten(output)
        places = [self._value(x) if isinstance(x, Tensor) else None for x in leaves]
        trace = self.trace
        trace.outputs = [var for var in places if var is not None]

        def filled(value: Callable[[Var], Any]) -> Any:
            pairs = zip(places, leaves, strict=True)
            made = [leaf if var is None else value(var) for var, leaf in pairs]
            return _pytree.tree_unflatten(made, structure)

        trace.output = filled
        for name, tensor in named.items():
            if self._memory(tensor).version:
                trace.written[name] = self._value(tensor)
        return trace

    def _record(self, func: Any, name: str, args: Any, kwargs: Any, output: Any) -> None:
        """Append a call of a core operation, unless nothing of the model enters it."""
        tensors = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        of_model = name in DRAWS or not all(self._memory(x).known for x in tensors)
        of_model = of_model and name not in SHAPED
        results = output if isinstance(output, (tuple, list)) else (output,)
        shared = {_address(x) for x in tensors}
        if not of_model:
            for made in results:
                if isinstance(made, Tensor) and _address(made) not in shared:
                    self._memories[_address(made)] = Memory(known=True)
                    self._alive.append(made)
            return
        if name in READS or (name == "index" and _has_masks(args)):
            self.trace.reads.append(" in ".join((name, *filter(None, self.scopes[-1:]))))
        arguments, options = self._argument(tuple(args)), self._options(func, kwargs)
        places = [self._made(x, shared) if isinstance(x, Tensor) else None for x in results]
        operation = ".".join((name, *filter(None, [_overload(func)])))
        several = isinstance(output, (tuple, list))
        self._append(operation, arguments, options, places, results, several)

    def _append(
        self, operation: str, args: Any, kwargs: Any, places: Any, results: Any, several: bool
    ) -> None:
        scope = self.scopes[-1] if self.scopes else ""
        dtypes = tuple(_dtype(x.dtype) if isinstance(x, Tensor) else "" for x in results)
        outputs = tuple(None if var is None else var.place for var in places)
        call = Call(operation, args, kwargs, outputs, dtypes, several, scope)
        self.trace.calls.append(call)

    def _in_place(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Run an operation in place as one that returns, and a copy into the memory."""
        target = args[0] if args else None
        if name in ARRANGED:
            self._seen.pop(id(target), None)
            return func(*args, **kwargs)
        if name == "copy_":
            self._write(args[0], args[1])
            return args[0]
        returning = _returning(func, name)
        if returning is None or not isinstance(target, Tensor):
            output = func(*args, **kwargs)
            self._record(func, name, args, kwargs, output)
            return output
        with self:
            made = returning(*args, **kwargs)
        self._write(target, made)
        return target

    def _write(self, target: Tensor, value: Tensor) -> None:
        """Write the entries of a tensor into another one."""
        memory = self._memory(target)
        if memory.known and self._memory(value).known:
            target.copy_(value)
            memory.version += 1
            return
        if memory.known:  # its whole memory so far is a constant
            flat = _flat(target)
            memory.known, memory.base = False, self._constant(flat)
            memory.geometry = _geometry(flat)
        var = self._value(value)
        target.copy_(value)
        if value.shape != target.shape or value.dtype != target.dtype:
            var = self._extra("to", (var, tuple(target.shape), DType(_dtype(target.dtype))), target)
        places = self._places(memory, target)
        assert memory.base is not None
        if np.array_equal(places, np.arange(_size(memory.geometry))):
            memory.base, memory.geometry = var, _geometry(target)
        else:
            memory.base = self._extra("written", (memory.base, places, var), target)
        memory.version += 1
        self._keep(target, var, memory)

    def _batch_norm(
        self, name: str, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any
    ) -> Any:
        """Return batch norm, whose operator writes running statistics without saying so."""
        training = name == "_batch_norm_with_update" or rest[0]
        *_, momentum, eps = rest
        aten = torch.ops.aten
        with self:
            if not training:
                no_training = aten._native_batch_norm_legit_no_training.default
                return no_training(x, weight, bias, mean, var, momentum, eps)
            axes = [0, *range(2, x.ndim)]
            variance, centre = torch.var_mean(x, axes, correction=0, keepdim=True)
            out = (x - centre) * torch.rsqrt(variance + eps)
            shape = [1, -1] + [1] * (x.ndim - 2)
            if weight is not None:
                out = out * weight.reshape(shape)
            if bias is not None:
                out = out + bias.reshape(shape)
            if mean is not None:
                n = x.numel() / x.shape[1]
                unbiased = variance.flatten() * (n / (n - 1))
                mean.copy_((1 - momentum) * mean + momentum * centre.flatten())
                var.copy_((1 - momentum) * var + momentum * unbiased)
            saved = centre.flatten(), torch.rsqrt(variance + eps).flatten()
        return (out, *saved, x.new_empty(0)) if name.startswith("_") else (out, *saved)

    def _given(self, tensor: Tensor) -> Var:
        """Return the value of a weight or an input."""
        var = self._new()
        memory = Memory(False, var, _geometry(tensor))
        self._memories.setdefault(_address(tensor), memory)
        self._keep(tensor, var, self._memories[_address(tensor)])
        return var

    def _made(self, tensor: Tensor, shared: set[int]) -> Var:
        """Return the value of a result, which may be a view of an argument."""
        var = self._new()
        if _address(tensor) not in shared:
            self._memories[_address(tensor)] = Memory(False, var, _geometry(tensor))
        self._keep(tensor, var, self._memory(tensor))
        return var

    def _value(self, tensor: Tensor) -> Var:
        """Return the present value of a tensor."""
        memory = self._memory(tensor)
        var, version = self._seen.get(id(tensor), (None, 0))
        if var is not None and version == memory.version:
            return var
        if memory.known:
            var = self._constant(tensor)
        elif memory.geometry == _geometry(tensor):
            var = memory.base
        else:
            places = self._places(memory, tensor)
            var = self._extra("read", (memory.base, places), tensor)
        assert var is not None
        self._keep(tensor, var, memory)
        return var

    def _memory(self, tensor: Tensor) -> Memory:
        """Return the memory of a tensor, a constant if it was not seen before."""
        address = _address(tensor)
        if address not in self._memories:
            self._memories[address] = Memory(known=True)
            self._alive.append(tensor)
        return self._memories[address]

    def _places(self, memory: Memory, tensor: Tensor) -> np.ndarray:
        """Return the places of a tensor's entries among those of its memory's value."""
        flat = _flat(tensor)
        numbers = torch.full(flat.shape, -1, dtype=torch.int64)
        shape, strides, offset = memory.geometry
        numbers.as_strided(shape, strides, offset).copy_(
            torch.arange(_size(memory.geometry)).reshape(shape)
        )
        found = numbers.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return found.numpy().copy()

    def _constant(self, tensor: Tensor) -> Var:
        var = self._new()
        self.trace.constants[var.place] = _array(tensor)
        return var

    def _extra(self, operation: str, args: Any, tensor: Tensor) -> Var:
        """Append an operation on memory, and return its result."""
        var = self._new()
        self._append(operation, args, {}, [var], [tensor], False)
        return var

    def _new(self) -> Var:
        self._count += 1
        return Var(self._count - 1)

    def _keep(self, tensor: Tensor, var: Var, memory: Memory) -> None:
        self._seen[id(tensor)] = var, memory.version
        self._alive.append(tensor)

    def _argument(self, argument: Any) -> Any:
        """Return an argument with values of the trace in the place of tensors."""
        match argument:
            case Tensor():
                return self._value(argument)
            case torch.dtype():
                return DType(_dtype(argument))
            case list() | tuple():
                return type(argument)([self._argument(each) for each in argument])
        return argument

    def _options(self, func: Any, kwargs: Any) -> dict[str, Any]:
        return {n: self._argument(x) for n, x in kwargs.items() if n not in SILENT}


@cache
def _decompositions() -> Any:
    from torch._decomp import core_aten_decompositions

    return core_aten_decompositions()


@cache
def _name(func: Any) -> str:
    return func._schema.name.rpartition("::")[2]


@cache
def _overload(func: Any) -> str:
    return func._schema.overload_name


@cache
def _returning(func: Any, name: str) -> Any:
    """Return the operator that returns what an operator writes into its first argument."""
    if not name.endswith("_") or name.startswith("__"):
        return None
    if name == "bernoulli_" and _overload(func) == "float":
        return lambda x, p=0.5, **options: torch.ops.aten.bernoulli.p(x, p)
    packet = getattr(torch.ops.aten, {"normal_": "normal_functional"}.get(name, name[:-1]), None)
    return None if packet is None else getattr(packet, _overload(func) or "default", None)


def _has_masks(args: Any) -> bool:
    return any(isinstance(x, Tensor) and x.dtype is torch.bool for x in args[1])


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _size(geometry: tuple[Any, ...]) -> int:
    return int(np.prod(geometry[0]))


def _flat(tensor: Tensor) -> Tensor:
    """Return the whole memory of a tensor."""
    numbers = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((numbers,), (1,), 0)


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _array(tensor: Tensor) -> np.ndarray:
    """Return a copy of a tensor's entries, which JAX keeps in 32 bits unless told otherwise."""
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor.detach().cpu().resolve_conj().resolve_neg().numpy().copy()
