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

Nothing is corrected behind a slope that is not known to ±:data:`KNOWN`. Copies of a block get equal
powers, and what is added to the output keeps its size when the rest of it gets a factor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log2
from typing import Protocol, runtime_checkable

from largen.transfer.copies import of_all_copies
from largen.transfer.corrections import Correction
from largen.transfer.verdicts import (
    FADES,
    ROUNDING,
    SINGLE,
    START,
    TOTAL,
    Layout,
    fades,
    growing_starts,
    grows,
    largest,
    moves_nothing,
)
from largen.transfer.verifying import SEEDS, Slopes

KNOWN = 0.2  # half-width of a slope's interval above which no power follows from it
SETS_SIZE = 0.5  # change of log₂ of a size when weights are doubled, above which they set it
SHARE = 0.1  # of the sum over weights, above which a single weight's slope counts
ADDED = 0.02  # largest slope of the effect of what is added to the output, which is the same always
LOST = 0.75  # the effect of a weight that falls faster than this power is scaled away


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

    @property
    def copies(self) -> Mapping[str, str]:
        """Weights of equal blocks → a name that their copies share."""
        ...

    def survey(
        self, corrections: Sequence[Correction] = (), inputs: bool = False, seeds: int = SEEDS
    ) -> Slopes:
        """Measure the effects; with ``inputs`` those on modules' inputs, too."""
        ...

    def size(
        self,
        place: str,
        corrections: Sequence[Correction],
        doubled: Collection[str] = (),
        at: int = -1,  # index of the size; the largest by default
    ) -> float:
        """Return a tensor's root mean square in one network, some weights doubled."""
        ...

    def logit_settings(
        self, survey: Slopes, place: str, corrections: Sequence[Correction]
    ) -> list[tuple[str, str]]:
        """Return what multiplies attention logits: corrections' kinds and places."""
        ...


class _Unknown(Exception):
    """A slope that has to be corrected next is not known well enough."""


def next_corrections(
    networks: Networks, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    """Return the corrections of the first kind that applies; none if its slope is not known.

    ``tried``: tensors whose start was corrected, to which this one is added; each at most twice.
    """
    try:
        found = _of_first_kind(networks, survey, corrections, tried)
    except _Unknown:
        return []
    return of_all_copies(found, networks.copies)


def _of_first_kind(
    networks: Networks, survey: Slopes, corrections: Sequence[Correction], tried: list[str]
) -> list[Correction]:
    found = _starts(networks, survey, corrections, tried)
    if found:
        return found
    if networks.along == "depth" or networks.kind == "proportional":
        return _rates(networks, survey)
    found = _on_tensors(survey) or _on_inputs(survey)
    return found or _on_logits(networks, survey, corrections) or _on_output(survey)


def _half(fit: tuple[float, float] | None) -> float:
    """Return a slope rounded to halves."""
    if fit is None:
        return 0.0
    if fit[1] > KNOWN:
        raise _Unknown
    return round(2 * fit[0]) / 2


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
                found = [Correction("init", n, -_half(fit), letter) for n in names]
                return found + _of_biases(networks, layout, corrections, place, found)
    return []


def _of_biases(
    networks: Networks,
    layout: Layout,
    corrections: Sequence[Correction],
    place: str,
    found: Sequence[Correction],  # those of the matrices that set the tensor's size
) -> list[Correction]:
    """Correct the initial values of biases of the same layers whose part of the tensor grows."""
    layers = {layout.holders[each.where] for each in found}
    added = []
    for name, holder in layout.holders.items():
        if holder not in layers or name not in layout.vectors:
            continue
        parts = []
        for at in (0, -1):
            size, doubled = (networks.size(place, corrections, own, at) for own in ((), (name,)))
            parts.append(max(doubled**2 - size**2, 0.0) ** 0.5)  # of independent random terms
        if min(parts) <= ROUNDING * size:
            continue
        slope = log2(parts[1] / parts[0]) / log2(networks.ratios[-1] / networks.ratios[0])
        power = round(2 * slope) / 2
        if power > 0 and abs(slope - power) < KNOWN:
            added.append(Correction("init", name, -power, found[0].letter))
    return added


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
        return _with_factor(survey, -_half(fit))
    return [
        Correction("lr", name, -_half(fits["output", "", name]))
        for name in layout.holders
        if name in layout.last and _is_off(fits.get(("output", "", name)), SINGLE)
    ]


def _with_factor(survey: Slopes, power: float) -> list[Correction]:
    """Multiply the output, but for what is added to it; nothing if a part of it would vanish."""
    own = {name: survey.fits.get(("output", "", name)) for name in survey.layout.holders}
    for name in survey.layout.inner:
        fit = own[name]
        if fit is None or name in survey.layout.vectors or abs(fit[0]) > TOTAL:
            continue
        if fades((fit[0] + power, fit[1]), LOST):
            return []
    found = [Correction("output", "", power)]
    for name, fit in own.items():
        if fit is not None and name in survey.layout.last and abs(fit[0]) + fit[1] < ADDED:
            found += [Correction("init", name, -power), Correction("lr", name, -power)]
    return found
