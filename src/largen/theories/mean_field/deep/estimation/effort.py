"""How much is spent on a solution by random matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from largen.theories.mean_field.deep.sweep.state import NOTHING_MORE, Kept
from largen.theories.mean_field.options import Sampling


class Effort(NamedTuple):
    """What is spent on a solution.

    Attributes
    ----------
    rtol
        Wanted relative error of the outputs.
    particles, replicates, max_particles
        Neurons of a layer, or per unit of width; how many times (None: as the error takes); bound
        on their product.
    sampling
        The kind of sampling of fresh Gaussian vectors.
    tolerance
        The tolerance of directions.
    dtype
        The precision of the neurons.
    dense
        Whether matrices are stored: networks of the given number of neurons and of half of it.
    budget
        Bytes that the matrices of one replicate may take.
    kept
        At records.
    report
        Called with how much is done, and how much there is to do.
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
    report: Callable[[int, int], None] = lambda done, total: None

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the networks that a round of replicates is made of."""
        return (self.particles, self.particles // 2) if self.dense else (self.particles,)
