"""The problem that a run with an adaptive optimizer poses at infinite width."""

from __future__ import annotations

import math
from dataclasses import replace

from largen.architectures import depth
from largen.errors import NoTheory
from largen.parameterizations import gd
from largen.runs import Posed, Run
from largen.theories.mean_field.adaptive_deep.constants import constants_of
from largen.theories.mean_field.adaptive_deep.weights import AdaptiveUpdates
from largen.theories.mean_field.running_averages import average_of
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.problem import problem_of

REASON = (
    "γ = γ₀√N, so features move at order one; updates of single weights depend on their neurons "
    "alone, so that all populations are sampled and matrices between them stored"
)


def posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run, and the reason why this limit applies."""
    average = average_of(run)
    if average is None:
        raise NoTheory(f"this is the limit of lg.adam and lg.rmsprop, got {run.optimizer}.")
    if depth(run.net) == math.inf:
        raise NoTheory("this limit needs a number of blocks, and the network is infinitely deep.")
    problem = problem_of(run, gd(1.0))
    populations = problem.network.populations
    for node in problem.network.nodes:
        if node.population is not None:
            populations.activate(node.population)
    updates = AdaptiveUpdates(average, constants_of(run))
    return Posed(run, REASON, replace(problem, updates=updates))
