"""Kernels of the outputs of a module that was run at a population of neurons."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from largen.reading.calls import Param, Ref
from largen.reading.refusals import refused
from largen.reading.torch.population.fields import F64, RANK
from largen.reading.torch.population.run import Population

ROUNDING = 1e-9  # relative size below which a deviation from a linear function is rounding


class Outputs:
    """The outputs of a module as functions of what its last weights make, linear ones."""

    def __init__(self, population: Population):
        if population.read_out is None:
            raise refused("the output", "it is not a linear map of neurons; read the logits")
        self._population, self._last = population, population.read_out
        self._index = population.record.output
        self._behind = population.behind(self._last.index)
        calls = population.record.calls
        if any(product in self._behind for product in population.products):
            raise refused(
                calls[self._last.index].module or "forward",
                f"its {self._last.outputs} outputs do not grow with the width; there is a rule "
                "where all hidden layers grow",
            )
        self._shape = calls[self._index].shape
        samples = len(population.result(Ref(0)))
        if len(self._shape) > 2 or self._shape[:1] != (samples,):
            raise refused(
                "the output",
                f"wanted ({samples},) or ({samples}, output) for {samples} samples, got "
                f"{self._shape}",
            )
        self._direct = self._index == self._last.index
        if not self._direct:
            self._check_linear(calls[self._index].place)

    def kernels(self) -> tuple[Tensor, Tensor]:
        """Return K and Θ, (sample, sample), means over outputs."""
        drawn = self._last.drawn
        if self._direct:
            return drawn.covariance, drawn.tangent
        return self._of(drawn.covariance), self._of(drawn.tangent)

    def _of(self, covariance: Tensor) -> Tensor:
        """Return the covariance of the outputs, given that of the read-out's rows."""
        values, vectors = torch.linalg.eigh(covariance)
        columns = (vectors * values.clamp_min(0).sqrt()).T[values > RANK * values[-1:]]
        total = torch.zeros(self._shape[0], self._shape[0], dtype=F64)
        for column in columns:
            for channel in range(self._last.outputs):
                out = self._replayed(column, channel).reshape(self._shape[0], -1)
                total += out @ out.T / out.shape[1]
        return total

    def _check_linear(self, place: str) -> None:
        """Refuse outputs that are not linear in what the last weights make."""
        count = len(self._last.drawn.covariance)
        one, two = torch.randn(2, count, dtype=F64, generator=torch.Generator().manual_seed(0))
        outs = [self._replayed(v, slice(None)) for v in (one, two, one + two, 0 * one)]
        scale = max(float(out.abs().max()) for out in outs)
        off = max(float((outs[0] + outs[1] - outs[2]).abs().max()), float(outs[3].abs().max()))
        if not off <= ROUNDING * scale or not scale:
            raise refused(
                place,
                "the output is not linear in the last weights, or has an offset; read a module "
                "that returns the logits, what it makes of the last weights by an affine map",
            )
        rows = self._replayed(one, 0).reshape(self._shape[0], -1).abs().amax(1)
        if bool((rows == 0).any()) and bool(rows.any()):
            raise refused("the output", "its first axis is not that of the samples")

    def _replayed(self, column: Tensor, channel: int | slice) -> Tensor:
        """Return the output if one channel of the read-out has the given rows, the others 0."""
        last = self._last
        start = torch.zeros(*last.drawn.rows, last.outputs, dtype=F64)
        start[..., channel] = column.reshape(*last.drawn.rows, *[1] * isinstance(channel, slice))
        known = {last.index: start.movedim(-1, last.axis)}
        for index in sorted(self._behind & set(self._population.functions)):
            func, args, kwargs, part = self._population.functions[index]
            made = func(*self._tensors(args, known), **self._tensors(kwargs, known))
            known[index] = made if part is None else made[part]
        return known[self._index]

    def _tensors(self, value: Any, known: dict[int, Tensor]) -> Any:
        """Return arguments with tensors in the place of references, which may be changed."""
        if isinstance(value, Ref) and value.place in known:
            return known[value.place].clone()
        if isinstance(value, Ref):
            return forward_ad.unpack_dual(self._population.result(value)).primal
        if isinstance(value, Param):
            entries = forward_ad.unpack_dual(self._population.drawn_entries(value.name)).primal
            return entries.mT if value.axes else entries
        if isinstance(value, dict):
            return {key: self._tensors(item, known) for key, item in value.items()}
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            return tuple(self._tensors(item, known) for item in value)
        return value
