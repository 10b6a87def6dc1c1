"""Verification of a reading: the forward pass is repeated with some weights multiplied.

After each tensor that is checked, the pass continues with the value of the first run, so that one
run checks all tensors; weights that multiply anything else as well change the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from largen.errors import InvalidInput
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.recording import (
    Record,
    Recorder,
    forget,
    output_of,
    tensors_in,
    watching,
)

CLOSE = 2e-3  # tolerance in single precision, with reductions of some thousand terms


@dataclass(eq=False)
class Specimen:
    """A model with random weights, its record, and its inputs."""

    model: nn.Module
    record: Record
    args: tuple
    kwargs: Mapping[str, Any]


@dataclass(eq=False)
class Run:
    """Inputs and results of some operations in a run, and the model's output."""

    inputs: dict[int, list[Tensor]]
    results: dict[int, Tensor]
    output: Tensor


# A weight's name → its factor, or the factors of its entries.
Multiplied = Mapping[str, float | Tensor]


def run_again(
    specimen: Specimen,
    places: Sequence[int],  # indices of the operations whose inputs and results are kept
    multiplied: Multiplied,  # names of weights → their factors in this run
    # Results that replace those of the operations at these indices.
    results: Mapping[int, Tensor] | None = None,
) -> Run:
    """Run a model with some weights multiplied."""
    forget(specimen.model)
    watch = _Replay(specimen, set(places), results or {})
    running = watching(watch, specimen.model, watch.enter, watch.leave)
    with fixed_seed(0), _multiply_weights(specimen.model, multiplied), running:
        output = output_of(specimen.model(*specimen.args, **specimen.kwargs))
    assert output is not None
    if not set(places) <= set(watch.inputs):
        raise _changes()
    return Run(watch.inputs, watch.results, output.clone())


def same(found: Tensor, wanted: Tensor, factor: float = 1.0) -> bool:
    """Whether a tensor equals another times a factor."""
    scale = wanted.abs().max() * abs(factor)
    finite = torch.isfinite(wanted)
    if found.shape != wanted.shape or not bool((torch.isfinite(found) == finite).all()):
        return False
    difference = (found - factor * wanted)[finite].abs().max() if bool(finite.any()) else scale * 0
    return bool(difference <= CLOSE * scale)


def randomize(model: nn.Module) -> nn.Module:
    """Return the model with random weights, since weights at zero would hide dependences.

    Weights of fixed size are the same at every width.
    """
    tables = {m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    with fixed_seed(1), torch.no_grad():
        for name, parameter in model.eval().named_parameters():
            if not parameter.is_floating_point():
                continue
            torch.manual_seed(crc32(name.encode()))
            if parameter.ndim > 1:
                table = parameter in tables or "emb" in name.lower()
                fan_in = parameter.shape[-1] if parameter.ndim == 3 else parameter[0].numel()
                parameter.normal_(std=1.0 if table else fan_in**-0.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@contextmanager
def _multiply_weights(model: nn.Module, factors: Multiplied) -> Iterator[None]:
    weights = dict(model.named_parameters())
    before = {name: weights[name].detach().clone() for name in factors}
    with torch.no_grad():
        for name, factor in factors.items():
            weights[name].mul_(factor)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in before.items():
                weights[name].copy_(value)


class _Replay(Recorder):
    def __init__(self, specimen: Specimen, places: set[int], instead: Mapping[int, Tensor]):
        super().__init__(specimen.model, (specimen.args, specimen.kwargs))
        self.places, self.instead = places, instead
        self.inputs: dict[int, list[Tensor]] = {}
        self.results: dict[int, Tensor] = {}

    def before(self, index: int, inputs: list[Tensor]) -> None:
        """Keep copies of the inputs, which the operation may overwrite."""
        if index in self.places:
            self.inputs[index] = [t.clone() for t in inputs]

    def after(self, index: int, output: Any) -> None:
        """Keep the result, or replace it."""
        if index in self.places:
            first = next(tensors_in(output))
            if index in self.instead:
                if first.shape != self.instead[index].shape:
                    raise _changes()
                first.copy_(self.instead[index])
            else:
                self.results[index] = first.clone()


def _changes() -> InvalidInput:
    return InvalidInput(
        "make_model: the forward pass performs other operations when it is called again, so that "
        "what was found in it cannot be verified; name them in Hints(branches=[…], attention={…})."
    )
