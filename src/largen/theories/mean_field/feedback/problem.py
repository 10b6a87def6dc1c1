"""The problem that a run under feedback alignment poses at infinite width."""

from __future__ import annotations

import math
from dataclasses import replace

from largen.architectures import depth
from largen.errors import NoTheory
from largen.parameterizations import correlation_of, gd
from largen.runs import Posed, Run
from largen.theories.mean_field.feedback.weights import FeedbackUpdates
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.problem import moving_form, problem_of


def posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run whose features move, and the reason why this limit applies."""
    rho = correlation_of(run.optimizer)
    if depth(run.net) == math.inf:
        raise NoTheory("this limit needs a number of blocks, and the network is infinitely deep.")
    problem = problem_of(run, moving_form(run, gd(1.0)))
    reason = (
        "γ = γ₀√N, so features move at order one; pseudo-gradients pass backward by fixed weights "
        f"whose correlation with the initial ones is {rho:g}"
    )
    return Posed(run, reason, replace(problem, updates=FeedbackUpdates(rho)))
