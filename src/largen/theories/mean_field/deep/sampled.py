"""Means over replicates with the settings that the options of a theory give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from largen.runs import Run
from largen.scalars import random_key
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.averages import Estimate
from largen.theories.mean_field.deep.estimation.memory import check_memory
from largen.theories.mean_field.deep.estimation.replicates import (
    LEAST_TOLERANCE,
    Replication,
    Stopped,
    sample_replicates,
)
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.method import Method, check_particles, wanted_particles
from largen.theories.mean_field.deep.restarts.checkpoint import SweepCheckpoint
from largen.theories.mean_field.deep.sweep.state import Kept
from largen.theories.mean_field.engine.replicates import watched
from largen.theories.mean_field.record_times import Recorded

# Smallest ``rtol`` for which neurons may be in single precision.
SINGLE = 3e-4


def settings_for(
    theory: Any,  # a frozen dataclass of options
    problem: Problem,
    method: Method,  # "sweep" or "dense"
    kept: Kept,
    dtype: Any,  # the precision of the neurons
) -> NumericalSettings:
    """Return the settings of replicates, checked."""
    particles = theory.particles or wanted_particles(method, problem)
    check_particles(problem, method, particles, kept.sample_neurons)
    settings = NumericalSettings(
        rtol=theory.rtol,
        particles=particles,
        replicates=theory.replicates,
        max_particles=theory.max_particles,
        sampling=theory.sampling,
        tolerance=float(np.clip(5 * theory.rtol, LEAST_TOLERANCE, 0.05)),
        dtype=np.dtype(dtype).type,
        dense=method == "dense",
        budget=theory.memory_budget,
        kept=kept,
    )
    check_memory(method, problem, particles, settings.dtype, theory.memory_budget)
    return settings


def sampled(
    theory: Any,  # a frozen dataclass of options
    # problem, run, recorded: the problem whose replicates are sampled, and what is recorded.
    problem: Problem,
    run: Run,
    recorded: Recorded,
    settings: NumericalSettings,
    more: Mapping[str, Any] | None = None,  # further options that a checkpoint belongs to
    # A function of the checkpoint that returns how a replicate is computed, if not by one sweep.
    how: Callable[[SweepCheckpoint | None], Replication] | None = None,
    again: bool = False,  # whether other settings did not suffice: their file is kept
) -> tuple[Estimate, str | None]:
    """Return means over replicates, and the reason if they end early for lack of memory."""
    seed = np.asarray(jax.random.key_data(random_key(theory.key)))
    saved = None
    if theory.checkpoint is not None and not again:
        options = {
            "method": "dense" if settings.dense else "sweep",
            **(more or {}),
            "sampling": settings.sampling,
            "number of particles": settings.particles,
            "rtol": settings.tolerance,
            "precision, by the size of its targets, rates and duration": (
                str(settings.dtype),
                problem.gamma,
            ),
            "choice of record or sample_neurons": settings.kept,
            "key": seed,
        }
        saved = SweepCheckpoint(theory.checkpoint, run, options, recorded)
    with watched(theory.progress, theory.name, theory.checkpoint) as (report, reached):
        settings = settings._replace(report=report, reached=reached)
        rng, one = np.random.default_rng(seed), None if how is None else how(saved)
        try:
            return sample_replicates(problem, run, recorded, settings, rng, saved, one), None
        except Stopped as failure:
            return failure.estimate, str(failure)
