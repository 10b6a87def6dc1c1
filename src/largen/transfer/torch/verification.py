"""Verification of plans, and their repair: see :mod:`largen.transfer.verdicts`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from largen.errors import InvalidInput
from largen.transfer import repair
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.names import parameters, plain
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.surveys import Specimens, names_of
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

    return with_records(plan, request.hints, record_of, "\n  plan.repaired() corrects what it can.")


def repaired(plan: TorchPlan) -> TorchPlan:
    """Return a plan with measured powers; see :meth:`TorchPlan.repaired`."""
    request = plan.request
    if not any(record.flags for record in plan.verified):
        return plan
    if request is None:
        raise InvalidInput(repair.NOT_KNOWN)
    facts = Facts(request.make_model, request.sizes)
    request.plan(facts)  # reads the models
    return repair.repaired(plan, request.hints, lambda along: Specimens.of(request, facts, along))


def _record(specimens: Specimens) -> Verification:
    """Return the verdict on a plan as it is, with what to correct first."""
    found, survey = measured_verdict(
        specimens.along, specimens.ratios, specimens.kind,
        lambda seeds: specimens.survey(seeds=seeds),
    )  # fmt: skip
    if found.passed:
        return found
    more = tuple(repair.next_corrections(specimens, survey, (), []))
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
