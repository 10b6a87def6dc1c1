"""One forward pass of a model, recorded below Python: every operation on tensors, as a graph.

What a forward pass is written in (decorators, keyword arguments, functions of other libraries)
does not matter here: operations are seen where PyTorch dispatches them to kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from largen.transfer.torch.process import ALONE

# They take shapes and types from their arguments, no values.
FACTORIES = frozenset({
    "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "empty_like",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
})  # fmt: skip
LOOK_UPS = frozenset({"index", "index_select", "gather", "take_along_dim"})


@dataclass(eq=False)
class Node:
    """One tensor of a forward pass, and how it was made.

    Attributes
    ----------
    index
        Its place in the record.
    op
        The operation's name, without what tells overloads and writing in place.
    inputs
        Places of the tensors that it was made from, in the order of the arguments.
    numbers
        Python's numbers among the arguments.
    value
        The tensor.
    module
        Path of the innermost module that was running.
    of_weights, of_inputs
        Whether it depends on a parameter, on the inputs.
    parameter
        The name of a parameter.
    number
        The value of a constant that is one number.
    scale
        The argument of this name.
    """

    index: int
    op: str
    inputs: tuple[int, ...]
    numbers: tuple[float, ...]
    value: Tensor
    module: str
    of_weights: bool
    of_inputs: bool
    parameter: str | None = None
    number: float | None = None
    scale: float | None = None

    @property
    def is_data(self) -> bool:
        """Whether it is a signal: computed with weights from the inputs, or an input."""
        return self.of_inputs and self.value.is_floating_point()

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter or made from parameters alone."""
        return self.of_weights and not self.of_inputs

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(self.value.shape)


@dataclass(frozen=True)
class Call:
    """One call of a module: the tensors that went in and came out, by their places."""

    path: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(eq=False)
class Record:
    """A forward pass.

    Attributes
    ----------
    nodes
        In the order in which they were made; those of parameters, inputs and constants included.
    calls
        In the order in which they ended.
    output
        What the model returned, or its logits if it says which they are.
    ancestors
        For each node a set of bits: the nodes that it was computed from.
    """

    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    output: int | None = None
    ancestors: list[int] = field(default_factory=list)

    def before(self, early: int, late: int) -> bool:
        """Whether one node was computed from another."""
        return bool(self.ancestors[late] >> early & 1)

    def parameters(self, index: int) -> tuple[str, ...]:
        """Return the names of the parameters that a node was made from."""
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
    """Return a model's main output: its logits if they are named, else the first real tensor."""
    named = value.get("logits") if isinstance(value, Mapping) else getattr(value, "logits", None)
    if isinstance(named, Tensor):
        return named
    return next((t for t in tensors_in(value) if t.is_floating_point()), None)


def record(model: nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Record:
    """Call a model and record what it does.

    Parameters
    ----------
    model
        In evaluation mode, if dropout is not to be part of the record.
    args, kwargs
        What it is called with.
    """
    watch = Recorder(model, (args, kwargs))
    with watching(watch, model, watch.enter, watch.leave):
        output = output_of(model(*args, **kwargs))
    found = watch.record
    found.output = None if output is None else watch.place(output)
    return found


@contextmanager
def watching(
    mode: TorchDispatchMode,
    model: nn.Module,
    enter: Callable[[str], None] | None = None,
    leave: Callable[[str, Any, Any], None] | None = None,
) -> Iterator[None]:
    """Run a model's own code under a mode, without gradients and without opaque fast paths.

    Parameters
    ----------
    mode
        Sees every operation.
    model
        The model.
    enter, leave
        Called with a module's path before and after each of its calls, and in the end with what
        went in and came out.
    """
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
    """Return an operation's plain name, and whether it writes into its first argument."""
    name = func._schema.name.rpartition("::")[2]
    in_place = name.endswith("_") and not name.endswith("__")
    return (name[:-1] if in_place else name), in_place


class Recorder(TorchDispatchMode):
    """Writes down every operation; with hooks on modules, which of them runs."""

    def __init__(self, model: nn.Module, inputs: Any):
        super().__init__()
        self.record = Record()
        self.stack: list[str] = [""]
        self._places: dict[int, int] = {}
        self._storages: dict[int, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            self._add(parameter, "parameter", (), (), True, False).parameter = name
        for tensor in tensors_in(inputs):
            if id(tensor) not in self._places:
                self._add(tensor, "input", (), (), False, True)

    def before(self, index: int, inputs: list[Tensor]) -> None:
        """An operation is about to run, whose result will have this place."""

    def after(self, index: int, output: Any) -> None:
        """An operation has run, whose result will have this place."""

    def enter(self, path: str) -> None:
        """A module is called."""
        self.stack.append(path)

    def leave(self, path: str, inputs: Any, output: Any) -> None:
        """A module has returned."""
        self.stack.pop()
        places = [tuple(self.place(t) for t in tensors_in(side)) for side in (inputs, output)]
        self.record.calls.append(Call(path, *places))

    def place(self, tensor: Tensor) -> int:
        """Return a tensor's place; of one that was not seen before, as a constant."""
        found = self._places.get(id(tensor))
        if found is None:
            node = self._add(tensor, "constant", (), (), False, False)
            found = node.index
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and write it down."""
        kwargs = kwargs or {}
        op, in_place = name_of(func)
        own = [] if op in FACTORIES else list(tensors_in((args, kwargs)))
        inputs = tuple(self.place(t) for t in own)
        index = len(self.record.nodes)
        self.before(index, own)
        output = func(*args, **kwargs)
        self.after(index, output)
        numbers = tuple(
            float(value)
            for value in (*args, *kwargs.values())
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        )
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
            # A row of a table is a signal if inputs choose it, and a weight if a router does.
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
        """What shares memory with a tensor that was written to depends on what was written."""
        if tensor.layout is torch.strided and tensor.device.type != "meta":
            for other in self._storages[tensor.untyped_storage()._cdata]:
                self._places[id(other)] = node.index


class _Same:
    """Membership by identity."""

    def __init__(self, tensors: list[Tensor]):
        self._ids = {id(t) for t in tensors}

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self._ids
