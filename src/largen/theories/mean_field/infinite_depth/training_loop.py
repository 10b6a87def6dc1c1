"""Training of one set of neurons: the loop over steps, and common parts of all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from largen.interrupts import Pace
from largen.theories.mean_field.infinite_depth.estimates import DepthKernels, Found

ESCAPED = 1e6  # outputs beyond this many times the size of the targets have diverged


class Loop(NamedTuple):
    """The training of one type of neurons, as functions of its state."""

    # advance(state, stop): train up to a step, or until there is no room for directions or the
    # outputs have diverged.
    advance: Callable[[Any, int], Any]
    has_room: Callable[[Any], Any]  # whether there is room for the directions of another step
    grown: Callable[[Any], Any]  # returns the state with more room
    look: Callable[[Any], DepthKernels]  # returns the kernels of a state


def run_through(
    loop: Loop, state: Any, record_at: Sequence[int], times: int, targets: Any
) -> tuple[Any, Found]:
    """Train to the end, and return the last state and the results, without ranks of bases."""
    kernels, pace = {}, Pace()
    for stop in sorted({*record_at, times}):
        while int(state.step) < stop:
            for _, goal in pace.segments(int(state.step), stop):
                state = loop.advance(state, goal)
                if int(state.step) < goal:
                    break
            if int(state.step) < stop and bool(loop.has_room(state)):
                break  # the outputs have diverged
            if int(state.step) < stop:
                state = loop.grown(state)
        if stop < times:
            found = jax.tree.map(np.asarray, loop.look(state))
            if int(state.step) < stop:
                found = jax.tree.map(lambda x: np.full_like(x, np.nan), found)
            kernels[stop] = found
    outputs = np.array(state.outputs, np.float64)
    largest = ESCAPED * (1 + np.abs(np.asarray(targets)).max())
    escaped = ~(np.abs(outputs).max((1, 2)) < largest)
    outputs[np.logical_or.accumulate(escaped)] = np.nan
    return state, Found(outputs, [kernels[t] for t in record_at], np.zeros(0))


def train_until(stepped, has_room, state: Any, targets: Array, stop: Any) -> Any:
    """Return the state after as many steps as there is room for, unless the outputs diverge."""
    most = ESCAPED * (1 + jnp.abs(targets).max())

    def goes_on(state):
        last = state.outputs[jnp.maximum(state.step - 1, 0)]
        bounded = (state.step == 0) | jnp.all(jnp.abs(last) < most)
        return (state.step < stop) & bounded & has_room(state)

    return lax.while_loop(goes_on, stepped, state)


class LossGradient(NamedTuple):
    """The gradient of the loss at a step."""

    batch: Int[Array, " k"]  # samples of the step
    delta: Float[Array, "k output"]  # Δ over their number
    # z, pull: gradients behind the read-out, and their factors: Σ_c Δ_c ∂f_c/∂h = pull · ∂(z·h)/∂h.
    z: Float[Array, "k n"]
    pull: Float[Array, " k"]


def loss_gradient(model: Any, state: Any, constants: Any, outputs: Array) -> LossGradient:
    """Return the gradient of the loss at a step, given the outputs of all samples."""
    batch: Any = jnp.arange(len(constants.targets))
    if constants.batches is not None:
        batch = constants.batches[jnp.minimum(state.step, len(constants.batches) - 1)]
    f = outputs[batch]
    delta = model.loss.residual(f.reshape(-1, *model.output_shape), constants.targets[batch])
    delta = delta.reshape(f.shape).astype(f.dtype) / len(f)
    readout = constants.readout[0] * state.params.readout
    if model.outputs == 1:
        return LossGradient(
            batch, delta, jnp.broadcast_to(readout, (len(f), readout.shape[1])), delta[:, 0]
        )
    # Only Σ_c Δ_c ∂f_c/∂h enters the update.
    pull = jnp.abs(delta).max(1) + jnp.finfo(f.dtype).tiny
    return LossGradient(batch, delta, (delta / pull[:, None]) @ readout, pull)


def is_steady(model: Any, constants: Any) -> bool:
    """Whether gradients, of all samples each time and of one output, change little in a step."""
    return model.outputs == 1 and constants.batches is None


def step_with_momentum(state: Any, change: Any, constants: Any) -> tuple[Any, Any]:
    """Return parameters and velocities after a step: v ← βv + change − ηλθ, θ ← θ + v."""
    lr = constants.rates[state.step]
    velocity = jax.tree.map(
        lambda v, dx, x, shrink: constants.momentum * v + dx - lr * shrink * x,
        state.velocity,
        change,
        state.params,
        constants.decay,
    )
    return jax.tree.map(jnp.add, state.params, velocity), velocity


def tangent_kernel(model: Any, constants: Any, body: Array, first: Array, last: Array) -> Array:
    """Return K, given the part of the blocks, G(0) of the read-in, and features of the read-out."""
    ends = (constants.fields * constants.field_rate) @ constants.fields.T
    out = constants.readout[0] ** 2 * constants.readout[1] * constants.precision.weight
    out = out * (last @ last.T)
    out = (out + constants.readout[2])[..., None, None] * jnp.eye(model.outputs, dtype=out.dtype)
    return body + ends[..., None, None] * first + out
