"""The numerical settings of a solution by random matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from largen.theories.mean_field.deep.sweep.state import NOTHING_MORE, Kept
from largen.theories.mean_field.options import Sampling


class NumericalSettings(NamedTuple):
    """Numbers of particles and replicates, tolerances and precision of a solution.

    Attributes
    ----------
    rtol
        The target relative error of the outputs.
    particles, replicates, max_particles
        The number of neurons of a layer (per unit of width, if widths are unequal); the number of
        replicates, or None to determine it from the error; the largest product of the two.
    sampling
        The kind of sampling of fresh Gaussian vectors.
    tolerance
        The relative size below which directions are truncated.
    dtype
        The precision of the neurons.
    dense
        Whether matrices are stored: networks of the given number of neurons and of half of it.
    budget
        The largest number of bytes of the matrices of one replicate.
    kept
        The kernels and fields that are kept at records.
    report
        A function that is called with the work done and the total work.
    reached
        A function that is called with the relative error of the outputs after each round of
        replicates.
    """

    rtol: float
    particles: int
    replicates: int | None
    max_particles: int
    sampling: Sampling
    tolerance: float
    dtype: Any
    dense: bool = False
    budget: float = np.inf
    kept: Kept = NOTHING_MORE
    report: Callable[[int, int], object] = lambda done, total: None
    reached: Callable[[float], object] = lambda error: None

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the networks that make up one round of replicates."""
        return (self.particles, self.particles // 2) if self.dense else (self.particles,)
