"""Kernels of modules at finite width, drawn by their own construction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from largen.errors import InvalidInput, LargenError
from largen.interrupts import check
from largen.reading.laws import Parameter
from largen.reading.nodes import Map, law_of
from largen.reading.torch.family import Modules
from largen.reading.torch.precision import doubles
from largen.transfer.torch.recording import output_of
from largen.transfer.torch.tangents import ntk_of_module

OUTPUTS = 256  # of a read-out that is drawn wider, so that K is an average over many outputs


def kernels_of(
    family: Modules, last: Map, x: Any, width: int | None, seeds: range
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return what :meth:`largen.reading.family.Family.kernels` says of modules."""
    parameters = family.at(width)
    rates = {name: p.law.variance for name, p in parameters.items() if p.law is not None}
    nngp, ntk = [], []
    squares: dict[str, list[np.ndarray]] = {}
    before: list[nn.Parameter] = []
    for seed in seeds:
        check()
        module = family.module(width, seed).double().eval().requires_grad_(True)
        module.register_forward_hook(lambda module, given, output: output_of(output))
        before, drawn = list(module.parameters()), before
        if drawn and all(map(torch.equal, drawn, before)):
            raise InvalidInput(
                "make: modules of all seeds are equal; wanted a function that sets no seed itself, "
                "as torch.manual_seed does."
            )
        inputs = family.as_input("x", x, module)
        with doubles(), _squares(module, len(inputs), squares):
            nngp.append(_covariance(_outputs(module, last, parameters, inputs, seed)))
        trained = {name: rates.get(name, 0.0) for name, _ in module.named_parameters()}
        try:
            with doubles():
                if _couples(module, inputs):
                    found = _tangents_of_batch(module, inputs, trained)
                else:
                    found = np.asarray(ntk_of_module(module, inputs, rates=trained))
        except RuntimeError as error:
            if isinstance(error, LargenError):
                raise
            said = str(error).partition("\n")[0][:200]
            raise InvalidInput(f"net: the model has no gradients of its outputs: {said}") from None
        ntk.append(found if found.ndim == 2 else np.einsum("abkk->ab", found) / found.shape[-1])
    complete = {path: np.stack(s) for path, s in squares.items() if len(s) == len(seeds)}
    return np.stack(nngp), np.stack(ntk), complete


def _couples(module: nn.Module, x: Tensor) -> bool:
    """Whether outputs depend on the other samples, as by statistics of the batch."""
    with torch.no_grad():
        try:
            alone = module(x[:1])
        except ValueError:  # PyTorch refuses a variance of one sample
            return True
        return not torch.allclose(alone[0], module(x)[0], rtol=1e-6, atol=1e-9)


def _tangents_of_batch(module: nn.Module, x: Tensor, rates: dict[str, float]) -> np.ndarray:
    """Return Θ of outputs that depend on all samples, a mean over outputs."""
    trained = [(p, rates[name] ** 0.5) for name, p in module.named_parameters() if rates[name]]
    out, rows = module(x).reshape(len(x), -1), []
    for value in out.flatten():
        found = torch.autograd.grad(
            value, [p for p, _ in trained], retain_graph=True, materialize_grads=True
        )
        rows.append(torch.cat([c * g.flatten() for g, (_, c) in zip(found, trained, strict=True)]))
    jacobian = torch.stack(rows).reshape(*out.shape, -1)
    return torch.einsum("aki,bki->ab", jacobian, jacobian).numpy() / out.shape[1]


@contextmanager
def _squares(module: nn.Module, samples: int, found: dict[str, list[np.ndarray]]) -> Iterator[None]:
    """Append the mean squares of the outputs of all parts without parts."""

    def note(path: str, out: Any) -> None:
        if isinstance(out, Tensor) and out.ndim > 1 and len(out) == samples:
            mean = out.detach().double().reshape(samples, -1).pow(2).mean(1)
            found.setdefault(path, []).append(mean.numpy())

    leaves = [(path, part) for path, part in module.named_modules() if not any(part.children())]
    handles = [
        part.register_forward_hook(lambda m, a, out, path=path: note(path, out))
        for path, part in leaves
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _outputs(
    module: nn.Module, last: Map, parameters: dict[str, Parameter], x: Tensor, seed: int
) -> Tensor:
    """Return the outputs with a read-out of more outputs, or the module's if it does not fit."""
    law = law_of(last.weight, parameters)
    shape = list(parameters[last.weight].shape)
    shape[last.fan_out] = OUTPUTS
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        wider = {last.weight: _normal(shape, law.variance, generator)}
        if last.bias is not None:
            bias = law_of(last.bias, parameters)
            wider[last.bias] = bias.mean + _normal([OUTPUTS], bias.variance, generator)
        try:
            found = functional_call(module, wider, (x,))
        except RuntimeError:  # its outputs are reshaped to a fixed number of them
            found = module(x)
    return found


def _normal(shape: list[int], variance: float, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64) * variance**0.5


def _covariance(outputs: Tensor) -> np.ndarray:
    if not isinstance(outputs, Tensor) or outputs.ndim > 2:
        raise InvalidInput(
            "net: wanted a module whose output is (sample,) or (sample, output), got the shape "
            f"{tuple(getattr(outputs, 'shape', ()))}."
        )
    rows = outputs.reshape(len(outputs), -1).numpy()
    return rows @ rows.T / rows.shape[1]
