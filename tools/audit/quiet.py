"""Models without dropout, and their loss on inputs that are generated for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from largen.errors import InvalidInput
from largen.text import shown
from largen.transfer.torch.examples import record_call
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.recording import forget, output_of
from largen.transfer.torch.survey import real

SAMPLES = 8


class Quiet:
    """A builder of models without dropout, and their loss on inputs that they accept."""

    def __init__(self, make_model: Callable[..., nn.Module], example: Any):
        self.make_model, self.example = make_model, example
        self.sizes: WeakKeyDictionary[nn.Module, Mapping[str, Any]] = WeakKeyDictionary()
        self.inputs: dict[tuple, tuple] = {}
        self.targets: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()

    def __call__(self, **sizes: Any) -> nn.Module:
        """Build a model in evaluation mode, except for batch normalisation."""
        model = self.make_model(**sizes)
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"make_model: wanted a torch.nn.Module, got {shown(model)}.")
        self.sizes[model] = sizes
        model.eval()
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train()
        return model

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return half the mean squared distance to targets f₀ + y, with f₀ from the first call."""
        args, kwargs = self.inputs_at(self.sizes[model])
        forget(model)
        output = output_of(model(*args, **kwargs))
        if output is None:
            raise InvalidInput("make_model: the model returns no tensor of real numbers.")
        if model not in self.targets:
            self.targets[model] = output.detach() + random_targets(output.shape)
        return (output - self.targets[model]).square().mean() / 2

    def inputs_at(self, sizes: Mapping[str, Any]) -> tuple:
        """Return inputs that models of these sizes accept, found by calling one such model."""
        key = tuple(sizes.items())
        if key not in self.inputs:
            _, inputs = record_call(real(self.make_model, sizes, 0).eval(), self.example, sizes)
            self.inputs[key] = inputs if self.example is not None else _more(inputs)
        return self.inputs[key]


def _more(inputs: tuple) -> tuple:
    """Return inputs of the same kinds with more samples, for the statistics of a batch."""
    args, kwargs = inputs
    with fixed_seed(11):
        return tuple(map(_of_samples, args)), {k: _of_samples(v) for k, v in kwargs.items()}


def _of_samples(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    shape = (SAMPLES, *value.shape[1:])
    if value.is_floating_point():
        return torch.randn(shape, dtype=value.dtype)
    if bool((value == value.flatten()[0]).all()):  # masks, and sizes of images
        return value.flatten()[0].expand(shape).clone()
    return torch.randint(0, int(value.max()) + 1, shape, dtype=value.dtype)


def random_targets(shape: Sequence[int]) -> Tensor:
    """Return y, the same for equal shapes."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(7))
