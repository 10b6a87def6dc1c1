"""One forward pass of a model as a graph of operations, recorded where PyTorch dispatches them.

The record does not depend on how the forward pass is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from largen.transfer.torch.process import ALONE

# Operations that take shapes and types from their arguments, but no values.
FACTORIES = frozenset({
    "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "empty_like",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
})  # fmt: skip
LOOK_UPS = frozenset({"index", "index_select", "gather", "take_along_dim"})


@dataclass(eq=False)
class Node:
    """One tensor of a forward pass, and the operation that computed it."""

    index: int  # the node's index in the record, called its place
    op: str  # the operation's name, without the suffixes of overloads and of in-place variants
    # Indices of the nodes from which it was computed, in the order of the arguments.
    inputs: tuple[int, ...]
    numbers: tuple[float, ...]  # Python numbers among the arguments
    value: Tensor
    module: str  # path of the innermost module that ran the operation
    # of_weights, of_inputs: whether the tensor depends on a parameter, and whether on the inputs.
    of_weights: bool
    of_inputs: bool
    parameter: str | None = None  # the name of the parameter, if the node is one
    number: float | None = None  # the value, if the node is a constant with a single entry
    scale: float | None = None  # the operation's argument scale

    @property
    def is_data(self) -> bool:
        """Whether the tensor is a signal: an input, or computed from the inputs with weights."""
        return self.of_inputs and self.value.is_floating_point()

    @property
    def is_weight(self) -> bool:
        """Whether the tensor is a parameter or computed from parameters alone."""
        return self.of_weights and not self.of_inputs

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.value.shape)


@dataclass(frozen=True)
class Call:
    """One call of a module: indices of the nodes of its inputs and outputs."""

    path: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(eq=False)
class Record:
    """A recorded forward pass."""

    # The tensors in the order of their computation, including parameters, inputs and constants.
    nodes: list[Node] = field(default_factory=list)
    # The calls of modules, in the order of their ends.
    calls: list[Call] = field(default_factory=list)
    # Index of the model's output, or of its logits if the model names them.
    output: int | None = None
    # Index of the first signal whose gradient the forward pass takes, such as an energy.
    scalar: int | None = None
    # For each node, a bit set of the nodes from which it was computed.
    ancestors: list[int] = field(default_factory=list)

    def before(self, early: int, late: int) -> bool:
        """Whether the node ``late`` was computed from the node ``early``."""
        return bool(self.ancestors[late] >> early & 1)

    def signals(self, node: Node) -> list[int]:
        """Return the indices of the signals from which a node was computed at once, in order."""
        return [i for i in node.inputs if self.nodes[i].is_data]

    def weights(self, node: Node) -> list[int]:
        """Return the indices of the weights from which a node was computed at once, in order."""
        return [i for i in node.inputs if self.nodes[i].is_weight]

    def parameters(self, index: int) -> tuple[str, ...]:
        """Return the names of the parameters from which a node was computed."""
        own = self.nodes[index].parameter
        if own is not None:
            return (own,)
        above = self.ancestors[index]
        return tuple(
            node.parameter
            for node in self.nodes[: index + 1]
            if node.parameter is not None and above >> node.index & 1
        )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a nested structure, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for own in fields(value):
            yield from tensors_in(getattr(value, own.name, None))


def output_of(value: Any) -> Tensor | None:
    """Return a model's main output: its logits if it names them, else the first real tensor."""
    named = value.get("logits") if isinstance(value, Mapping) else getattr(value, "logits", None)
    if isinstance(named, Tensor):
        return named
    return next((t for t in tensors_in(value) if t.is_floating_point()), None)


