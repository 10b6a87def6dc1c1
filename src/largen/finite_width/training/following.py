"""The training of one given network: the actual one, and the prediction of its expansion."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from largen.finite_width.training.lazy_expansion import ORDERS, ExpandedDescent, ExpandedFlow
from largen.interrupts import Pace
from largen.networks.descent import Descent
from largen.networks.flow import MOST_STEPS, Flow
from largen.networks.plan import Numbers, Plan
from largen.progress import Report

PREDICTED, ACTUAL = "predicted", "actual"


def trajectory_of(
    what: str, plan: Plan, numbers: Numbers, params: Any, report: Report
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return outputs and kernels in time: ``"predicted"`` to each order, or ``"actual"``."""
    flows = plan.optimizer.continuous
    steps = MOST_STEPS if flows else plan.time_points
    state = _begun(what, plan, numbers, params)
    for begin, end in Pace(2).segments(0, steps):
        state, ended = _advance(what, plan, numbers, params, state, begin, end)
        if flows and bool(ended):
            break
        jax.block_until_ready(state)
        if not flows:
            report(end, plan.time_points)
    report(plan.time_points, plan.time_points)
    return jax.tree.map(np.asarray, _course(what, plan, numbers, params).results(state)[:2])


def working_bytes(plan: Plan, numbers: Numbers) -> float:
    """Return roughly the bytes that the expansion takes in addition to its results.

    Measured: 0.8 to 1.25 times this plus the results for 0.2 to 0.7 GB, 100 MB more for small nets.
    """
    rows, item = len(numbers.x), numbers.x.dtype.itemsize
    sites = [row.site for row in plan.table.rows if row.kind == "weight"]
    neurons = plan.network.width * sum(float(s.copies * s.width_ratio) for s in sites)
    flows = plan.optimizer.continuous
    copies = ORDERS * (12 if flows else 4) + 8
    outputs = plan.network.outputs or 1
    return item * (copies * plan.network.parameters + 16 * rows * neurons * (1 + outputs))


def kept_bytes(plan: Plan, numbers: Numbers) -> float:
    """Return the bytes of the results."""
    rows, outputs = len(numbers.x), plan.network.outputs or 1
    kernels = len(plan.record_at) * rows * plan.samples * outputs**2
    return numbers.x.dtype.itemsize * (ORDERS + 1) * (plan.time_points * rows * outputs + kernels)


def _course(what: str, plan: Plan, numbers: Numbers, params: Any) -> Any:
    flows = plan.optimizer.continuous
    numbers = jax.tree.map(jax.numpy.asarray, numbers)
    if what == PREDICTED:
        return (ExpandedFlow if flows else ExpandedDescent)(plan, numbers, params)
    return Flow(plan, numbers) if flows else Descent(plan, numbers, jax.random.key(0))


@partial(jax.jit, static_argnums=(0, 1))
def _begun(what: str, plan: Plan, numbers: Numbers, params):
    return _course(what, plan, numbers, params).begin(params)


@partial(jax.jit, static_argnums=(0, 1))
def _advance(what: str, plan: Plan, numbers: Numbers, params, state, begin, end):
    course = _course(what, plan, numbers, params)
    state = course.advance(state, begin, end)
    return state, course.ended(state, end)
