"""Verification of plans by the effects of single updates on small networks.

Networks of one, two and four times the base's size are built by plans of these targets, and called
on the same inputs; see :mod:`largen.transfer.verdicts`. No network is larger than four times the
base, whatever the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import log
from time import perf_counter
from typing import Any
from warnings import warn

import torch
from torch import Tensor

from largen.errors import InvalidInput, LargenError, WrongPlan
from largen.transfer.corrections import Correction, corrected
from largen.transfer.schemes import as_built
from largen.transfer.shapes import shapes
from largen.transfer.torch.effects import measured
from largen.transfer.torch.examples import BATCH, Inputs, given
from largen.transfer.torch.facts import Facts
from largen.transfer.torch.plan import TorchPlan
from largen.transfer.torch.planning import Request
from largen.transfer.torch.process import fixed_seed
from largen.transfer.torch.repair import next_corrections
from largen.transfer.verdicts import (
    Fits,
    Layout,
    Rows,
    effects_of,
    fitted,
    with_sums,
)
from largen.transfer.verified import Verification

STEPS = (0, 1, 3)  # sizes: the base, and so many times what the wider (deeper) model adds
SEEDS, FIRST = 4, 0  # the number of networks of each size, and the first one's seed
SAMPLES = 8  # of generated inputs
MOST_WEIGHTS = 20_000_000
MOST_SECONDS = 2.0  # for the base's network
MOST_REPAIRS = 16


class NotVerified(Exception):
    """The plan cannot be verified; the message is the reason."""


@dataclass(frozen=True)
class Survey:
    """Slopes of one verification, the base's and the largest model's parts, and the numbers."""

    fits: Fits
    layout: Layout
    largest: Layout
    rows: Rows


@dataclass(eq=False)
class Verifier:
    """Networks of several sizes, by plans with corrections.

    Attributes
    ----------
    along
        ``"width"`` or ``"depth"``.
    facts, plans
        By size, from the base.
    ratios
        The sizes relative to the base.
    inputs
        By size, the arguments of the forward pass.
    """

    request: Request
    along: str
    facts: list[Facts]
    plans: list[TorchPlan] = field(default_factory=list)
    ratios: tuple[float, ...] = ()
    inputs: list[Inputs] = field(default_factory=list)
    layout: Layout | None = None

    @classmethod
    def of(cls, request: Request, facts: Facts, along: str) -> Verifier:
        """Return a verifier for the models of a plan.

        Raises
        ------
        NotVerified
            If larger models cannot be built, or are too large.
        """
        sizes = facts.sizes
        larger = sizes.wide if along == "width" else sizes.deep or sizes.base
        delta = {**sizes.wide, **({} if sizes.deep is None else sizes.deep)}
        delta |= {k: v for k, v in sizes.wide.items() if v != sizes.base[k]}
        by_size = []
        for step in STEPS:
            at = {k: v + step * (larger[k] - v) for k, v in sizes.base.items()}
            try:
                other = facts.with_target(
                    shapes(sizes.base, at, request.depth, delta, request.experts)
                )
            except Exception as error:
                raise NotVerified(f"no model of {at}: {_words(error)}") from None
            by_size.append(other)
        count = sum(p.numel() for p in by_size[-1].models["target"].parameters())
        if count > MOST_WEIGHTS:
            raise NotVerified(
                f"at {by_size[-1].sizes.target} the model has {count:.2g} weights, more than "
                f"{MOST_WEIGHTS:.2g}; coordinate_check measures it by training"
            )
        verifier = cls(request.folded(), along, by_size)
        try:
            verifier.plans = [verifier.request.plan(own) for own in by_size]
        except LargenError as error:
            raise NotVerified(f"no plan for four times the base: {_words(error)}") from None
        verifier.ratios = tuple(ratios_of(request, plan)[along] for plan in verifier.plans)
        if len(set(verifier.ratios)) < 2:
            raise NotVerified("no weight of the model grows")
        verifier.inputs = _inputs(request.example, by_size)
        return verifier

    @property
    def squares(self) -> bool:
        """Whether the effects are squares."""
        return self.request.moved.kind == "proportional"

    def plan(self, size: int, corrections: Sequence[Correction]) -> TorchPlan:
        """Return the corrected plan of one size."""
        names = self.facts[size].names
        return with_corrections(self.request, self.plans[size], corrections, names)

    def survey(self, corrections: Sequence[Correction] = (), inputs: bool = False) -> Survey:
        """Measure the effects in all networks.

        Parameters
        ----------
        corrections
            Corrections of the plans.
        inputs
            Whether to measure effects on modules' inputs, too.
        """
        rows, layouts = [], []
        for i, (args, kwargs) in enumerate(self.inputs):
            plan, row = self.plan(i, corrections), []
            for seed in range(FIRST, FIRST + SEEDS):
                start = perf_counter()
                model = plan.build(seed=seed, device="cpu")
                with fixed_seed(seed):
                    numbers, layout = measured(model, plan, args, kwargs, self.along, inputs)
                # A factor of the output hides which weights act on it first.
                layout = layout if not corrections else replace(
                    layout, final=self.final(i).final, last=self.final(i).last
                )  # fmt: skip
                row.append(with_sums(numbers, layout, self.facts[i].names))
                if perf_counter() - start > MOST_SECONDS and not corrections:
                    raise NotVerified(
                        f"one network takes {perf_counter() - start:.1f} s; pass a smaller "
                        "example=, or measure by coordinate_check"
                    )
            rows.append(row)
            layouts.append(layout)
        if not corrections:
            self._layouts = layouts
        return Survey(fitted(self.ratios, rows), layouts[0], layouts[-1], rows)

    def final(self, size: int) -> Layout:
        """Return the parts of one size's model without corrections."""
        return self._layouts[size]

    def record(self) -> Verification:
        """Return the verdict on the plan as it is.

        Raises
        ------
        NotVerified
            If the networks cannot be measured.
        """
        try:
            survey = self.survey()
        except NotVerified:
            raise
        except Exception as error:
            raise NotVerified(f"the forward or backward pass failed: {_words(error)}") from None
        if ("output", "all", "") not in survey.fits:
            raise NotVerified("the output is not finite, or no weight acts on it")
        effects = effects_of(survey.fits, survey.layout, self.along, self.squares)
        found = Verification(self.along, self.ratios, SEEDS, tuple(effects))
        if found.passed:
            return found
        return replace(found, corrections=tuple(next_corrections(self, survey, (), [])))

    def repair(self) -> tuple[list[Correction], Verification]:
        """Correct the plan until no slope is wrong; return the corrections and the last verdict."""
        corrections: list[Correction] = []
        self.survey()
        tried: list[str] = []
        for _ in range(MOST_REPAIRS):
            survey = self.survey(corrections, inputs=True)
            more = next_corrections(self, survey, corrections, tried)
            if not more:
                break
            corrections += more
        effects = effects_of(survey.fits, survey.layout, self.along, self.squares)
        return corrections, Verification(self.along, self.ratios, SEEDS, tuple(effects))


