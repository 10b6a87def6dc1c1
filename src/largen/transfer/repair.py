"""What to change in a plan whose updates grow or fade with the size, by measured powers.

A slope p, rounded to halves, is removed by the power −p of one setting, the first that applies:

1. the start of a tensor inside: the initial values of the last weights before it that set its size
2. a weight's effect on its tensor: the weight's rate
3. the effect on the input of a module that grows with the width: the rate of the weight with the
   largest share
4. attention logits: the factor of queries or keys
5. the output, by weights that act inside first: the factor of the output
6. the output, by weights that act on it first: their rates

Under gradient descent, and in depth, rates alone are changed, by the effects on the output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Protocol, TypeVar, runtime_checkable

from largen.errors import InvalidInput
from largen.transfer.corrections import Correction, corrected
from largen.transfer.hints import Hints
from largen.transfer.plan import Plan
from largen.transfer.verdicts import (
    FADES,
    SINGLE,
    START,
    Layout,
    fades,
    growing_starts,
    grows,
    largest,
    moves_nothing,
)
from largen.transfer.verified import Verification
from largen.transfer.verifying import MORE_SEEDS, SEEDS, Slopes, ratios_of, verdict

AnyPlan = TypeVar("AnyPlan", bound=Plan)

NOT_KNOWN = (
    "plan: a plan read from text does not know the model's inputs; repair the plan that scale(…) "
    "returns, and save that."
)
MOST_REPAIRS = 16
SETS_SIZE = 0.5  # change of log₂ of a size when weights are doubled, above which they set it
SHARE = 0.1  # of the sum over weights, above which a single weight's slope counts


@runtime_checkable
class Networks(Protocol):
    """Networks of several sizes, by plans of these sizes with corrections."""

    along: str  # "width" or "depth"
    ratios: tuple[float, ...]  # the sizes relative to the base

    @property
    def kind(self) -> str:
        """How the optimizer's step scales."""
        ...

    @property
    def names(self) -> Mapping[str, str]:
        """Weights of the plan that is repaired → the names by which corrections call them."""
        ...

    def survey(
        self, corrections: Sequence[Correction] = (), inputs: bool = False, seeds: int = SEEDS
    ) -> Slopes:
        """Measure the effects; with ``inputs`` those on modules' inputs, too."""
        ...

    def size(
        self, place: str, corrections: Sequence[Correction], doubled: Collection[str] = ()
    ) -> float:
        """Return a tensor's root mean square in the largest network, some weights doubled."""
        ...

    def logit_settings(
        self, survey: Slopes, place: str, corrections: Sequence[Correction]
    ) -> list[tuple[str, str]]:
        """Return what multiplies attention logits: corrections' kinds and places."""
        ...


def repaired(plan: AnyPlan, hints: Hints, networks_of: Callable[[str], Networks]) -> AnyPlan:
    """Return a plan with measured powers.

    ``hints``: those of the plan; ``networks_of``: along → networks by the plan.
    """
    records = []
    for record in plan.verified:
        if record.flags:
            if record.cause:
                raise InvalidInput(f"plan: no power of a setting corrects this:\n{record}")
            networks = networks_of(record.along)
            corrections, after = _corrections(networks, record)
            if after.flags:
                raise InvalidInput(
                    f"plan: measured powers do not make every slope 0. With "
                    f"{', '.join(map(str, corrections)) or 'no correction'}:\n{after}"
                )
            plan = with_corrections(plan, hints, corrections, networks.names)
            words = ", ".join(map(str, corrections))
            plan = replace(plan, notes=(*plan.notes, f"measured in {record.along}: {words}"))
            record = after
        records.append(record)
    return replace(plan, verified=tuple(records))


def _corrections(networks: Networks, record: Verification) -> tuple[list[Correction], Verification]:
    """Correct a plan until no slope is wrong; return the corrections and the last verdict.

    More networks decide an open verdict.
    """
    seeds = record.seeds
    corrections: list[Correction] = []
    tried: list[str] = []
    survey = networks.survey(seeds=seeds)
    for _ in range(MOST_REPAIRS):
        survey = networks.survey(corrections, inputs=True, seeds=seeds)
        more = next_corrections(networks, survey, corrections, tried)
        if not more:
            break
        corrections += more
    after = verdict(networks.along, networks.ratios, networks.kind, survey)
    if after.open and seeds < MORE_SEEDS:
        survey = networks.survey(corrections, inputs=True, seeds=MORE_SEEDS)
        after = verdict(networks.along, networks.ratios, networks.kind, survey)
    return corrections, after


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


