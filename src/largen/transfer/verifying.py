"""The course of a plan's verification, whatever framework measures the effects of updates.

Networks of one, two and four times the base's size are built by plans of these targets, and called
on the same inputs. No network is larger than four times the base, whatever the target; a repaired
plan is measured at up to eight times the base as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log
from typing import TypeVar
from warnings import warn

from largen.errors import WrongPlan
from largen.parameterizations import Parameterization
from largen.transfer.hints import Hints
from largen.transfer.plan import Plan
from largen.transfer.schemes import as_built
from largen.transfer.shapes import Shapes
from largen.transfer.verdicts import Fits, Layout, Rows, effects_of
from largen.transfer.verified import Verification

STEPS = (0, 1, 3)  # sizes: the base, and so many times what the wider (deeper) model adds
SEEDS, MORE_SEEDS = 4, 32  # networks of each size; where these leave the output's slope open
MOST_WEIGHTS = 20_000_000
ADVICE = "\n  plan.repaired() corrects what it can."  # of a wrong verdict without a known cause
AnyPlan = TypeVar("AnyPlan", bound=Plan)


class NotVerified(Exception):
    """The plan cannot be verified; the message is the reason."""


@dataclass(frozen=True)
class Slopes:
    """Slopes of one verification, the base's and the largest model's parts, and the numbers."""

    fits: Fits
    layout: Layout
    largest: Layout
    rows: Rows


def sizes_along(sizes: Shapes, along: str, steps: Sequence[int] = STEPS) -> list[dict[str, int]]:
    """Return the shapes of the networks, from the smallest."""
    larger = sizes.wide if along == "width" else sizes.deep or sizes.base
    return [{k: v + step * (larger[k] - v) for k, v in sizes.base.items()} for step in steps]


def width_ratio(hints: Hints, base: Mapping[str, int], target: Mapping[str, int]) -> float:
    """Return the builder's ratio of widths; of several widths the one that differs most counts."""
    widths = [target[k] / v for k, v in base.items() if k not in (hints.depth, hints.experts)]
    return max(widths, key=lambda ratio: abs(log(ratio)), default=1.0)


def ratios_of(hints: Hints, plan: Plan) -> dict[str, float]:
    """Return the ratios of target and base by kind of size; widths are the builder's."""
    width = width_ratio(hints, plan.base, plan.target)
    return {"width": width, "depth": plan.depth_ratio, "experts": plan.experts_ratio}


def hints_at(hints: Hints, sizes: Shapes, at: Mapping[str, int]) -> Hints:
    """Return the hints for another target: heads' dimensions keep their power of the width."""
    whole = width_ratio(hints, sizes.base, sizes.target)
    if not hints.attention or whole == 1.0:
        return hints
    share = log(width_ratio(hints, sizes.base, at)) / log(whole)
    return replace(hints, attention={k: r**share for k, r in hints.attention.items()})


def check_number_of_weights(count: int, at: Mapping[str, int]) -> None:
    """Raise if a network is too large to be measured."""
    if count > MOST_WEIGHTS:
        raise NotVerified(
            f"at {dict(at)} the model has {count:.2g} weights, more than {MOST_WEIGHTS:.2g}; "
            "coordinate_check measures it by training"
        )


def not_meant(scheme: Parameterization, along: str) -> str:
    """Why the scheme's updates are not meant to be of order one along a size; empty if they are."""
    if as_built(scheme) or scheme.canonical_d != Fraction(1, 2):
        return f"{scheme.name} does not keep updates of features of order one"
    if along == "depth" and not scheme.branch:
        return f"{scheme.name} has no powers of depth"
    if along == "experts":
        return "coordinate_check measures it by training"
    return ""


def verdict(along: str, ratios: tuple[float, ...], kind: str, survey: Slopes) -> Verification:
    """Return the verdict of a survey; ``kind``: how the optimizer's step scales."""
    seeds = len(survey.rows[0])
    effects = effects_of(survey.fits, survey.layout, along, kind, seeds >= MORE_SEEDS, survey.rows)
    return Verification(along, ratios, seeds, tuple(effects))


def measured_verdict(
    along: str, ratios: tuple[float, ...], kind: str, measure: Callable[[int], Slopes]
) -> tuple[Verification, Slopes]:
    """Return the verdict of a few networks of each size, or of more if these leave it open."""
    try:
        survey = measure(SEEDS)
    except NotVerified:
        raise
    except Exception as error:
        raise NotVerified(f"the forward or backward pass failed: {words_of(error)}") from None
    if ("output", "all", "") not in survey.fits:
        raise NotVerified("the output is not finite, or no weight acts on it")
    found = verdict(along, ratios, kind, survey)
    if found.open:
        survey = measure(MORE_SEEDS)
        found = verdict(along, ratios, kind, survey)
    return found, survey


def with_records(
    plan: AnyPlan,
    hints: Hints,
    record_of: Callable[[str], Verification],  # along → the record
) -> AnyPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""
    records = []
    for along, ratio in ratios_of(hints, plan).items():
        if ratio == 1.0:
            continue
        try:
            record = record_of(along)
        except NotVerified as reason:
            record = Verification(along, reason=str(reason))
        records.append(record)
        if record.flags:
            warn(f"{record}{'' if record.cause else ADVICE}", WrongPlan, 4)
    return replace(plan, verified=tuple(records))


def words_of(error: BaseException) -> str:
    """Return an error's kind and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:150]}"
