"""Kernels of a family of models by forward passes of populations of neurons, with error bars."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from largen.errors import NoRule
from largen.interrupts import check
from largen.progress import Report
from largen.reading.engine.constants import Constants, Widths
from largen.reading.engine.outputs import Outputs
from largen.reading.engine.population import Engine
from largen.reading.family import Family
from largen.reading.laws import Constant
from largen.reading.nodes import Map
from largen.reading.refusals import refused
from largen.runs import KernelEstimate

FEWER = 4  # the factor by which populations are smaller that show the part of order 1/neurons
FEW = 32  # neurons of the run that shows what can be read

Kernels = tuple[np.ndarray, np.ndarray]


class Sampler(ABC):
    """Populations of a family of models, which was read at two widths.

    ``elementwise``: the names of functions of the library that must not take numbers of the width.
    """

    elementwise: frozenset[str]

    def __init__(self, family: Family, widths: tuple[int, int]):
        self._family, self._widths = family, Widths(family, widths)

    @abstractmethod
    def _population(
        self, constants: Constants, x: Any, seed: int, rates: Any
    ) -> tuple[Engine, Kernels]:
        """Return a population behind a forward pass, and the kernels of its outputs."""

    def _run(
        self, neurons: int, width: int | None, x: Any, seed: int, rates: Any
    ) -> tuple[Engine, Kernels]:
        """Return a population with the constants of a width, and K and Θ."""
        return self._population(Constants(self._widths, neurons, width), x, seed, rates)

    def maps(self) -> dict[str, tuple[Map, Constant, Constant]]:
        """Return the affine maps by name, with σ_w² and σ_b², after a run that has to succeed."""
        width, _ = self._widths.widths
        run, _ = self._run(self._neurons(FEW), width, self._family.x, 0, None)
        self._widths.check_numbers(self.elementwise)
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
        (width, _), x = self._widths.widths, self._family.x
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
        rates: Callable[[str], float] | None = None, report: Report = lambda done, total: None,
    ) -> KernelEstimate:  # fmt: skip
        """Return means over populations with standard errors, which include the part of 1/neurons.

        That part is a third of the difference from populations of a quarter of the neurons.
        """
        size, begins = self._neurons(neurons), key * 10_000
        found: tuple[list[Kernels], list[Kernels]] = ([], [])
        for number in range(replicates):
            for each, n in zip(found, (size, size // FEWER), strict=True):
                check()
                each.append(self._run(n, width, x, begins + number, rates)[1])
            report(number + 1, replicates)
        means, errors = [], []
        large, small = ([np.stack(k) for k in zip(*each, strict=True)] for each in found)
        for one, two in zip(large, small, strict=True):
            spread = one.std(0, ddof=1) / replicates**0.5
            bias = (two.mean(0) - one.mean(0)) / (FEWER - 1)
            means.append(one.mean(0))
            errors.append(np.hypot(spread, bias))
        if not means[0].any() and np.any(np.asarray(x)):
            raise refused("the output", "its variance is 0 at initialisation")
        return KernelEstimate(*means, *errors)

    def _neurons(self, count: int) -> int:
        """Return a width of about a number of neurons for which the family has a model."""
        least, size = self._widths.widths[0], self._widths.widths[0]
        while 2 * size <= max(count, least):
            size *= 2
        return size


__all__ = ["Outputs", "Sampler"]
