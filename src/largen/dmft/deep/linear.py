"""Deep linear networks: the closed equations.

In a linear network all fields are linear in the innovations of their layer, and averages follow
from these being orthonormal. With C = A^(l−1) + κ tril(H^(l−1), −1)Δ and D = Bˡ + κ tril(G^(l+1),
−1)Δ over all times and samples,

    Hˡ = (1−CD)⁻¹ (H^(l−1) + C G^(l+1) Cᵀ) (1−CD)⁻ᵀ,    Aˡ = (1−CD)⁻¹C,    B^(l−1) = (1−DC)⁻¹D

and Gˡ alike with C and D exchanged. Solving them needs no matrices of that size: the sweep, with
unit vectors for innovations in place of neurons, is their solution by forward substitution.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.dmft.deep.advance import Swept, advance
from largen.dmft.deep.matrix import Precision
from largen.dmft.deep.problem import Problem
from largen.dmft.deep.rows import capacity_for
from largen.dmft.deep.schedule import Schedule
from largen.dmft.deep.start import begin, unasked, unit
from largen.dmft.deep.state import NOTHING_MORE, Kept, Model
from largen.dmft.recorded import Recorded
from largen.runs import Run

TOLERANCE = 1e-7  # relative size of the directions that are left out; their squares enter


def solve_linear(
    problem: Problem,
    run: Run,
    schedule: Schedule,
    recorded: Recorded,
    tolerance: float,
    kept: Kept = NOTHING_MORE,
) -> Swept:
    """Return the solution of a linear network, in float64."""
    capacity = capacity_for(4 * problem.columns + 128)
    most = int(np.bincount(problem.streams).max())  # layers that share their neurons
    with in_precision(np.zeros((), np.float64)):
        while True:
            units = (1 + problem.taps) * capacity * most
            model = Model.of(problem, run, "linear", kept, units)
            start, used = unit(problem, units, np.float64)
            draws = jnp.asarray(used, jnp.int32)
            rule, matrices = Precision(1.0, tolerance), unasked(start, (capacity, capacity))
            state, constants = begin(problem, run, schedule, start, draws, rule, matrices)
            found = advance(model, state, constants, problem, schedule, recorded, growth=False)
            if found is not None:
                return found
            capacity *= 2
