"""Traces of a module for each shape of its inputs, and modules by the shapes of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from largen.errors import InvalidInput, LargenError
from largen.reading.laws import Parameter
from largen.reading.refusals import refused
from largen.reading.torch.construction import construct, of_instance
from largen.reading.torch.precision import doubles
from largen.text import shown
from largen.traces.torch.recording import record
from largen.traces.torch.trace import Trace
from largen.transfer.torch.process import ALONE, fixed_seed

Shapes = frozenset[tuple[str, tuple[int, ...]]]


class Traced:
    """The modules of a family, and their traces.

    ``make``: a function from a width to a module, or a module; ``train``: the mode of modules.
    """

    def __init__(self, make: Any, train: bool):
        self.make, self.train = make, train
        self._built: dict[int | None, tuple[nn.Module, dict[str, Parameter]]] = {}
        self._modules: dict[Shapes, nn.Module] = {}
        self._ambiguous: set[Shapes] = set()  # of modules with different buffers
        self._traces: dict[Any, Trace] = {}

    @property
    def alone(self) -> bool:
        """Whether it is one module, without a width."""
        return isinstance(self.make, nn.Module)

    def laws(self, width: int | None) -> dict[str, Parameter]:
        """Return the laws of the parameters of a width."""
        if width not in self._built:
            if self.alone:
                self._built[width] = self.make, of_instance(self.make)
            else:
                self._built[width] = construct(lambda: self._made(width))
            self.keep(self._built[width][0])
        return self._built[width][1]

    def _made(self, width: int | None) -> nn.Module:
        try:
            module = self.make(width)
        except LargenError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            raise InvalidInput(f"make: make({width}) raised {said}") from error
        if not isinstance(module, nn.Module):
            raise InvalidInput(
                f"make: wanted a torch.nn.Module from make({width}), got {shown(module)}."
            )
        return module

    def keep(self, module: nn.Module) -> None:
        """Let parameters of a module's shapes be parameters of this module, as it is now."""
        shapes = _shapes(dict(module.named_parameters()))
        known = self._modules.setdefault(shapes, module)
        if known is module:
            self._modules[shapes] = deepcopy(module)
            return
        pairs = zip(known.buffers(), module.buffers(), strict=True)
        if not all(torch.equal(one, two) for one, two in pairs):
            self._ambiguous.add(shapes)

    def check_state(self, params: Mapping[str, Any]) -> None:
        """Raise if modules with such parameters have different buffers."""
        if _shapes(params) in self._ambiguous:
            raise InvalidInput(
                "state: wanted the buffers that of(module) returned: modules with parameters of "
                "these shapes have different ones, such as running statistics."
            )

    def module(self, params: Mapping[str, Any]) -> nn.Module:
        """Return the module of which some arrays are the parameters."""
        module = self._modules.get(_shapes(params))
        if module is None:
            raise InvalidInput(
                "params: wanted the parameters that init(key, width) or of(module) returned, by "
                f"name, got {len(params)} arrays with other names or shapes: {_some(params)}."
            )
        return module

    def trace(self, module: nn.Module, x: Any, double: bool) -> Trace:
        """Return the trace of a module for inputs of some shapes, which may be traced by JAX."""
        leaves, form = jax.tree.flatten(x)
        kinds = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        key = id(module), kinds, form, double
        if key not in self._traces:
            tensors = [_example(leaf, double) for leaf in leaves]
            self._traces[key] = self._recorded(module, form.unflatten(tensors), double)
        return self._traces[key]

    def _recorded(self, module: nn.Module, x: Any, double: bool) -> Trace:
        args, kwargs = called_with(x)
        with ALONE, fixed_seed(0):
            copy = deepcopy(module).train(self.train).cpu()
            try:
                if double:
                    with doubles():
                        trace, _ = record(copy.double(), *args, **kwargs)
                else:
                    trace, _ = record(copy, *args, **kwargs)
            except LargenError:
                raise
            except Exception as error:
                said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
                shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(x)]
                raise InvalidInput(f"x: the module fails on inputs {shapes}: {said}") from error
        if trace.reads:
            raise refused(
                trace.reads[0],
                "the forward pass reads values of its tensors, and a function in JAX does the same "
                "whatever they are; take the choice by torch.where, or by products with 0 and 1",
            )
        lacking = trace.without_form()
        if lacking:
            raise refused(lacking[0], "this operation of PyTorch has no form in JAX")
        return trace


def called_with(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a module: one array, several in a tuple, or by name in a dict."""
    match x:
        case tuple():
            return x, {}
        case dict():
            return (), x
    return (x,), {}


def arrays_of(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a module, and its buffers, as arrays by name."""
    found = module.named_parameters(), module.named_buffers()
    weights, buffers = ({name: _array(p) for name, p in named} for named in found)
    return weights, buffers


def is_module(value: Any) -> bool:
    """Whether something is a module of PyTorch."""
    return isinstance(value, nn.Module)


def looks_up(module: nn.Module) -> bool:
    """Whether a module holds an embedding."""
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def _array(tensor: Tensor) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
    return jnp.asarray(tensor.numpy())


def _example(leaf: Any, double: bool) -> Tensor:
    """Return a tensor of an array's shape, with other entries."""
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return torch.randn(leaf.shape, dtype=torch.float64 if double else torch.float32)
    dtype = torch.bool if leaf.dtype == np.bool_ else torch.int64
    return torch.zeros(leaf.shape, dtype=dtype)


def _shapes(named: Mapping[str, Any]) -> Shapes:
    return frozenset((name, tuple(np.shape(p))) for name, p in named.items())


def _some(params: Mapping[str, Any]) -> str:
    first = list(params.items())[:3]
    return ", ".join(f"{name} {tuple(np.shape(p))}" for name, p in first)