def record(model: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Record:
    """Call a model and record its forward pass; in training mode, dropout is part of it."""
    forget(model)
    watch = Recorder(model, (args, kwargs))
    with watching(watch, model, watch.enter, watch.leave):
        output = output_of(model(*args, **kwargs))
    found = watch.record
    found.output = None if output is None else watch.place(output)
    if found.output is not None and found.scalar is not None:
        # A gradient of a network of scalars is read as the network.
        made = found.nodes[found.output]
        found.output = found.output if made.is_data and made.of_weights else found.scalar
    return found


def forget(model: nn.Module) -> None:
    """Set every module's mode again, so that values cached in evaluation mode are recomputed."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    for module, mode in modes:  # a module comes before its parts, whose modes it sets as well
        module.train(mode)


@contextmanager
def watching(
    mode: AbstractContextManager[Any],  # the mode, which receives every operation
    model: nn.Module,
    # enter, leave: functions called before and after each call of a module, with its path; leave
    # also receives the call's inputs and outputs.
    enter: Callable[[str], None] | None = None,
    leave: Callable[[str, Any, Any], None] | None = None,
) -> Iterator[None]:
    """Run a model under a mode, without gradients and without fused fast paths."""
    handles = []
    if enter is not None and leave is not None:
        for path, module in model.named_modules():
            handles += [
                module.register_forward_pre_hook(
                    lambda m, args, kwargs, path=path: enter(path), with_kwargs=True
                ),
                module.register_forward_hook(
                    lambda m, args, kwargs, output, path=path: leave(path, (args, kwargs), output),
                    with_kwargs=True,
                ),
            ]
    try:
        with ALONE:
            fast = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                with torch.no_grad(), mode:
                    yield
            finally:
                torch.backends.mha.set_fastpath_enabled(fast)
    finally:
        for handle in handles:
            handle.remove()


def name_of(func: Any) -> tuple[str, bool]:
    """Return an operation's plain name, and whether it overwrites its first argument."""
    name = func._schema.name.rpartition("::")[2]
    in_place = name.endswith("_") and not name.endswith("__")
    return (name[:-1] if in_place else name), in_place


class Recorder(TorchDispatchMode):
    """A dispatch mode that records every operation and, by hooks, the module that runs it.

    Operations of gradients that the forward pass takes are not recorded.
    """

    def __init__(self, model: nn.Module, inputs: Any):
        super().__init__()
        self.record = Record()
        self.stack: list[str] = [""]
        self._paused = False
        self._patch = patch.object(torch.autograd, "grad", self._gradient(torch.autograd.grad))
        self._places: dict[int, int] = {}
        self._storages: dict[int, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            self._add(parameter, "parameter", (), (), True, False).parameter = name
        for tensor in tensors_in(inputs):
            if id(tensor) not in self._places:
                self._add(tensor, "input", (), (), False, True)

    def __enter__(self) -> Recorder:
        """Watch operations, and gradients of signals."""
        self._patch.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Stop watching."""
        super().__exit__(*error)
        self._patch.stop()

    def _gradient(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that notes the signal whose gradient is taken, and takes it."""

        def noting(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            first = next(tensors_in(outputs), None)
            if first is not None and self.record.scalar is None:
                place = self.place(first)
                if self.record.nodes[place].is_data:
                    self.record.scalar = place
            paused, self._paused = self._paused, True
            try:
                return grad(outputs, *args, **kwargs)
            finally:
                self._paused = paused

        return noting

    def before(self, index: int, inputs: list[Tensor]) -> None:
        """Called before an operation whose result will have this index."""

    def after(self, index: int, output: Any) -> None:
        """Called after an operation whose result will have this index."""

    def enter(self, path: str) -> None:
        """Called before a module runs."""
        self.stack.append(path)

    def leave(self, path: str, inputs: Any, output: Any) -> None:
        """Called after a module has run."""
        self.stack.pop()
        places = [tuple(self.place(t) for t in tensors_in(side)) for side in (inputs, output)]
        self.record.calls.append(Call(path, *places))

    def place(self, tensor: Tensor) -> int:
        """Return the index of a tensor's node; an unknown tensor is added as a constant."""
        found = self._places.get(id(tensor))
        if found is None:
            node = self._add(tensor, "constant", (), (), False, False)
            found = node.index
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and record it."""
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        op, in_place = name_of(func)
        own = [] if op in FACTORIES else list(tensors_in((args, kwargs)))
        inputs = tuple(self.place(t) for t in own)
        index = len(self.record.nodes)
        self.before(index, own)
        output = func(*args, **kwargs)
        self.after(index, output)
        numbers = _numbers((*args, *kwargs.values()))
        if op == "_local_scalar_dense":
            return output
        bits = self._bits(op, inputs)
        changed = [args[0]] if in_place and args and isinstance(args[0], Tensor) else []
        for tensor in [*changed, *(t for t in tensors_in(output) if t not in _Same(changed))]:
            node = self._add(tensor, op, inputs, numbers, *bits)
            node.scale = kwargs.get("scale")
            if in_place:
                self._overwritten(tensor, node)
        return output

    def _bits(self, op: str, inputs: tuple[int, ...]) -> tuple[bool, bool]:
        nodes = [self.record.nodes[i] for i in inputs]
        weights = any(n.of_weights for n in nodes)
        data = any(n.of_inputs for n in nodes)
        if op in LOOK_UPS and nodes and nodes[0].is_weight:
            # A row of a table is a signal if inputs select it, and a weight if a router selects it.
            data = any(n.of_inputs and not n.of_weights for n in nodes[1:])
        return weights, data

    def _add(
        self, tensor: Tensor, op: str, inputs: tuple[int, ...], numbers: tuple[float, ...],
        of_weights: bool, of_inputs: bool,
    ) -> Node:  # fmt: skip
        index = len(self.record.nodes)
        node = Node(index, op, inputs, numbers, tensor, self.stack[-1], of_weights, of_inputs)
        if not (of_weights or of_inputs) and tensor.numel() == 1 and tensor.device.type != "meta":
            node.number = float(tensor.reshape(()).item()) if tensor.is_floating_point() else None
        above = 0
        for i in inputs:
            above |= self.record.ancestors[i] | 1 << i
        self.record.nodes.append(node)
        self.record.ancestors.append(above)
        self._places[id(tensor)] = index
        if tensor.layout is torch.strided and tensor.device.type != "meta":
            self._storages.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        return node

    def _overwritten(self, tensor: Tensor, node: Node) -> None:
        """Make tensors that share memory with an overwritten tensor depend on the new values."""
        if tensor.layout is torch.strided and tensor.device.type != "meta":
            for other in self._storages[tensor.untyped_storage()._cdata]:
                self._places[id(other)] = node.index


def _numbers(values: tuple) -> tuple[float, ...]:
    real = (v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool))
    return tuple(map(float, real))


class _Same:
    """A container whose membership test compares by identity."""

    def __init__(self, tensors: list[Tensor]):
        self._ids = {id(t) for t in tensors}

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self._ids
