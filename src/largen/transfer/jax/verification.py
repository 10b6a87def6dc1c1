"""Verification of plans in JAX: see :mod:`largen.transfer.verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput, LargenError
from largen.parameterizations import Parameterization
from largen.transfer import repair
from largen.transfer.copies import equal_copies
from largen.transfer.corrections import Correction
from largen.transfer.hints import Hints
from largen.transfer.jax.effects import Measurement, Pass, scores_of
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.scores import growing
from largen.transfer.jax.survey import Survey
from largen.transfer.jax.trees import weights_of
from largen.transfer.shapes import shapes
from largen.transfer.verdicts import (
    fitted,
    in_the_bases_names,
    in_the_first_copy,
    with_sums,
)
from largen.transfer.verified import Verification
from largen.transfer.verifying import (
    SEEDS,
    STEPS,
    NotVerified,
    Slopes,
    check_number_of_weights,
    measured_verdict,
    not_meant,
    ratios_of,
    sizes_along,
    with_records,
    words_of,
)

HAS_FACTOR = "the forward pass that was verified has the logits' factor: do not multiply again by"
EXACT = 1e-3  # relative distance below which logits are twice what they were


@dataclass(frozen=True)
class Request:
    """What a plan was made from."""

    survey: Survey  # the parameters of the plan's shapes
    scheme: Parameterization
    hints: Hints
    forward: tuple[Callable[[Any, Any], Any], Any] | None  # the forward pass, and its inputs
    plan_at: Callable[[Mapping[str, int]], JaxPlan]  # target → its plan


def verified(plan: JaxPlan, request: Request) -> JaxPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""

    notes: list[str] = []

    def record_of(along: str) -> Verification:
        why = not_meant(request.scheme, along)
        if why or request.forward is None:
            raise NotVerified(why or "pass verify=(apply, inputs), the forward pass and its inputs")
        networks = Networks(request, along)
        found, survey = _measured(networks)
        if not found.flags:
            return found
        if plan.multipliers:
            as_it_is, _ = _measured(Networks(request, along, tied=False))
            if not as_it_is.flags:
                notes.extend(f"{HAS_FACTOR} plan.factor({m.module!r})" for m in plan.multipliers)
                return as_it_is
        return replace(found, corrections=tuple(repair.next_corrections(networks, survey, (), [])))

    found = with_records(plan, request.hints, record_of)
    return replace(found, request=request, notes=(*plan.notes, *dict.fromkeys(notes)))


def _measured(networks: Networks) -> tuple[Verification, Slopes]:
    return measured_verdict(
        networks.along,
        networks.ratios,
        networks.kind,
        lambda seeds: networks.survey(seeds=seeds),
    )


def repaired(plan: JaxPlan) -> JaxPlan:
    """Return a plan with measured powers; see :meth:`JaxPlan.repaired`."""
    if not any(record.flags for record in plan.verified):
        return plan
    if plan.request is None:
        raise InvalidInput(repair.NOT_KNOWN)
    found = repair.repaired(
        plan, plan.request.hints, lambda along, steps: Networks(plan.request, along, steps=steps)
    )
    if any(not m.module for m in found.multipliers):
        note = "the forward pass has to multiply its output by plan.factor()"
        found = replace(found, notes=(*found.notes, note))
    return found


class Networks:
    """Networks of several sizes, by plans of these sizes.

    ``tied``: whether logits of tied read-outs are multiplied by the plans' factors.
    """

    def __init__(
        self, request: Request, along: str, *, tied: bool = True, steps: Sequence[int] = STEPS
    ):
        self.along, self._hints, self._tied = along, request.hints, tied
        assert request.forward is not None
        self.apply, self.example = request.forward
        hints, survey = request.hints, request.survey
        sizes, init = survey.sizes, survey.init
        by_size = sizes_along(sizes, along, steps)
        try:
            self.plans = [request.plan_at(at) for at in by_size]
        except LargenError as error:
            raise NotVerified(f"no plan for {by_size[-1]}: {words_of(error)}") from None
        self.kind = self.plans[0].update.kind
        count = sum(prod(w.shape) for w in self.plans[-1].weights)
        check_number_of_weights(count, by_size[-1])
        self.ratios = tuple(ratios_of(hints, plan)[along] for plan in self.plans)
        if len(set(self.ratios)) < 2:
            raise NotVerified("no weight of the model grows")
        told = (hints.depth, hints.delta, hints.experts)
        surveys = [Survey(init, shapes(sizes.base, at, *told), survey.layout) for at in by_size]
        self._names_of = [self._base_names(own) for own in surveys]
        self._parts = [own.names for own in surveys]
        self.names = self._base_names(survey)
        self._stacked = set(survey.stacked) if along == "depth" else set()
        self.measurements: list[Measurement] = []

    @property
    def copies(self) -> dict[str, str]:
        """Weights of equal blocks → a name that their copies share."""
        return equal_copies(self.plans[0].weights) if self.along == "width" else {}

    def _base_names(self, survey: Survey) -> dict[str, str]:
        """Return weights → their names in the base, in depth without the numbers of blocks."""
        if self.along == "width":
            return {name: survey.names[name] for name in survey.weights}
        return {name: survey.copies_of(name) for name in survey.weights}

    def _plan(self, size: int, corrections: Sequence[Correction]) -> JaxPlan:
        return repair.with_corrections(
            self.plans[size], self._hints, corrections, self._names_of[size]
        )

    def survey(
        self, corrections: Sequence[Correction] = (), inputs: bool = False, seeds: int = SEEDS
    ) -> Slopes:
        """Measure the effects in networks of each size; those on inputs are not measured."""
        rows = []
        for i in range(len(self.plans)):
            plan, row = self._plan(i, corrections), []
            for seed in range(seeds):
                parameters = plan.init(seed)
                if len(self.measurements) == i:
                    self.measurements.append(self._measurement(plan, parameters))
                numbers = in_the_bases_names(self.measurements[i](parameters, plan), self._parts[i])
                layout, stacked = self.measurements[i].layout, self._stacked
                row.append(with_sums(numbers, layout, self._names_of[i], stacked))
            rows.append(row)
        layouts = [own.layout for own in self.measurements]
        return Slopes(fitted(self.ratios, rows), layouts[0], layouts[-1], rows)

    def size(
        self,
        place: str,
        corrections: Sequence[Correction],
        doubled: Collection[str] = (),
        at: int = -1,
    ) -> float:
        """Return a tensor's root mean square in one network, some weights doubled."""
        side, _, name = place.partition(" of ")
        passed = self._pass(corrections, doubled, at)
        tensors = passed.inputs if side == "input" else passed.tensors
        z = tensors[in_the_first_copy(name, tensors, self._parts[at])]
        return float(np.sqrt(np.mean(np.square(np.asarray(z, np.float64)))))

    def logit_settings(
        self, survey: Slopes, place: str, corrections: Sequence[Correction]
    ) -> list[tuple[str, str]]:
        """Return the initial values and the rate of a weight that multiplies attention logits."""
        logits = self._pass(corrections).logits_at(place)
        for name in reversed(survey.layout.modules):
            if ("logits", place, name) not in survey.fits:
                continue
            again = self._pass(corrections, (name,)).logits_at(place)
            if np.nanmax(abs(again - 2 * logits)) < EXACT * np.nanmax(abs(logits)):
                return [("init", name), ("lr", name)]
        return []

    def _pass(
        self, corrections: Sequence[Correction], doubled: Collection[str] = (), at: int = -1
    ) -> Pass:
        """Call a network with some weights doubled."""
        parameters = self._plan(at, corrections).init(0)
        weights = {k: (1 + (k in doubled)) * w for k, w in weights_of(parameters).items()}
        return self.measurements[at].forward(weights, self.measurements[at].inputs)

    @cached_property
    def scores(self) -> dict[str, int | None]:
        """The products of two signals whose terms grow → the axis of the result that grows."""
        if self.along != "width":
            return {}
        small, large = (
            scores_of(self.apply, plan.init(0), self._inputs(plan))
            for plan in (self.plans[0], self.plans[-1])
        )
        return growing(small, large)

    def _inputs(self, plan: JaxPlan) -> Any:
        inputs = self.example(**plan.target) if callable(self.example) else self.example
        return jax.tree.map(jax.numpy.asarray, inputs)

    def _measurement(self, plan: JaxPlan, parameters: Any) -> Measurement:
        single = self.along == "width" and self.kind != "proportional"
        tied = {m.module: m.factor for m in plan.multipliers if m.module and self._tied}
        return Measurement(self.apply, parameters, self._inputs(plan), single, tied, self.scores)
