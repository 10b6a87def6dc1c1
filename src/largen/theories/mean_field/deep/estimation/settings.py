"""The numerical settings of a solution by random matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from largen.theories.mean_field.deep.sweep.state import NOTHING_MORE, Kept
from largen.theories.mean_field.options import Sampling


class NumericalSettings(NamedTuple):
    """Numbers of particles and replicates, tolerances and precision of a solution."""

    rtol: float  # the target relative error of the outputs
    # particles, replicates, max_particles: the number of neurons of a layer (per unit of width, if
    # widths are unequal); the number of replicates, or None to determine it from the error; the
    # largest product of the two.
    particles: int
    replicates: int | None
    max_particles: int
    sampling: Sampling  # the kind of sampling of fresh Gaussian vectors
    tolerance: float  # the relative size below which directions are truncated
    dtype: Any  # the precision of the neurons
    # Whether matrices are stored: networks of the given number of neurons and of half of it.
    dense: bool = False
    budget: float = np.inf  # the largest number of bytes of the matrices of one replicate
    kept: Kept = NOTHING_MORE  # the kernels and fields that are kept at records
    # A function that is called with the work done and the total work.
    report: Callable[[int, int], object] = lambda done, total: None
    # A function that is called with the relative error of the outputs after each round of
    # replicates.
    reached: Callable[[float], object] = lambda error: None

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the networks that make up one round of replicates."""
        return (self.particles, self.particles // 2) if self.dense else (self.particles,)
