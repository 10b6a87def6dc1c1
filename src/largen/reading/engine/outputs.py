"""Kernels of the outputs of a model that was run at a population of neurons."""

from __future__ import annotations

import numpy as np

from largen.reading.engine.fields import RANK
from largen.reading.engine.population import Engine
from largen.reading.refusals import refused

ROUNDING = 1e-9  # relative size below which a deviation from a linear function is rounding


class Outputs:
    """The outputs of a model as functions of what its last weights make, linear ones."""

    def __init__(self, population: Engine):
        if population.read_out is None:
            raise refused("the output", "it is not a linear map of neurons; read the logits")
        self._population, self._last = population, population.read_out
        self._index = population.record.output
        self._behind = population.behind(self._last.index) & population.before([self._index])
        calls = population.record.calls
        if any(product in self._behind for product in population.products):
            raise refused(
                calls[self._last.index].module or "forward",
                f"its {self._last.outputs} outputs do not grow with the width; there is a rule "
                "where all hidden layers grow",
            )
        self._shape = calls[self._index].shape
        samples = calls[0].shape[0]
        if len(self._shape) > 2 or self._shape[:1] != (samples,):
            raise refused(
                "the output",
                f"wanted ({samples},) or ({samples}, output) for {samples} samples, got "
                f"{self._shape}",
            )
        self._direct = self._index == self._last.index and self._last.result is None
        if not self._direct:
            self._check_linear(calls[self._index].place)

    def kernels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return K and Θ, (sample, sample), means over outputs."""
        drawn = self._last.drawn
        if self._direct:
            return drawn.covariance, drawn.tangent
        nngp, ntk = self._of(drawn.covariance), self._of(drawn.tangent)
        for index, parts, variance, rate in self._population.offsets:
            if index in self._behind:
                added = self._second_moment(self._replayed(index, parts))
                nngp, ntk = nngp + variance * added, ntk + rate * added
        return nngp, ntk

    def _of(self, covariance: np.ndarray) -> np.ndarray:
        """Return the covariance of the outputs, given that of the read-out's rows."""
        values, vectors = np.linalg.eigh(covariance)
        columns = (vectors * np.sqrt(np.maximum(values, 0))).T[values > RANK * values[-1:]]
        total = np.zeros((self._shape[0], self._shape[0]))
        channels = np.eye(self._last.outputs)
        for column in columns:
            starts = self._starts(np.multiply.outer(channels, column))
            total += self._second_moment(self._replayed(self._last.index, starts))
        return total

    def _second_moment(self, outs: np.ndarray) -> np.ndarray:
        """Return the sum of the second moments of outputs, (start, sample, output)."""
        return np.einsum("isk,itk->st", outs, outs) / outs.shape[2]

    def _check_linear(self, place: str) -> None:
        """Refuse outputs that are not linear in what the last weights make."""
        rng = np.random.default_rng(0)
        one, two = rng.standard_normal((2, self._last.outputs, len(self._last.drawn.covariance)))
        alone = one * (np.arange(len(one)) == 0)[:, None]  # of a single channel
        starts = self._starts(np.stack([one, two, one + two, 0 * one, alone]))
        outs = self._replayed(self._last.index, starts)
        scale = float(np.abs(outs).max())
        off = max(float(np.abs(outs[0] + outs[1] - outs[2]).max()), float(np.abs(outs[3]).max()))
        if not off <= ROUNDING * scale or not scale:
            raise refused(
                place,
                "the output is not linear in the last weights, or has an offset; read a module "
                "that returns the logits, what it makes of the last weights by an affine map",
            )
        rows = np.abs(outs[4]).max(1)
        if bool((rows == 0).any()) and bool(rows.any()):
            raise refused("the output", "its first axis is not that of the samples")

    def _starts(self, numbers: np.ndarray) -> np.ndarray:
        """Return results of the read-out, of numbers (start, channel, row)."""
        found = np.moveaxis(numbers, 1, 2).reshape(
            len(numbers), *self._last.drawn.rows, self._last.outputs
        )
        axis = self._last.axis
        return np.moveaxis(found, -1, axis if axis < 0 else axis + 1)

    def _replayed(self, index: int, starts: np.ndarray) -> np.ndarray:
        """Return the outputs if the result of a call is each of the starts."""
        outs = self._population.replayed(index, starts, self._behind)
        return outs.reshape(len(starts), self._shape[0], -1)
