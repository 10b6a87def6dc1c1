"""The limit of networks whose features stand still under adaptive optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from largen.kernels import nngp_kernel
from largen.runs import Posed, Run, Trajectory
from largen.runs.theory import initial_outputs
from largen.scalars import random_key
from largen.theories.mean_field.adaptive_deep.problem import lazily_posed_by
from largen.theories.mean_field.adaptive_deep.replicates import (
    AdaptivePlan,
    solve_by_replicates,
    wanted_particles,
)
from largen.theories.mean_field.adaptive_deep.solution import AdaptiveMeanField
from largen.theories.mean_field.engine.parallel import one_thread_of_blas
from largen.theories.mean_field.options import NO_KERNELS
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.replicates import Mean, Settings

CONDITIONED = 8  # the number of replicates over which predictions given initial outputs are means


@dataclass(frozen=True, kw_only=True)
class AdaptiveKernelLimit(AdaptiveMeanField):
    """The kernel limit under adaptive optimizers: ``lg.adam`` and ``lg.rmsprop``, at any depth.

    In runs in ``lg.ntk()``, and others with γ = γ₀Nᵈ, 0 ≤ d < ½, features stand still at infinite
    width, and outputs move with all weights together,

        Δf_μ = (1/γ₀) Σ_l E_ij[g_iμ u_ij φ(h_jμ)],      g = √N γ ∂f/∂h,

    where the update u_ij of a weight is a function of its own gradients Σ_μ d_μ g_iμ φ(h_jμ) in all
    steps so far (:class:`largen.theories.AdaptiveMeanField`), with the fields g and h of
    initialisation. No tangent kernel determines outputs: the average over pairs of neurons is of a
    function that is not linear in the residuals d (Yang and Littwin, *Tensor Programs IVb*, arXiv
    2308.01814). It is solved as ``lg.mean_field(gamma=0.01)``, whose outputs differ by a relative
    part of order γ₀², from initial outputs that are 0 for d > 0, and Gaussian with the covariance
    of :func:`largen.nngp_kernel` for d = 0. In the latter case ``f_train`` and ``f_test`` are means
    over initialisations, and :meth:`condition` has the predictions for given initial outputs;
    weight decay shrinks them, in networks that are homogeneous in the weights.

    Parameters
    ----------
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|. Replicates are added
        until it is reached, or until ``max_particles`` neurons are sampled. It is reached by a few
        replicates for d > 0; means over random initial outputs take many.
    particles
        S, as in :class:`largen.theories.AdaptiveMeanField`; by default at least 512.
    replicates
        The number of replicates, each of which is solved with S and with S/2 neurons, and for d = 0
        from initial outputs of both signs; by default at least 8, and as many as ``rtol`` requires.
    record
        Kernels to record, as in :class:`largen.theories.AttentionMeanField`; they stand still.
    max_particles, record_at, record_pairs, memory_budget, key, checkpoint, progress
        As in :class:`largen.theories.AttentionMeanField`.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(2, "tanh"), lg.ntk(), data, optimizer=lg.adam(0.2), steps=8)
    >>> limit = lg.solve(run, particles=128, replicates=8)
    >>> limit.theory
    'kernel, adaptive'
    >>> bool(limit.loss_train[-1] < 0.1 * limit.loss_train[0])
    True
    """

    name: ClassVar[str] = "kernel, adaptive"
    papers: ClassVar[tuple[str, ...]] = ("yang2023adaptive",)
    random_outputs: ClassVar[bool] = True
    has_positions: ClassVar[bool] = False
    _fewest: ClassVar[int] = 512

    rtol: float = 3e-2

    @classmethod
    def pose(cls, run: Run) -> Posed[AttentionProblem]:
        """Return the problem that a run poses.

        Raises
        ------
        NoTheory
            If features move (d = ½), logits are not averages over neurons, the optimizer is not
            adaptive, or weights decay from random outputs of a network that is not homogeneous.
        NoRule
            For a layer that is not known here.
        """
        return lazily_posed_by(run)

    def condition(self, limit: Trajectory, f0_train: Any, f0_test: Any) -> tuple[Any, Any]:
        """Return the limit's predictions for networks whose initial outputs are known.

        Parameters
        ----------
        limit
            The solution of a run.
        f0_train, f0_test
            Initial outputs, (seed, sample[, output]) and (seed, test_sample[, output]).

        Returns
        -------
        tuple
            Outputs (seed, step, sample[, output]) and (seed, step, test_sample[, output]), NumPy
            arrays in the precision of ``f0_train``; means over a few replicates of ``particles``
            neurons.

        Raises
        ------
        InvalidInput
            For wrong shapes, or for a limit that was loaded from a file, which does not contain the
            run.
        """
        run, f0_train, f0_test = initial_outputs(limit, f0_train, f0_test)
        problem, samples = self.pose(run).problem, f0_train.shape[1]
        particles = self.particles or wanted_particles(problem, run, self.rtol, self._fewest)
        start = np.concatenate([f0_train, f0_test], 1).astype(float)
        start = start.reshape(*start.shape[:2], 1, problem.outputs)
        seed = np.asarray(jax.random.key_data(random_key(self.key)))
        settings = Settings(self.rtol, None, None, 0, (), NO_KERNELS, self.memory_budget)
        plan = AdaptivePlan(problem, run, settings, particles, seed, 1)

        def predicted(start: np.ndarray) -> np.ndarray:
            numbers = range(CONDITIONED)
            found = [plan.solved(i, particles, lambda done: None, start).f for i in numbers]
            return np.mean(found, 0)

        with one_thread_of_blas():
            f = np.stack([predicted(each) for each in start])
        f = f.reshape(*f.shape[:3], *run.output_shape).astype(f0_train.dtype)
        return f[:, :, :samples], f[:, :, samples:]

    def _replicated(self, *of: Any) -> Mean:
        """Return the mean over replicates."""
        root = None if of[1].param.canonical_d else _root(of[1])
        return solve_by_replicates(*of, fewest=self._fewest, root=root)


def _root(run: Run) -> np.ndarray:
    """Return a root of the covariance of initial outputs, (sample, noise)."""
    covariance = nngp_kernel(run.net, run.data.x.astype(float), param=run.param)
    values, vectors = np.linalg.eigh(np.asarray(covariance, float))
    return np.sqrt(np.maximum(values, 0)) * vectors
