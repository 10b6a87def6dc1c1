"""Training of one set of neurons: the loop over steps, and common parts of all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from largen.interrupts import Pace
from largen.theories.mean_field.engine.descent import (
    Step,
    goes_on,
    largest_outputs,
    pulled_together,
    residual,
    samples_of,
)
from largen.theories.mean_field.engine.parallel import Tell, ignore_progress
from largen.theories.mean_field.infinite_depth.estimates import DepthKernels, Found


class Loop(NamedTuple):
    """The training of one type of neurons, as functions of its state."""

    # advance(state, stop): train up to a step, or until there is no room for directions or the
    # outputs have diverged.
    advance: Callable[[Any, int], Any]
    has_room: Callable[[Any], Any]  # whether there is room for the directions of another step
    grown: Callable[[Any], Any]  # returns the state with more room
    look: Callable[[Any], DepthKernels]  # returns the kernels of a state


def run_through(
    loop: Loop,
    state: Any,
    record_at: Sequence[int],
    times: int,
    targets: Any,
    tell: Tell = ignore_progress,  # called with the fraction of steps made
) -> tuple[Any, Found]:
    """Train to the end, and return the last state and the results, without ranks of bases."""
    kernels, pace = {}, Pace()
    for stop in sorted({*record_at, times}):
        while int(state.step) < stop:
            for _, goal in pace.segments(int(state.step), stop):
                state = loop.advance(state, goal)
                if int(state.step) < goal:
                    break
                tell(goal / times)
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
    escaped = ~(np.abs(outputs).max((1, 2)) < largest_outputs(np.asarray(targets)))
    outputs[np.logical_or.accumulate(escaped)] = np.nan
    return state, Found(outputs, [kernels[t] for t in record_at], np.zeros(0))


def train_until(stepped, has_room, state: Any, targets: Array, stop: Any) -> Any:
    """Return the state after as many steps as there is room for, unless the outputs diverge."""

    def another(state):
        return goes_on(state.step, stop, state.outputs, targets) & has_room(state)

    return lax.while_loop(another, stepped, state)


class LossGradient(NamedTuple):
    """The gradient of the loss at a step."""

    batch: Any  # samples of the step
    delta: Float[Array, "k output"]  # Δ over their number
    # z, pull: gradients behind the read-out, and their factors: Σ_c Δ_c ∂f_c/∂h = pull · ∂(z·h)/∂h.
    z: Float[Array, "k n"]
    pull: Float[Array, " k"]


def loss_gradient(model: Any, state: Any, constants: Any, outputs: Array) -> LossGradient:
    """Return the gradient of the loss at a step, given the outputs of all samples."""
    batch = samples_of(constants.batches, state.step, len(constants.targets))
    delta = residual(model.loss, model.output_shape, outputs[batch], constants.targets[batch])
    z, pull = pulled_together(delta, constants.readout[0] * state.params.readout)
    return LossGradient(batch, delta, z, pull)


def is_steady(model: Any, constants: Any) -> bool:
    """Whether gradients, of all samples each time and of one output, change little in a step."""
    return model.outputs == 1 and constants.batches is None


def step_of(state: Any, constants: Any) -> Step:
    """Return the constants of the next step."""
    return Step(constants.rates[state.step], constants.momentum, constants.decay)


def tangent_kernel(model: Any, constants: Any, body: Array, first: Array, last: Array) -> Array:
    """Return K, given the part of the blocks, G(0) of the read-in, and features of the read-out."""
    ends = (constants.fields * constants.field_rate) @ constants.fields.T
    out = constants.readout[0] ** 2 * constants.readout[1] * constants.precision.weight
    out = out * (last @ last.T)
    out = (out + constants.readout[2])[..., None, None] * jnp.eye(model.outputs, dtype=out.dtype)
    return body + ends[..., None, None] * first + out
