"""Populations of modules, whose parameters take no memory."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from largen.errors import InvalidInput
from largen.reading.engine.constants import Constants
from largen.reading.engine.sampler import Kernels, Outputs, Sampler
from largen.reading.refusals import refused
from largen.reading.torch.population import recurrent  # noqa: F401  # registers its rules
from largen.reading.torch.population.maps import RULES
from largen.reading.torch.population.native import ELEMENTWISE
from largen.reading.torch.population.run import Population
from largen.reading.torch.precision import doubles
from largen.reading.torch.recording import forget, run_under
from largen.transfer.torch.process import ALONE, fixed_seed

F64 = torch.float64


class Modules(Sampler):
    """Populations of a family of modules."""

    elementwise = ELEMENTWISE

    def __init__(self, family: Any, widths: tuple[int, int]):
        super().__init__(family, widths)
        self._family = family
        self._modules: dict[int, nn.Module] = {}

    def _population(
        self, constants: Constants, x: Any, seed: int, rates: Any
    ) -> tuple[Population, Kernels]:
        """Return a population behind a forward pass, and the kernels of its outputs."""
        module = self._module(constants.neurons)
        inputs = self._family.as_input("x", x, module)
        forget(module)
        with ALONE, fixed_seed(0), doubles(), torch.no_grad(), forward_ad.dual_level():
            run = Population(module, inputs, constants, RULES, seed, rates)
            run_under(run, module, inputs)
            return run, Outputs(run).kernels()

    def _module(self, neurons: int) -> nn.Module:
        """Return the module of a population, whose parameters take no memory."""
        if neurons not in self._modules:
            family = self._family
            try:
                module = deepcopy(family.shapes(neurons))
            except (RuntimeError, NotImplementedError, InvalidInput):
                module = family.module(neurons, 0)  # construction that reads entries
            with ALONE:
                _fill(module, family.module(self._widths.widths[0], 0), neurons)
            self._modules[neurons] = module.eval()
        return self._modules[neurons]


def _fill(module: nn.Module, small: nn.Module, neurons: int) -> None:
    """Give a module parameters without memory, and the buffers of a small one."""
    parts = dict(small.named_modules())
    empty = {  # a parameter of two modules stays one
        p: nn.Parameter(torch.zeros((), dtype=F64).expand(p.shape), requires_grad=False)
        for p in module.parameters()
    }
    for path, part in module.named_modules():
        if (like := parts.get(path)) is None:
            raise refused(path, "the module has other operations at other widths")
        for name, p in part._parameters.items():
            if p is not None:
                part._parameters[name] = empty[p]
        for table, known in ((part._buffers, like._buffers), (vars(part), vars(like))):
            for name, entries in list(table.items()):
                if isinstance(entries, Tensor):
                    where = f"{path}.{name}".strip(".")
                    table[name] = _entries(where, entries, known.get(name), neurons)


def _entries(name: str, entries: Tensor, small: Any, neurons: int) -> Tensor:
    """Return the entries of a buffer: those of a smaller module, if they are the same for all."""
    if entries.device.type != "meta":
        found = entries.detach()
    elif not isinstance(small, Tensor) or small.device.type == "meta":
        raise refused(name, "its entries are not there")
    elif small.shape == entries.shape:
        found = small.detach().clone()
    elif small.numel() and bool((small == small.flatten()[0]).all()):
        found = torch.full(entries.shape, small.flatten()[0].item(), dtype=small.dtype)
    else:
        raise refused(name, f"its entries at a width of {neurons} are not known")
    return found.to(F64) if found.is_floating_point() else found
