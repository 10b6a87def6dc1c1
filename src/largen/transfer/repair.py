"""Repair of plans whose updates grow or fade with the size, by measured powers.

Corrections (:mod:`largen.transfer.proposals`) are made one after another until no slope is wrong. A
power follows from a slope that is known to ±:data:`largen.transfer.proposals.KNOWN`; more networks
are measured for one that is not. A repair ends when it would return to settings that it has had,
and the repaired plan has to pass once more at sizes that were not used for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import TypeVar

from largen.errors import InvalidInput
from largen.transfer.corrections import Correction, corrected
from largen.transfer.hints import Hints
from largen.transfer.plan import Plan
from largen.transfer.proposals import KNOWN, Networks, next_corrections
from largen.transfer.verdicts import START
from largen.transfer.verified import Verification
from largen.transfer.verifying import (
    MORE_SEEDS,
    SEEDS,
    STEPS,
    NotVerified,
    ratios_of,
    verdict,
)

AnyPlan = TypeVar("AnyPlan", bound=Plan)

NOT_KNOWN = (
    "plan: a plan read from text does not know the model's inputs; repair the plan that scale(…) "
    "returns, and save that."
)
MOST_REPAIRS = 16
MOST_SEEDS = 64  # networks of each size for slopes that fewer leave unknown
SAFETY = 1.3  # by which more networks are taken than the intervals of few ones ask for
# Sizes at which a repaired plan is measured again, as in STEPS; the first that can be built.
OTHER_STEPS = ((2, 4, 7), (2, 5), (0, 2))


def repaired(
    plan: AnyPlan,
    hints: Hints,  # those of the plan
    networks_of: Callable[[str, Sequence[int]], Networks],  # along, steps of sizes → networks
) -> AnyPlan:
    """Return a plan with measured powers."""
    records = []
    for record in plan.verified:
        if record.flags:
            if record.cause:
                raise InvalidInput(f"plan: no power of a setting corrects this:\n{record}")
            networks = networks_of(record.along, STEPS)
            corrections, after = _corrections(networks, record)
            words = ", ".join(map(str, corrections)) or "no correction"
            if not after.passed:
                raise InvalidInput(
                    f"plan: measured powers do not make every slope 0. With {words}:\n{after}"
                )
            again = _measured_again(record.along, corrections, networks_of)
            if not again.passed:
                raise InvalidInput(
                    f"plan: measured powers make every slope 0 at the sizes from which they "
                    f"follow, and not at others. With {words}:\n{again}"
                )
            plan = with_corrections(plan, hints, corrections, networks.names)
            plan = replace(
                plan, notes=(*plan.notes, f"measured in {record.along}: {words}; {again}")
            )
            record = after
        records.append(record)
    return replace(plan, verified=tuple(records))


def _corrections(networks: Networks, record: Verification) -> tuple[list[Correction], Verification]:
    """Correct a plan until no slope is wrong; return the corrections and the last verdict.

    More networks decide an open verdict, and slopes from which no power follows.
    """
    seeds = record.seeds
    corrections: list[Correction] = []
    tried: list[str] = []
    had = [_settings(corrections)]
    survey = networks.survey(seeds=seeds)
    for _ in range(MOST_REPAIRS):
        survey = networks.survey(corrections, inputs=True, seeds=seeds)
        found = verdict(networks.along, networks.ratios, networks.kind, survey)
        more = next_corrections(networks, survey, corrections, tried) if found.flags else []
        enough = _seeds_for(found)
        if not more and seeds < enough <= MOST_SEEDS:
            seeds = enough
            continue
        if not more or _settings([*corrections, *more]) in had:
            break
        corrections += more
        had.append(_settings(corrections))
    after = verdict(networks.along, networks.ratios, networks.kind, survey)
    if after.open and seeds < MORE_SEEDS:
        survey = networks.survey(corrections, inputs=True, seeds=MORE_SEEDS)
        after = verdict(networks.along, networks.ratios, networks.kind, survey)
    return corrections, after


def _seeds_for(found: Verification) -> int:
    """Return how many networks of each size are likely to show what to correct first."""
    margin = found.flags[0].margin if found.flags else 0.0
    if margin <= KNOWN:
        return MORE_SEEDS if found.open else found.seeds
    return ceil(SAFETY * found.seeds * (margin / KNOWN) ** 2)


def _settings(corrections: Sequence[Correction]) -> dict[tuple[str, str], float]:
    """Return the power of every setting that corrections change."""
    powers: dict[tuple[str, str], float] = {}
    for each in corrections:
        place = each.what, each.where
        powers[place] = powers.get(place, 0.0) + each.power
    return {place: power for place, power in powers.items() if power}


def _measured_again(
    along: str,
    corrections: Sequence[Correction],
    networks_of: Callable[[str, Sequence[int]], Networks],
) -> Verification:
    """Return the verdict on a corrected plan at sizes that were not used for the corrections."""
    why = ""
    for steps in OTHER_STEPS:
        try:
            networks = networks_of(along, steps)
            networks.survey(seeds=1)  # the parts of the networks without corrections
            for seeds in (2 * SEEDS, MORE_SEEDS):
                survey = networks.survey(corrections, seeds=seeds)
                found = verdict(along, networks.ratios, networks.kind, survey)
                start, margin = survey.fits.get(("start", "output", ""), (0.0, 0.0))
                if not found.open and start + margin < 2 * START:
                    break
        except NotVerified as reason:
            why = why or str(reason)
            continue
        return found
    return Verification(along, reason=f"it was not measured again, {why}")


def with_corrections(
    plan: AnyPlan, hints: Hints, corrections: Sequence[Correction], names: Mapping[str, str]
) -> AnyPlan:
    """Return a plan with corrections, which name weights as the base does."""
    if not corrections:
        return plan
    ratios = ratios_of(hints, plan)
    proportional = plan.update.kind == "proportional"
    weights, multipliers = corrected(
        plan.weights, plan.multipliers, corrections, ratios["width"], ratios["depth"],
        plan.decay != "coupled" or proportional, names,
    )  # fmt: skip
    return replace(plan, weights=weights, multipliers=multipliers)
