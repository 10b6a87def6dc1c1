"""Replicas of one JAX model trained together, by ``jax.vmap``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput
from largen.text import shown
from largen.transfer.jax.plan import JaxPlan
from largen.transfer.jax.survey import shapes_of
from largen.transfer.jax.trees import is_weight
from largen.transfer.replicas import (
    DIVERGED,
    LOOK_EVERY,
    Replica,
    TrainedReplicas,
    batch_of,
    checked,
)
from largen.transfer.schedules import Schedule

Batch = tuple[Any, Any]
Loss = Callable[[jax.Array, Any], jax.Array]


def cross_entropy(outputs: Any, targets: Any) -> Any:
    """Return the mean of −log softmax(outputs)[target] over samples and positions."""
    logs = jax.nn.log_softmax(outputs)
    return -jnp.take_along_axis(logs, targets[..., None], axis=-1).mean()


def mse(outputs: Any, targets: Any) -> Any:
    """Return the mean squared error over samples and outputs."""
    return jnp.mean((outputs - targets) ** 2)


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "mse": mse}


def train_replicas(
    plan: JaxPlan,  # the plan, with its function for initial parameters
    apply: Callable[[Any, Any], Any],  # apply(parameters, inputs) → outputs
    # The replicas' settings; weight decay and momentum must be the same for all.
    replicas: Sequence[Replica],
    # batches, loss, steps, evaluation, schedule, report: as in
    # transfer.torch.replicas.train_replicas.
    batches: Callable[[int], Batch],
    loss: Loss | str,
    *,
    steps: int,
    evaluation: Sequence[Batch],
    schedule: Schedule | None = None,
    report: Callable[[int, int], object] | None = None,
) -> TrainedReplicas:
    """Train replicas of the plan's target model together.

    Updates are proportional to the rate, so that all share the plan's transformation at η₀ = 1.
    Once half of all have diverged they are dropped, since a smaller stack is compiled again.
    """
    measure = checked(
        plan, JaxPlan, replicas, batches, steps, loss, LOSSES, schedule, evaluation, report
    )
    takes("apply", apply, ("parameters", "inputs"))
    move = _transformation(plan, replicas, schedule)

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        return measure(apply(parameters, x), y)

    def losses_of(parameters: Any, x: Any, y: Any) -> Any:
        return jax.vmap(lambda f, t: measure(f[None], t[None]))(apply(parameters, x), y)

    def one(parameters: Any, state: Any, lr: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(loss_of)(parameters, x, y)
        updates, state = move.update(gradient, state, parameters)
        moved = jax.tree.map(lambda p, u: p + (lr * u).astype(p.dtype), parameters, updates)
        return value, moved, state

    step = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None, None)))
    parameters = _stack(plan, replicas)
    state = jax.vmap(move.init)(parameters)
    lr = jnp.array([replica.lr for replica in replicas], jnp.float32)
    alive = np.arange(len(replicas))
    dead = np.zeros(len(replicas), bool)
    losses = np.full((len(replicas), steps), np.inf)
    for pair in evaluation:
        _check_batch(apply, measure, plan, *pair)
    for t in range(steps):
        x, y = batch_of(batches, t)
        if t == 0 or measure is cross_entropy:
            _check_batch(apply, measure, plan, x, y)
        value, parameters, state = step(parameters, state, lr, x, y)
        losses[alive, t] = value
        if (t + 1) % LOOK_EVERY and t + 1 < steps:
            continue
        with np.errstate(invalid="ignore"):
            sound = (losses[:, : t + 1] <= DIVERGED * losses[:, :1]).all(1)
        dead |= ~sound
        if report is not None:
            report(t + 1, steps)
        if dead.all():
            break
        if 2 * dead[alive].sum() >= len(alive):
            kept = np.flatnonzero(~dead[alive])
            parameters, state, lr = _chosen((parameters, state, lr), kept)
            alive = alive[kept]
    each = np.full((len(replicas), sum(len(y) for _, y in evaluation)), np.inf)
    evaluate = jax.jit(jax.vmap(losses_of, in_axes=(0, None, None)))
    blocks = [np.asarray(evaluate(parameters, x, y), float) for x, y in evaluation]
    each[alive] = np.concatenate(blocks, 1)
    each[dead] = np.inf
    return TrainedReplicas(*(np.where(np.isfinite(a), a, np.inf) for a in (losses, each)))


def _check_batch(apply: Any, measure: Loss, plan: JaxPlan, x: Any, y: Any) -> None:
    """Check that outputs, targets and the loss fit together."""
    assert plan.make_parameters is not None
    shapes = shapes_of(plan.make_parameters, plan.target)
    outputs = outputs_on_shapes("apply", apply, shapes, x)
    if not hasattr(outputs, "shape"):
        raise InvalidInput(f"apply: wanted one array of outputs, got {shown(outputs)}.")
    wanted = np.shape(y)
    if measure in (cross_entropy, mse):
        wanted = outputs.shape[:-1] if measure is cross_entropy else outputs.shape
    if np.shape(y) != wanted:
        raise InvalidInput(
            f"batches: wanted targets of the shape {wanted} for outputs of the shape "
            f"{outputs.shape}, got {np.shape(y)}."
        )
    if measure is cross_entropy:
        labels, classes = np.asarray(y), outputs.shape[-1]
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
            raise InvalidInput(
                f"batches: wanted targets that are classes from 0 to {classes - 1}, got "
                f"{labels.dtype} from {labels.min()} to {labels.max()}."
            )
    value = outputs_on_shapes("loss", measure, outputs, y)
    if getattr(value, "shape", None) != () or not is_weight(value):
        raise InvalidInput(f"loss: wanted one real number, got {shown(value)}.")


def _transformation(plan: JaxPlan, replicas: Sequence[Replica], schedule: Schedule | None) -> Any:
    decays = {replica.weight_decay for replica in replicas}
    momenta = {replica.momentum for replica in replicas}
    options = {"momentum": replicas[0].momentum} if plan.optimizer == "momentum" else {}
    if len(decays) > 1 or (options and len(momenta) > 1):
        raise InvalidInput(
            "replicas: in JAX, those trained together have one weight decay and one momentum."
        )
    (decay,) = decays
    if decay and plan.decay == "independent":
        raise InvalidInput("replicas: independent weight decay is not proportional to the rate.")
    return plan.optax(lr=1.0, weight_decay=decay, schedule=schedule, **options)


def _chosen(stacks: Any, which: np.ndarray) -> Any:
    return jax.tree.map(lambda stack: stack[which], stacks)


def _stack(plan: JaxPlan, replicas: Sequence[Replica]) -> Any:
    made = {seed: plan.init(seed) for seed in {replica.seed for replica in replicas}}
    return jax.tree.map(lambda *a: jnp.stack(a), *(made[replica.seed] for replica in replicas))
