"""Verification of plans in JAX: see :mod:`largen.transfer.verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import jax

from largen.errors import LargenError
from largen.parameterizations import Parameterization
from largen.transfer.hints import Hints
from largen.transfer.jax.effects import Measurement
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.survey import Survey
from largen.transfer.shapes import shapes
from largen.transfer.verdicts import fitted, with_sums
from largen.transfer.verified import Verification
from largen.transfer.verifying import (
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


def verified(
    plan: JaxPlan,
    survey: Survey,  # the parameters of the plan's shapes
    scheme: Parameterization,
    hints: Hints,
    forward: tuple[Callable[[Any, Any], Any], Any] | None,  # the forward pass, and its inputs
    plan_at: Callable[[Mapping[str, int]], JaxPlan],  # target → its plan
) -> JaxPlan:
    """Return the plan with the records of its verification; warn if a slope is wrong."""

    def record_of(along: str) -> Verification:
        why = not_meant(scheme, along)
        if why or forward is None:
            raise NotVerified(why or "pass verify=(apply, inputs), the forward pass and its inputs")
        networks = _Networks(survey, hints, along, forward, plan_at)
        return measured_verdict(along, networks.ratios, plan.update.kind, networks.measure)[0]

    return with_records(plan, hints, record_of)


class _Networks:
    """Networks of several sizes, by plans of these sizes."""

    def __init__(
        self,
        survey: Survey,
        hints: Hints,
        along: str,
        forward: tuple[Callable[[Any, Any], Any], Any],
        plan_at: Callable[[Mapping[str, int]], JaxPlan],
    ):
        self.along, (self.apply, self.example) = along, forward
        sizes, init = survey.sizes, survey.init
        by_size = sizes_along(sizes, along)
        try:
            self.plans = [plan_at(at) for at in by_size]
        except LargenError as error:
            raise NotVerified(f"no plan for four times the base: {words_of(error)}") from None
        count = sum(prod(w.shape) for w in self.plans[-1].weights)
        check_number_of_weights(count, by_size[-1])
        self.ratios = tuple(ratios_of(hints, plan)[along] for plan in self.plans)
        if len(set(self.ratios)) < 2:
            raise NotVerified("no weight of the model grows")
        told = (hints.depth, hints.delta, hints.experts)
        surveys = [Survey(init, shapes(sizes.base, at, *told), survey.layout) for at in by_size]
        self.names = [
            {name: own.names[name] if along == "width" else own.copies_of(name) for name in plan}
            for own, plan in zip(surveys, map(_names, self.plans), strict=True)
        ]
        self.measurements: list[Measurement] = []

    def measure(self, seeds: int) -> Slopes:
        """Measure the effects in so many networks of each size."""
        rows = []
        for i, plan in enumerate(self.plans):
            row = []
            for seed in range(seeds):
                parameters = plan.init(seed)
                if len(self.measurements) == i:
                    self.measurements.append(self._measurement(plan, parameters))
                numbers = self.measurements[i](parameters)
                row.append(with_sums(numbers, self.measurements[i].layout, self.names[i]))
            rows.append(row)
        layouts = [own.layout for own in self.measurements]
        return Slopes(fitted(self.ratios, rows), layouts[0], layouts[-1], rows)

    def _measurement(self, plan: JaxPlan, parameters: Any) -> Measurement:
        inputs = self.example(**plan.target) if callable(self.example) else self.example
        inputs = jax.tree.map(jax.numpy.asarray, inputs)
        return Measurement(self.apply, parameters, inputs, plan, self.along)


def _names(plan: JaxPlan) -> list[str]:
    return [weight.name for weight in plan.weights]
