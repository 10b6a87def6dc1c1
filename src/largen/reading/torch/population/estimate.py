"""Kernels of a family of modules by forward passes of populations of neurons, with error bars."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from largen.errors import InvalidInput, NoRule
from largen.interrupts import check
from largen.reading.laws import Constant
from largen.reading.nodes import Map
from largen.reading.refusals import refused
from largen.reading.torch.family import Modules, as_input
from largen.reading.torch.population.constants import Constants, Widths
from largen.reading.torch.population.fields import F64
from largen.reading.torch.population.native import ELEMENTWISE
from largen.reading.torch.population.outputs import Outputs
from largen.reading.torch.population.rules import RULES
from largen.reading.torch.population.run import Population
from largen.reading.torch.precision import doubles
from largen.reading.torch.recording import forget, run_under
from largen.runs import KernelEstimate
from largen.transfer.torch.process import ALONE, fixed_seed

FEWER = 4  # the factor by which populations are smaller that show the part of order 1/neurons
FEW = 32  # neurons of the run that shows what can be read


class Sampler:
    """Populations of a family of modules, which was read at two widths."""

    def __init__(self, family: Modules, widths: tuple[int, int]):
        self._widths = Widths(family, widths)
        self._modules: dict[int, nn.Module] = {}

    def maps(self) -> dict[str, tuple[Map, Constant, Constant]]:
        """Return the affine maps by name, with σ_w² and σ_b², after a run that has to succeed."""
        (width, _), family = self._widths.widths, self._widths.family
        run, _ = self._run(self._neurons(FEW), width, family.x, 0, None)
        self._widths.check_numbers(ELEMENTWISE)
        found = {}
        for node, (its, (of_weight, of_bias)) in run.maps.items():
            constant = self._widths.constant(its.weight, its.fan_in, of_weight)
            bias = Constant(0.0, constant.power and constant.power * 0)
            if its.bias is not None:
                bias = self._widths.constant(its.bias, (), of_bias)
            found[node] = its, constant, bias
        return found

    def no_limit(self) -> str:
        """Return why outputs that have a variance at a width have none in the limit, or nothing."""
        (width, _), x = self._widths.widths, self._widths.family.x
        size = self._neurons(FEW)
        try:
            limit, (nngp, _) = self._run(size, None, x, 0, None)
        except NoRule as error:
            return str(error).removeprefix("lg.read: ").removesuffix(".")
        if nngp.any() or not self._run(size, width, x, 0, None)[1][0].any():
            return ""
        names = limit.constants.vanished
        return (
            f"the output has no variance in the limit, where {', '.join(names)} "
            f"vanish{'es' * (len(names) == 1)}; net.kernel(x, width=n) has the constants of a width"
        )

    def kernels(
        self, x: Any, *, width: int | None, neurons: int, replicates: int, key: int,
        rates: Callable[[str], float] | None = None,
    ) -> KernelEstimate:  # fmt: skip
        """Return means over populations with standard errors, which include the part of 1/neurons.

        That part is a third of the difference from populations of a quarter of the neurons.
        """
        size = self._neurons(neurons)
        means, errors = [], []
        large, small = (
            self._replicas(n, width, x, replicates, key, rates) for n in (size, size // FEWER)
        )
        for one, two in zip(large, small, strict=True):
            spread = one.std(0, ddof=1) / replicates**0.5
            bias = (two.mean(0) - one.mean(0)) / (FEWER - 1)
            means.append(one.mean(0))
            errors.append(np.hypot(spread, bias))
        if not means[0].any() and np.any(np.asarray(x)):
            raise refused("the output", "its variance is 0 at initialisation")
        return KernelEstimate(*means, *errors)

    def _replicas(
        self, neurons: int, width: int | None, x: Any, replicates: int, key: int, rates: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for number in range(replicates):
            check()
            _, kernels = self._run(neurons, width, x, key * 10_000 + number, rates)
            found.append([each.numpy() for each in kernels])
        nngp, ntk = (np.stack(each) for each in zip(*found, strict=True))
        return nngp, ntk

    def _run(
        self, neurons: int, width: int | None, x: Any, seed: int, rates: Any
    ) -> tuple[Population, tuple[Tensor, Tensor]]:
        """Return a population behind a forward pass, and K and Θ."""
        module = self._module(neurons)
        inputs = as_input("x", x, module)
        constants = Constants(self._widths, neurons, width)
        forget(module)
        with ALONE, fixed_seed(0), doubles(), torch.no_grad(), forward_ad.dual_level():
            run = Population(module, inputs, constants, RULES, seed, rates)
            run_under(run, module, inputs)
            return run, Outputs(run).kernels()

    def _neurons(self, count: int) -> int:
        """Return a width of about a number of neurons for which the family has a module."""
        least, size = self._widths.widths[0], self._widths.widths[0]
        while 2 * size <= max(count, least):
            size *= 2
        return size

    def _module(self, neurons: int) -> nn.Module:
        """Return the module of a population, whose parameters take no memory."""
        if neurons not in self._modules:
            family = self._widths.family
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
