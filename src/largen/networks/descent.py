"""Training in steps: one compiled loop for gradient descent and adaptive optimizers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.networks.plan import Numbers, Plan, objective, outputs_given
from largen.networks.records import record
from largen.networks.updates import shaken, transformation


def descend(plan: Plan, params: Any, numbers: Numbers, key: Any) -> tuple[Any, dict[str, Any], Any]:
    """Return outputs at every step, ``(entry, sample[, output])``, records and last parameters.

    The loop runs from one recorded entry to the next: an outer scan over records, and within it
    a loop whose length is data, so that kernels are compiled once however many records there are.
    The key is that of the noise, if there is any.
    """
    import optax

    network, x = plan.network, numbers.x
    rates = jnp.asarray(numbers.rates)
    gradient = jax.grad(lambda p, x, y: objective(plan, p, x, y), has_aux=True)

    def step(index, state):
        params, memory, outputs = state
        if numbers.batches is None:
            slope, f_train = gradient(params, x[: plan.samples], numbers.y)
            f = outputs_given(plan, params, x, f_train)
        else:
            f = network.outputs_of(params, x)
            batch = jnp.asarray(numbers.batches)[index]
            slope, _ = gradient(params, x[batch], numbers.y[batch])
        outputs = outputs.at[index].set(f)
        updates, memory = transformation(plan, rates[index]).update(slope, memory, params)
        updates = shaken(plan, updates, rates[index], jax.random.fold_in(key, index))
        return optax.apply_updates(params, updates), memory, outputs

    def to_record(state_at, entry):
        state, start = state_at
        state = lax.fori_loop(start, entry, step, state)
        return (state, entry), record(plan, state[0], x)

    shape = jax.eval_shape(network.outputs_of, params, x)
    state = (
        params,
        transformation(plan, rates[0]).init(params),
        jnp.zeros((plan.entries, *shape.shape), shape.dtype),
    )
    start, records = jnp.int32(0), {}
    if plan.records:
        entries = jnp.asarray(plan.record_at, jnp.int32)
        (state, start), records = lax.scan(to_record, (state, start), entries)
    params, _, outputs = lax.fori_loop(start, jnp.int32(plan.entries - 1), step, state)
    return outputs.at[-1].set(network.outputs_of(params, x)), records, params