def next_corrections(
    networks: Networks, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    """Return the corrections of the first kind that applies.

    ``tried``: tensors whose start was corrected, to which this one is added; each at most twice.
    """
    found = _starts(networks, survey, corrections, tried)
    if found:
        return found
    if networks.along == "depth" or networks.kind == "proportional":
        return _rates(networks, survey)
    found = _on_tensors(survey) or _on_inputs(survey)
    return found or _on_logits(networks, survey, corrections) or _on_output(survey)


def _half(fit: tuple[float, float] | None) -> float:
    """Return a slope rounded to halves."""
    return 0.0 if fit is None else round(2 * fit[0]) / 2


def _is_off(fit: tuple[float, float] | None, most: float, scale: float = 1.0) -> bool:
    """Whether a slope certainly grows or fades, by a power that rounds to one."""
    return (grows(fit, most, scale) or fades(fit, FADES, scale)) and bool(_half(fit))


def _starts(
    networks: Networks, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    """Correct the initial values behind the first tensor that starts too large."""
    layout, letter = survey.layout, "l" if networks.along == "depth" else "n"
    for path, side, fit in growing_starts(survey.fits, layout):
        place = f"{side} of {path}"
        if tried.count(place) > 1 or not _half(fit):
            continue
        if side == "input" and not _widens(survey, path):
            continue
        tried.append(place)
        for names in _behind(layout, path, side):
            if _sets(networks, corrections, place, names):
                return [Correction("init", n, -_half(fit), letter) for n in names]
    return []


def _behind(layout: Layout, path: str, side: str) -> Iterator[list[str]]:
    """Yield the weights of the modules in front of a tensor, the last first; matrices first."""
    end = layout.modules.index(path) + (side == "output")
    for other in reversed(layout.modules[:end]):
        if side == "input" and f"{other}.".startswith(f"{path}."):
            continue
        names = [name for name, holder in layout.holders.items() if holder == other]
        vectors = [name for name in names if name in layout.vectors]
        matrices = [name for name in names if name not in layout.vectors]
        yield from (some for some in (matrices, vectors) if some)


def _widens(survey: Slopes, path: str) -> bool:
    """Whether the input of a module grows with the size."""
    return survey.largest.inputs.get(path, 0) > survey.layout.inputs.get(path, 0)


def _sets(
    networks: Networks, corrections: Sequence[Correction], place: str, names: Sequence[str]
) -> bool:
    """Whether the size of a tensor follows these weights."""
    before, after = (networks.size(place, corrections, some) for some in ((), names))
    return log2(max(after, 1e-30) / max(before, 1e-30)) > SETS_SIZE


def _rates(networks: Networks, survey: Slopes) -> list[Correction]:
    """Correct rates by the effects on the output."""
    letter, scale = ("l" if networks.along == "depth" else "n"), 2.0
    return [
        Correction("lr", place, -_half(fit), letter)
        for (kind, place, _), fit in survey.fits.items()
        if kind == "copies" and _is_off(fit, START, scale)
    ]


def _on_tensors(survey: Slopes) -> list[Correction]:
    """Correct the rates of weights by their effects on the tensors that they act on first."""
    found = []
    for name in survey.layout.inner:
        fit = survey.fits.get(("tensor", "", name))
        if fades(fit, FADES):
            fit = largest(survey.fits, survey.layout, name)
        wrong = grows(fit) or moves_nothing(survey.fits, survey.layout, name)
        if fit is not None and wrong and _half(fit):
            found.append(Correction("lr", name, -_half(fit)))
    return found


def _on_inputs(survey: Slopes) -> list[Correction]:
    """Correct the rate of the weight that moves the input of a later module most."""
    last = survey.rows[-1][0]
    for path in survey.layout.modules:
        if not (_widens(survey, path) and grows(survey.fits.get(("input", path, "")))):
            continue
        names = survey.layout.holders
        name = max(names, key=lambda name: last.get(("input", path, name), 0.0))
        fit = survey.fits.get(("input", path, name))
        if grows(fit) and _half(fit):
            return [Correction("lr", name, -_half(fit))]
    return []


def _on_logits(
    networks: Networks, survey: Slopes, corrections: Sequence[Correction]
) -> list[Correction]:
    """Correct the factor of logits, in queries or keys."""
    return [
        Correction(what, where, -_half(fit))
        for (kind, place, name), fit in survey.fits.items()
        if kind == "logits" and not name and grows(fit) and _half(fit)
        for what, where in networks.logit_settings(survey, place, corrections)
    ]


def _on_output(survey: Slopes) -> list[Correction]:
    """Correct the factor of the output, or the rates of weights that act on it first."""
    fits, layout, last = survey.fits, survey.layout, survey.rows[-1]
    sums = {n: sum(row.get(("output", "", n), 0.0) for row in last) for n in layout.inner}
    least = SHARE * sum(sums.values())
    heavy = [
        fits["output", "", n] for n in layout.inner if sums[n] > least and ("output", "", n) in fits
    ]
    top, fit = max(heavy, default=None), fits.get(("output", "inner", ""))
    fit = top if grows(top, SINGLE) else fit
    if _is_off(fit, SINGLE):
        return [Correction("output", "", -_half(fit))]
    return [
        Correction("lr", name, -_half(fits["output", "", name]))
        for name in layout.holders
        if name in layout.last and _is_off(fits.get(("output", "", name)), SINGLE)
    ]
