"""Verification of plans, and their repair: see :mod:`largen.transfer.verdicts`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from largen.errors import InvalidInput
from largen.transfer.corrections import Correction
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.names import parameters, plain
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.repair import next_corrections
from largen.transfer.torch.surveys import Specimens, names_of, with_corrections
from largen.transfer.verified import Verification
from largen.transfer.verifying import (
    NotVerified,
    measured_verdict,
    not_meant,
    verdict,
    with_records,
)

MOST_REPAIRS = 16


def verified(plan: TorchPlan, facts: Facts, request: Request) -> TorchPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""

    def record_of(along: str) -> Verification:
        why = not_meant(request.scheme, along)
        if not why and facts.reading is None:
            why = "the model could not be called; pass example="
        if why:
            raise NotVerified(why)
        return _record(Specimens.of(request, facts, along))

    return with_records(plan, request.hints, record_of, "\n  plan.repaired() corrects what it can.")


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


def _record(specimens: Specimens) -> Verification:
    """Return the verdict on a plan as it is, with what to correct first."""
    found, survey = measured_verdict(
        specimens.along, specimens.ratios, specimens.request.moved.kind,
        lambda seeds: specimens.survey(seeds=seeds),
    )  # fmt: skip
    if found.passed:
        return found
    more = tuple(next_corrections(specimens, survey, (), []))
    return replace(found, corrections=more, cause=_cause(specimens))


def _cause(specimens: Specimens) -> str:
    """Return the fault of the largest network that no power of a setting corrects."""
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
                "the values of every block again in make_model, or take scheme='complete_p'"
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
    kind = specimens.request.moved.kind
    return corrections, verdict(specimens.along, specimens.ratios, kind, survey)
