"""The static part of a run, for which the training loop is compiled, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import layers_of
from largen.errors import NoRule
from largen.networks.modules import Errors
from largen.networks.network import FiniteNetwork, finite_network
from largen.parameterizations import Optimizer, RuleTable, momentum_of
from largen.runs import Loss, Run


@dataclass(frozen=True)
class Plan:
    """The static part of a run at a width; each has one compiled program."""

    network: FiniteNetwork
    optimizer: Optimizer  # with rate 1: the rate is in Numbers, so that others need no compilation
    table: RuleTable[float]  # the optimizer's, at this size
    loss: Loss
    time_points: int  # initialisation included
    samples: int  # P
    records: tuple[str, ...]  # "feature_kernel", "gradient_kernel", "ntk", …
    record_at: tuple[int, ...]  # increasing time indices

    def per_leaf(self, field: str) -> Any:
        """Return one scale of the rule table as a tree shaped as the parameters."""
        return self.network.per_leaf(self.table, field)


class Numbers(NamedTuple):
    """The part of a run that does not need compilation."""

    rates: Any  # η₀, one number or one for each step
    x: Any  # training inputs followed by test inputs
    y: Any  # training targets
    batches: Any  # the samples of each step, or None for the full batch
    times: Any  # recorded times


def plan_of(
    run: Run, width: int, records: tuple[str, ...], record_at: tuple[int, ...]
) -> tuple[Plan, Numbers]:
    """Split a run at a width into its static part and its numbers."""
    data, optimizer = run.data, run.optimizer
    network = finite_network(
        run.net, run.param, width=width, inputs=data.inputs, outputs=run.outputs
    )
    table = run.param.table(run.net, run.optimizer, width=width, inputs=data.inputs)
    if optimizer.continuous and (not optimizer.descends or momentum_of(optimizer)):
        name = type(optimizer).__name__
        said = f"optimizer: networks follow the flow of gradients alone, and {name} says another."
        raise NoRule("the training of networks", optimizer, said=said)
    plan = Plan(
        network=network,
        optimizer=replace(run.optimizer, lr=1.0, **_uncompiled(run.optimizer)),
        table=table,
        loss=run.loss,
        time_points=len(run.times),
        samples=len(data.x_train),
        records=records,
        record_at=record_at,
    )
    dtype = data.x_train.dtype
    rates = np.asarray(run.optimizer.lr if run.steps is None else run.rates, dtype)
    times = np.asarray(run.times, dtype)
    return plan, Numbers(rates, data.x, data.y_train, run.batches, times)


def _uncompiled(optimizer: Optimizer) -> dict[str, Any]:
    return {} if optimizer.continuous else {"seed": 0, "order": None, "schedule": None}


def objective(plan: Plan, params: Any, x: Any, y: Any, feedback: Any = None) -> tuple[Any, Any]:
    """Return the mean loss, whose derivatives pass by the feedback if there is one, and outputs."""
    feedback = feedback_at(plan, params, x, y, feedback)
    f = plan.network.outputs_of(params, x, feedback)
    return plan.loss.mean(f, y), f


def outputs(plan: Plan, params: Any, x: Any) -> Any:
    """Return outputs on all samples; test samples are a batch of their own if a layer has one."""
    if not any(layer.couples_samples for layer in layers_of(plan.network.net)):
        return plan.network.outputs_of(params, x)
    return outputs_given(plan, params, x, plan.network.outputs_of(params, x[: plan.samples]))


def outputs_given(plan: Plan, params: Any, x: Any, f_train: Any) -> Any:
    """Return outputs on all samples, given those on training samples."""
    if len(x) == plan.samples:
        return f_train
    f_test = plan.network.outputs_of(params, x[plan.samples :])
    return jnp.concatenate([f_train, f_test])


def feedback_at(plan: Plan, params: Any, x: Any, y: Any, feedback: Any) -> Any:
    """Return the feedback of samples with targets: under Hebbian learning their present errors."""
    if plan.optimizer.backward != "errors":
        return feedback
    network = plan.network
    f = network.outputs_of(lax.stop_gradient(params), x)
    errors = -jax.vmap(jax.grad(plan.loss.sample))(f, y).reshape(len(f), -1)
    return Errors(errors / (network.width**0.5 * network.table.gamma))
