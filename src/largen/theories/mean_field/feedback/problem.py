"""The problem that a run under a rule of pseudo-gradients poses at infinite width."""

from __future__ import annotations

from dataclasses import replace

from largen.parameterizations import FeedbackAlignment, gd, pseudo_gradient_of
from largen.runs import Posed, Run
from largen.theories.mean_field.feedback.weights import FeedbackUpdates, HebbianUpdates
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.problem import check_depth, moving_form, problem_of


def posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run whose features move, and the reason why this limit applies."""
    rule = pseudo_gradient_of(run.optimizer)
    check_depth(run)
    problem = problem_of(run, moving_form(run, gd(1.0)))
    if not isinstance(rule, FeedbackAlignment):
        updates, how = HebbianUpdates(), "weights move by the activities that they join"
    elif rule.direct:
        readout = problem.network.nodes[-1]
        share = problem.network.nodes[readout.reads[0]].ratio
        size = problem.network.constants(readout.operation).std / share**0.5
        updates = FeedbackUpdates(rule.correlation, size)
        how = "errors reach every layer by fixed vectors"
    else:
        updates = FeedbackUpdates(rule.correlation)
        how = "errors pass backward by fixed weights whose correlation with the initial ones is "
        how += f"{rule.correlation:g}"
    reason = f"γ = γ₀√N, so features move at order one; {how}"
    return Posed(run, reason, replace(problem, updates=updates))
