"""Verification of plans by the effects of single updates on small networks, and their repair.

See :mod:`largen.transfer.verdicts` for what is measured.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from warnings import warn

import torch
from torch import Tensor

from largen.errors import InvalidInput, WrongPlan
from largen.transfer.corrections import Correction
from largen.transfer.schemes import as_built
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.names import parameters, plain
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.repair import next_corrections
from largen.transfer.torch.surveys import (
    MORE_SEEDS,
    NotVerified,
    Specimens,
    Survey,
    names_of,
    ratios_of,
    with_corrections,
    words_of,
)
from largen.transfer.verdicts import effects_of
from largen.transfer.verified import Verification

MOST_REPAIRS = 16


def verified(plan: TorchPlan, facts: Facts, request: Request) -> TorchPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""
    records = []
    for along, ratio in ratios_of(request, plan).items():
        if ratio == 1.0:
            continue
        try:
            why = _not_meant(request, along, facts)
            if why:
                raise NotVerified(why)
            record = _record(Specimens.of(request, facts, along))
        except NotVerified as reason:
            record = Verification(along, reason=str(reason))
        records.append(record)
        if record.flags:
            more = "" if record.cause else "\n  plan.repaired() corrects what it can."
            warn(f"{record}{more}", WrongPlan, 3)
    return replace(plan, verified=tuple(records))


def repaired(plan: TorchPlan) -> TorchPlan:
    """Return a plan with measured powers; see :meth:`TorchPlan.repaired`."""
    request = plan.request
    if not any(record.flags for record in plan.verified):
        return plan
    if request is None:
        raise InvalidInput(
            "plan: a plan read from text does not know the model's inputs; repair the plan that "
            "scale(…) returns, and save that."
        )
    facts = Facts(request.make_model, request.sizes)
    request.plan(facts)  # reads the models
    records = []
    for record in plan.verified:
        if record.flags:
            corrections, after = _repair(Specimens.of(request, facts, record.along), record.seeds)
            if after.flags:
                after = replace(after, cause=record.cause)
                raise InvalidInput(
                    f"plan: measured powers do not make every slope 0. With "
                    f"{', '.join(map(str, corrections)) or 'no correction'}:\n{after}"
                )
            names = names_of(facts, record.along)
            plan = with_corrections(request, plan, corrections, names)
            words = ", ".join(map(str, corrections))
            plan = replace(plan, notes=(*plan.notes, f"measured in {record.along}: {words}"))
            record = after
        records.append(record)
    return replace(plan, verified=tuple(records))


def _not_meant(request: Request, along: str, facts: Facts) -> str:
    """Why the scheme's updates are not meant to be of order one along a size; empty if they are."""
    scheme = request.scheme
    if as_built(scheme) or scheme.d != Fraction(1, 2):
        return f"{scheme.name} does not keep updates of features of order one"
    if along == "depth" and not scheme.branch:
        return f"{scheme.name} has no powers of depth"
    if along == "experts":
        return "coordinate_check measures it by training"
    if facts.reading is None:
        return "the model could not be called; pass example="
    return ""


def _verdict(specimens: Specimens, survey: Survey) -> Verification:
    """Return the verdict of a survey."""
    kind = specimens.request.moved.kind
    effects = effects_of(survey.fits, survey.layout, specimens.along, kind)
    return Verification(specimens.along, specimens.ratios, len(survey.rows[0]), tuple(effects))


def _record(specimens: Specimens) -> Verification:
    """Return the verdict on a plan as it is, with what to correct first."""
    try:
        survey = specimens.survey()
    except NotVerified:
        raise
    except Exception as error:
        raise NotVerified(f"the forward or backward pass failed: {words_of(error)}") from None
    if ("output", "all", "") not in survey.fits:
        raise NotVerified("the output is not finite, or no weight acts on it")
    found = _verdict(specimens, survey)
    if found.open:
        survey = specimens.survey(seeds=MORE_SEEDS)
        found = _verdict(specimens, survey)
    if found.passed:
        return found
    more = tuple(next_corrections(specimens, survey, (), []))
    return replace(found, corrections=more, cause=_cause(specimens))


def _cause(specimens: Specimens) -> str:
    """What the largest network has that no power of a setting corrects."""
    model = specimens.plan(-1, ()).build(seed=0, device="cpu")
    normed = [plain(p) for p, m in model.named_modules() if type(m).__name__ == "_SpectralNorm"]
    if normed:
        where = normed[0].partition(".parametrizations")[0]
        return (
            f"spectral_norm divides {where}.weight by its largest singular value, which is no "
            "power of the width if a side is fixed, and leaves its bias as it is; leave it out, or "
            "tune at the target"
        )
    first: dict[str, Tensor] = {}
    names = names_of(specimens.facts[-1], specimens.along)
    for name, weight in parameters(model).items() if specimens.along == "depth" else ():
        other = first.setdefault(names[name], weight)
        if other is not weight and weight.std() > 0 and torch.equal(weight, other):
            return (
                f"copies of {names[name]} start with equal values, as those of "
                "nn.TransformerEncoder do, so that l branches add up to l times one of them: draw "
                "the values of every block anew in make_model, or take scheme='complete_p'"
            )
    return ""


def _repair(specimens: Specimens, seeds: int) -> tuple[list[Correction], Verification]:
    """Correct a plan until no slope is wrong; return the corrections and the last verdict."""
    corrections: list[Correction] = []
    tried: list[str] = []
    survey = specimens.survey(seeds=seeds)
    for _ in range(MOST_REPAIRS):
        survey = specimens.survey(corrections, inputs=True, seeds=seeds)
        more = next_corrections(specimens, survey, corrections, tried)
        if not more:
            break
        corrections += more
    return corrections, _verdict(specimens, survey)
