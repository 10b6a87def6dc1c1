"""The problem that a run of a network with attention poses at infinite width."""

from __future__ import annotations

import math

from largen.architectures import depth
from largen.errors import NoTheory
from largen.parameterizations import CanonicalForm, canonical_form, temperature_of
from largen.parameterizations.stepping import Optimizer
from largen.runs import Posed, Run
from largen.theories.chains.constants import check_features_move
from largen.theories.chains.problem import GAUSSIAN_ROLES
from largen.theories.mean_field.transformer.dynamics import AttentionProblem
from largen.theories.mean_field.transformer.network import populated


def posed_by(run: Run) -> Posed[AttentionProblem]:
    """Return the problem of a run, and the reason why this limit applies."""
    _check_training(run)
    form = moving_form(run, run.optimizer)
    problem = problem_of(run, form)
    found = problem.network
    logits, fields = "", "all fields are linear in Gaussian vectors"
    if found.attentions:
        layers = f"{found.attentions} attention layer{'s' * (found.attentions != 1)}"
        logits = f"; {layers} whose logits are averages over neurons"
        if found.populations.head_sizes:
            logits = f"; {layers}, with heads of a fixed size whose logits differ"
    if found.populations.sampled:
        where = ["where activations act"] * bool(found.populations.activated)
        where += ["in heads of a fixed size"] * bool(found.populations.head_sizes)
        fields = (
            f"fields are values at sampled neurons {' and '.join(where)}, and elsewhere linear in "
            "Gaussian vectors"
        )
    start = f"; {form.from_zero} starts from 0" if form.from_zero else ""
    reason = f"γ = γ₀√N, so features move at order one{start}{logits}; {fields}"
    return Posed(run, reason, problem)


def moving_form(run: Run, optimizer: Optimizer) -> CanonicalForm:
    """Return the constants of a run whose features move, with the rates of an optimizer."""
    form = canonical_form(
        run.param, run.net, optimizer, run.data.inputs, gaussian=GAUSSIAN_ROLES, from_zero=True
    )
    check_features_move(run.param, form.d)
    return form


def problem_of(run: Run, form: CanonicalForm) -> AttentionProblem:
    """Return the problem of a run with some constants."""
    found = populated(run.program, form)
    return AttentionProblem(
        found,
        form.gamma,
        samples=len(run.data.x_train),
        positions=run.positions or 1,
        outputs=run.outputs or 1,
    )


def check_depth(run: Run) -> None:
    """Check that a network is not infinitely deep."""
    if depth(run.net) == math.inf:
        raise NoTheory("this limit needs a number of blocks, and the network is infinitely deep.")


def _check_training(run: Run) -> None:
    """Check that the run is one of gradient descent of finitely many blocks."""
    optimizer = run.optimizer
    check_depth(run)
    if optimizer.continuous:
        raise NoTheory(
            "gradient flow is not implemented here; gradient descent is: lg.gd, with a small rate."
        )
    if optimizer.adaptive:
        raise NoTheory(
            f"{optimizer} has no implemented limit here: its update of a weight is no "
            "sum of products of fields. Use lg.gd or lg.sgd, or lg.theories.AdaptiveMeanField()."
        )
    if temperature_of(optimizer):
        raise NoTheory(
            f"{optimizer} has no implemented limit beside attention: its noise adds another "
            "Gaussian matrix at every step. Use lg.gd or lg.sgd."
        )