def with_corrections(
    request: Request,
    plan: TorchPlan,
    corrections: Sequence[Correction],
    names: Mapping[str, str],
) -> TorchPlan:
    """Return a plan with corrections, which name weights as the base does."""
    if not corrections:
        return plan
    ratios = ratios_of(request, plan)
    weights, multipliers = corrected(
        plan.weights, plan.multipliers, corrections, ratios["width"], ratios["depth"],
        plan.decay, names,
    )  # fmt: skip
    return replace(plan, weights=weights, multipliers=multipliers)


def ratios_of(request: Request, plan: TorchPlan) -> dict[str, float]:
    """Return the ratios of target and base by kind of size.

    That of widths is the builder's, since a weight may have n² rows. Of several widths the one that
    differs most counts.
    """
    widths = [
        plan.target[key] / size
        for key, size in plan.base.items()
        if key not in (request.depth, request.experts)
    ]
    width = max(widths, key=lambda ratio: abs(log(ratio)), default=1.0)
    return {"width": width, "depth": plan.depth_ratio, "experts": plan.experts_ratio}


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
            record = Verifier.of(request, facts, along).record()
        except NotVerified as reason:
            record = Verification(along, reason=str(reason))
        records.append(record)
        if record.flags:
            warn(
                f"{record}\n  plan.repaired() corrects what it can by measured powers.",
                WrongPlan,
                3,
            )
    return replace(plan, verified=tuple(records))


def repaired(plan: TorchPlan) -> TorchPlan:
    """Return a plan with measured powers; see :meth:`TorchPlan.repaired`."""
    request = plan.request
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
            corrections, after = Verifier.of(request, facts, record.along).repair()
            if after.flags:
                raise InvalidInput(
                    f"plan: measured powers do not make every slope 0. With "
                    f"{', '.join(map(str, corrections)) or 'no correction'}:\n{after}"
                )
            plan = with_corrections(request, plan, corrections, facts.names)
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


def _inputs(example: Any, facts: Sequence[Facts]) -> list[Inputs]:
    """Return the arguments of every size's forward pass: the user's, or generated ones."""
    if example is not None:
        with fixed_seed(0):
            return [given(example, own.sizes.target) for own in facts]
    reading = facts[0].reading
    assert reading is not None  # noqa: S101 (checked by _not_meant)
    with fixed_seed(0):
        args = tuple(map(_more_samples, reading.base.args))
        kwargs = {name: _more_samples(value) for name, value in reading.base.kwargs.items()}
    return [(args, kwargs)] * len(facts)


def _more_samples(value: Any) -> Any:
    """Return a generated input with more samples, drawn from the same range."""
    if not isinstance(value, Tensor) or not value.ndim or value.shape[0] != BATCH:
        return value
    shape = (SAMPLES, *value.shape[1:])
    if value.is_floating_point():
        return torch.randn(shape).to(value) if value.std() > 0 else value[:1].expand(shape).clone()
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, shape).to(value.dtype)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:150]}"
