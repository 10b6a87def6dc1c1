"""The problem that a run with an adaptive optimizer poses at infinite width."""

from __future__ import annotations

from dataclasses import replace

from largen.errors import NoTheory
from largen.parameterizations import Averages, CanonicalForm, canonical_form, gd
from largen.runs import Posed, Run
from largen.theories.chains.constants import HALF
from largen.theories.chains.decay import degree
from largen.theories.chains.problem import GAUSSIAN_ROLES
from largen.theories.mean_field.adaptive_deep.constants import SMALL_GAMMA, constants_of
from largen.theories.mean_field.adaptive_deep.weights import AdaptiveUpdates
from largen.theories.mean_field.running_averages import averages_of
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.problem import check_depth, moving_form, problem_of

SAMPLED = (
    "updates of single weights depend on their neurons alone, so that all populations are sampled "
    "and matrices between them stored"
)


def posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run whose features move, and the reason why this limit applies."""
    average = _average(run)
    problem = _adapted(run, average, moving_form(run, gd(1.0)))
    return Posed(run, f"γ = γ₀√N, so features move at order one; {SAMPLED}", problem)


def lazily_posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run whose features stand still, and why this limit applies."""
    average, d = _average(run), run.param.canonical_d
    if not 0 <= d < HALF:
        raise NoTheory(
            f"{run.param} divides the output by N^{d} beyond the kernel scaling; features stand "
            "still for N^0 up to N^(1/2), as in lg.ntk()."
        )
    form = canonical_form(run.param, run.net, gd(1.0), run.data.inputs, gaussian=GAUSSIAN_ROLES)
    if run.optimizer.weight_decay and d == 0:
        degree(run.program, form)  # there is one, as random initial outputs shrink by it
    problem = _adapted(run, average, replace(form, gamma=SMALL_GAMMA))
    grows = f"γ grows as N^{d}, slower than N^1/2" if d else "γ does not grow with the width"
    return Posed(run, f"{grows}, so features stand still (kernel limit); {SAMPLED}", problem)


def _average(run: Run) -> Averages:
    """Return the averages of the optimizer, after a check that this is the limit of it."""
    average = averages_of(run)
    if average is None:
        raise NoTheory(f"this is the limit of lg.adam and lg.rmsprop, got {run.optimizer}.")
    check_depth(run)
    return average


def _adapted(run: Run, average: Averages, form: CanonicalForm) -> AttentionProblem:
    """Return the problem with updates by an adaptive optimizer, and all populations sampled."""
    problem = problem_of(run, form)
    populations = problem.network.populations
    for node in problem.network.nodes:
        if node.population is not None:
            populations.activate(node.population)
    return replace(problem, updates=AdaptiveUpdates(average, constants_of(run)))
