"""The options of the theory of adaptive optimizers, and their solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from largen.memory import check_fits
from largen.runs import Posed, Run
from largen.theories.mean_field.adaptive_deep.problem import posed_by
from largen.theories.mean_field.adaptive_deep.replicates import (
    FEWEST_PARTICLES,
    KINDS,
    bytes_of,
    solve_by_replicates,
    wanted_particles,
)
from largen.theories.mean_field.transformer import AttentionMeanField
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.replicates import Mean


@dataclass(frozen=True, kw_only=True)
class AdaptiveMeanField(AttentionMeanField):
    """The mean-field limit under adaptive optimizers: ``lg.adam`` and ``lg.rmsprop``, at any depth.

    In runs in ``lg.mean_field(gamma)``, ``lg.mup(gamma)`` or an equivalent parameterization the
    update of a weight between neurons j and i of neighbouring layers depends on the gradients of
    this weight alone, in units in which they are of order one,

        G_ij = −Σ_μ d_μ g_iμ φ(h_jμ),      d_μ = Δ_μ/P,      g = Nγ₀ ∂f/∂h,
        m ← β₁m + (1 − β₁)G,   v ← β₂v + (1 − β₂)G²,   u = m̂/(√v̂ + ε₀),
        W_ij ← (1 − η₀λ₀)W_ij − (η₀γ₀/N) u_ij

    (Yang and Littwin, *Tensor Programs IVb*, arXiv 2308.01814; RMSProp has β₁ = 0 and no bias
    correction of v̂; β₁ = β₂ = ε₀ = 0 is sign descent). At infinite width W = c W(0) + U/N, with
    U_ij a function of the histories of g_i and φ(h_j), so that

        h_i = c [W(0)φ]_i + E_j[U_ij φ(h_j)],      z_j = c [W(0)ᵀg]_j + E_i[U_ij g_i].

    U is no finite sum of products of fields, as it is under gradient descent. Each population of
    neurons is sampled: S neurons per unit of width, and U, m and v of all pairs of them in 12 S²
    bytes for each matrix. In the first passes W(0) is known by its products with fields, whose
    Gaussian parts are orthonormal to all fields of their population; the rest of it is drawn after
    them. Random errors are of order 1/√S, and a shift is of order 1/S.

    Residual networks, normalisations and attention are covered as in
    :class:`largen.theories.AttentionMeanField`.

    Parameters
    ----------
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|. Replicates are added
        until it is reached.
    particles
        S; by default 1024, more for ``rtol`` below 3e-3, and at least 32 for every position of a
        sample. An even number, and such that all layers have integer numbers of neurons at S/2.
    replicates
        The number of replicates, each of which is solved with S and with S/2 neurons; by default at
        least 8, and as many as ``rtol`` requires.
    record, max_particles, record_at, record_pairs, memory_budget, key, checkpoint, progress
        As in :class:`largen.theories.AttentionMeanField`.

    Notes
    -----
    The trajectory has the variables of :class:`largen.theories.AttentionMeanField` for sampled
    networks. Errors combine the standard error of the mean over replicates and the mean difference
    between S/2 and S neurons, as far as it is significant. ``ntk`` is weighted by the rates of
    gradient descent, as in :func:`largen.train`.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(2, "tanh"), lg.mup(), data, optimizer=lg.adam(0.2), steps=6)
    >>> limit = lg.solve(run, rtol=0.02)
    >>> limit.theory
    'mean field, adaptive'
    >>> bool(limit.loss_train[-1] < 0.1 * limit.loss_train[0])
    True
    """

    name: ClassVar[str] = "mean field, adaptive"
    papers: ClassVar[tuple[str, ...]] = ("golikov2020towards", "yang2023adaptive")
    _fewest: ClassVar[int] = FEWEST_PARTICLES
    _kinds: ClassVar[tuple[Any, Any, Any]] = KINDS
    _only: ClassVar[Any] = np.float32  # that of stored matrices

    @classmethod
    def pose(cls, run: Run) -> Posed[AttentionProblem]:
        """Return the problem that a run poses.

        Raises
        ------
        NoTheory
            If features do not move at order one (d ≠ ½), logits are not averages over neurons, or
            the optimizer is not adaptive.
        NoRule
            For a layer that is not known here.
        """
        return posed_by(run)

    def _check_memory(self, problem: AttentionProblem, run: Run) -> None:
        """Check that there is memory for the matrices of a replicate."""
        particles = self.particles or wanted_particles(problem, run, self.rtol, self._fewest)
        what = f"particles: matrices of {particles} neurons and their averages"
        check_fits(bytes_of(problem, particles), what, "Take fewer particles.")

    def _wanted_particles(self, problem: AttentionProblem, run: Run) -> int:
        """Return the default number of neurons per unit of width."""
        return wanted_particles(problem, run, self.rtol, self._fewest)

    def _replicated(self, *of: Any) -> Mean:
        """Return the mean over replicates."""
        return solve_by_replicates(*of)

    def _why(self, found: Mean) -> str:
        """Return why a solution ended before its time, and what to do."""
        return (
            "memory_budget: the matrices of a replicate and their averages take more than "
            f"{self.memory_budget:.2g} bytes. Take fewer particles, or raise it; throw=False "
            "returns what was computed."
        )
