"""The options of the theory of rules of pseudo-gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from largen.parameterizations import gd, pseudo_gradient_of
from largen.runs import Posed, Run
from largen.theories.mean_field.feedback.weights import FeedbackUpdates, HebbianUpdates
from largen.theories.mean_field.transformer import AttentionMeanField
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.problem import check_depth, moving_form, problem_of


@dataclass(frozen=True, kw_only=True)
class FeedbackMeanField(AttentionMeanField):
    """The mean-field limit under feedback alignment and Hebbian learning, at any depth.

    In runs in ``lg.mean_field(gamma)`` or an equivalent parameterization with
    :func:`largen.optimizers.feedback_alignment`, weights move along pseudo-gradients g̃, which pass
    backward by fixed matrices B = ρW(0) + √(1 − ρ²) W̃ (Bordelon and Pehlevan, *The influence of
    learning rule on representation dynamics in wide neural networks*, arXiv 2210.02157). At
    infinite width the neurons of a layer are independent copies of the process

        hˡ_μ(t) = uˡ_μ(t) + Σ_{s<t} Σ_ν [ρAˡ⁻¹_μν(t,s) + κΔ_ν(s) Φˡ⁻¹_μν(t,s)] g̃ˡ_ν(s),
        z̃ˡ_μ(t) = ρ[rˡ_μ(t) + Σ_{s≤t} Σ_ν Bˡ_μν(t,s) φ(hˡ_ν(s))] + √(1 − ρ²) r̃ˡ_μ(t),
        g̃ˡ = φ'(hˡ) z̃ˡ,     Aˡ(t,s) = ⟨∂φ(hˡ(t))/∂(ρrˡ(s))⟩,     Bˡ(t,s) = ⟨∂g̃ˡ⁺¹(t)/∂uˡ⁺¹(s)⟩,

    with κ = η₀γ₀/P, Gaussian processes u of covariance Φ and r, r̃ of covariance ⟨g̃ˡ⁺¹g̃ˡ⁺¹⟩, all
    independent, and fixed read-out vectors ρw(0) + √(1 − ρ²) w̃ in place of z̃ᴸ. In contrast to
    gradient descent, updates of W are not in z̃; at ρ = 0 there are no responses. Under direct
    feedback alignment z̃ˡ are fixed vectors, Gaussian and independent, and there are none either.
    Under :func:`largen.optimizers.hebbian` there are no z̃, and g̃ˡ_ν(s) = Δ_ν(s) φ(hˡ_ν(s)).
    Outputs follow the effective tangent kernel

        K̃ = Φᴸ + Σ_l G̃ˡ Φˡ⁻¹,     G̃ˡ = ⟨gˡ g̃ˡ⟩,     g = Nγ₀ ∂f/∂h,

    for small steps; here they are averages ⟨w φ(hᴸ)⟩/γ₀ at any size of steps. Networks are those of
    :class:`largen.theories.AttentionMeanField`, which are solved in the same way: every affine map
    behind the first has its matrix B. Direct feedback and Hebbian learning are of dense layers.

    Parameters
    ----------
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|. Replicates are added
        until it is reached. This and the next three options are without effect in linear networks.
    particles
        The number of neurons of each sampled population; by default at least 2048, and 64 for every
        position of a sample.
    replicates
        The number of replicates; by default at least 4, and as many as ``rtol`` requires.
    record
        Kernels to record, as in :class:`largen.theories.AttentionMeanField`, and
        ``"pseudo_gradient_kernel"``, G̃ˡ, ``"effective_ntk"``, K̃ among training samples, and
        ``"alignment"``, the cosine of gˡ and g̃ˡ of each sample. ``"ntk"`` is that of gradients.
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
    >>> rule = lg.optimizers.feedback_alignment(0.5)
    >>> run = lg.Run(lg.mlp(2, "linear"), lg.mean_field(), data, optimizer=rule, steps=60)
    >>> limit = lg.solve(run, record="alignment")
    >>> limit.theory, bool(limit.loss_train[-1] < 1e-2)
    ('mean field, pseudo-gradients', True)
    >>> limit.alignment[:, 0, 0].round(2).tolist()
    [0.0, 0.26]
    """

    name: ClassVar[str] = "mean field, pseudo-gradients"
    papers: ClassVar[tuple[str, ...]] = ("bordelon2022influence", "lillicrap2016random")

    @classmethod
    def pose(cls, run: Run) -> Posed[AttentionProblem]:
        """Return the problem that a run poses.

        Raises
        ------
        NoTheory
            If features do not move at order one (d ≠ ½), logits are not averages over neurons, or
            the optimizer is neither feedback alignment nor Hebbian learning.
        NoRule
            For a layer that is not known here.
        """
        rule = pseudo_gradient_of(run.optimizer)
        check_depth(run)
        problem = problem_of(run, moving_form(run, gd(1.0)))
        if rule.backward == "errors":
            updates, how = HebbianUpdates(), "weights move by the activities that they join"
        elif rule.backward == "direct feedback":
            readout = problem.network.nodes[-1]
            share = problem.network.nodes[readout.reads[0]].ratio
            size = problem.network.constants(readout.operation).std / share**0.5
            updates = FeedbackUpdates(rule.correlation, size)
            how = "errors reach every layer by fixed vectors"
        else:
            updates = FeedbackUpdates(rule.correlation)
            how = "errors pass backward by fixed weights whose correlation with the initial ones "
            how += f"is {rule.correlation:g}"
        reason = f"γ = γ₀√N, so features move at order one; {how}"
        return Posed(run, reason, replace(problem, updates=updates))
