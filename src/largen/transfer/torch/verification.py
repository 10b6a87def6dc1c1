"""Verification of plans, and their repair: see :mod:`largen.transfer.verdicts`."""

from __future__ import annotations

from dataclasses import replace

from largen.errors import InvalidInput
from largen.transfer import repair
from largen.transfer.torch.causes import cause_of
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.surveys import Specimens
from largen.transfer.verified import Verification
from largen.transfer.verifying import (
    NotVerified,
    measured_verdict,
    not_meant,
    with_records,
)


def verified(plan: TorchPlan, facts: Facts, request: Request) -> TorchPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""

    def record_of(along: str) -> Verification:
        why = not_meant(request.scheme, along)
        if not why and facts.reading is None:
            why = "the model could not be called; pass example="
        if why:
            raise NotVerified(why)
        return _record(Specimens.of(request, facts, along))

    return with_records(plan, request.hints, record_of)


def repaired(plan: TorchPlan) -> TorchPlan:
    """Return a plan with measured powers; see :meth:`TorchPlan.repaired`."""
    request = plan.request
    if not any(record.flags for record in plan.verified):
        return plan
    if request is None:
        raise InvalidInput(repair.NOT_KNOWN)
    facts = Facts(request.make_model, request.sizes)
    request.plan(facts)  # reads the models
    return repair.repaired(
        plan, request.hints, lambda along, steps: Specimens.of(request, facts, along, steps)
    )


def _record(specimens: Specimens) -> Verification:
    """Return the verdict on a plan as it is, with what to correct first."""
    found, survey = measured_verdict(
        specimens.along, specimens.ratios, specimens.kind,
        lambda seeds: specimens.survey(seeds=seeds),
    )  # fmt: skip
    if not found.flags:
        return found
    more = tuple(repair.next_corrections(specimens, survey, (), []))
    return replace(found, corrections=more, cause=cause_of(found, specimens, survey.fits))
