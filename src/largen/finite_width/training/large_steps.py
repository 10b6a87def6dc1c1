"""Gradient descent of a network and of its quadratic model at several large rates together."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.interrupts import Pace
from largen.networks.expansion import taylor_expand
from largen.networks.network import FiniteNetwork
from largen.runs import Loss

LOST = 1e6  # times the initial loss: beyond it, training at this rate ends
MODELS = ("network", "quadratic")


class Setting(NamedTuple):
    """The static arguments of a compiled program."""

    network: FiniteNetwork
    loss: Loss  # ℓ
    # Degree of the expansion in parameters that is trained; None for the network itself.
    degree: int | None


class LargeStepState(NamedTuple):
    """The state of training at each rate; each leaf has a leading axis of rates."""

    params: Any  # the weights
    # peak, at_peak: the largest loss so far, and its step.
    peak: Any
    at_peak: Any
    above: Any  # number of steps until the loss was last above the level
    last: Any  # the present loss
    sound: Any  # whether training at this rate continues


def train_at_rates(
    setting: Setting, params: Any, x: Any, y: Any, rates: Any, steps: int, level: float
) -> LargeStepState:
    """Train at rates (rate,) in segments; ``level`` is the loss whose last crossing is recorded."""
    state = _begun(setting, params, x, y, rates)
    for begin, end in Pace(4).segments(0, steps):
        state = _advance(setting, params, x, y, rates, level, state, begin, end)
        jax.block_until_ready(state)
    return state


def curvatures(setting: Setting, start: Any, params: Any, x: Any) -> np.ndarray:
    """Return the largest eigenvalue of the tangent kernel over P at each rate, ``(rate,)``."""
    kernels = _kernels(setting, start, params, x)
    return np.linalg.eigvalsh(np.asarray(kernels, np.float64))[:, -1] / len(x)


def curvature(setting: Setting, params: Any, x: Any) -> float:
    """Return the largest eigenvalue of the tangent kernel over P before training."""
    return float(curvatures(setting, params, jax.tree.map(lambda p: p[None], params), x)[0])


def _outputs(setting: Setting, start: Any, params: Any, x: Any) -> Any:
    if setting.degree is None:
        return setting.network.outputs_of(params, x)
    return taylor_expand(setting.network.outputs_of, start, setting.degree)(params, x)


def _loss(setting: Setting, start: Any, params: Any, x: Any, y: Any) -> Any:
    return setting.loss.mean(_outputs(setting, start, params, x), y)


@partial(jax.jit, static_argnums=0)
def _begun(setting: Setting, params, x, y, rates) -> LargeStepState:
    first = _loss(setting, params, params, x, y)
    count = len(rates)
    many = jax.tree.map(lambda p: jnp.broadcast_to(p, (count, *p.shape)), params)
    losses, zeros = jnp.full(count, first), jnp.zeros(count, int)
    return LargeStepState(many, losses, zeros, zeros, losses, jnp.ones(count, bool))


@partial(jax.jit, static_argnums=0)
def _advance(
    setting: Setting, start, x, y, rates, level, state: LargeStepState, begin, end
) -> LargeStepState:
    scales = setting.network.per_leaf(setting.network.table, "lr")
    first = _loss(setting, start, start, x, y)

    def step(index, state: LargeStepState, rate) -> LargeStepState:
        slope = jax.grad(partial(_loss, setting, start))(state.params, x, y)
        params = jax.tree.map(lambda p, g, r: p - rate * r * g, state.params, slope, scales)
        loss = _loss(setting, start, params, x, y)
        sound = state.sound & (loss <= LOST * first)
        loss = jnp.where(sound, loss, state.last)
        higher = loss > state.peak
        return LargeStepState(
            jax.tree.map(lambda new, old: jnp.where(sound, new, old), params, state.params),
            jnp.where(higher, loss, state.peak),
            jnp.where(higher, index + 1, state.at_peak),
            jnp.where(loss > level, index + 1, state.above),
            loss,
            sound,
        )

    def all_rates(index, state: LargeStepState) -> LargeStepState:
        return jax.vmap(step, in_axes=(None, 0, 0))(index, state, rates)

    return jax.lax.fori_loop(begin, end, all_rates, state)


@partial(jax.jit, static_argnums=0)
def _kernels(setting: Setting, start, params, x):
    scales = setting.network.per_leaf(setting.network.table, "lr")

    def kernel(params):
        flat = lambda p: _outputs(setting, start, p, x).reshape(-1)  # noqa: E731
        rows = jax.tree.leaves(jax.jacrev(flat)(params))
        weighted = zip(rows, jax.tree.leaves(scales), strict=True)
        return sum(
            rate * (row.reshape(len(row), -1) @ row.reshape(len(row), -1).T)
            for row, rate in weighted
        )

    return jax.lax.map(kernel, params)


def bytes_of(setting: Setting, samples: int, rates: int) -> float:
    """Return, roughly, the bytes that training at this number of rates takes at a time."""
    network = setting.network
    outputs = network.outputs or 1
    item = 8.0
    copies = 4 if setting.degree is None else 4 * 2**setting.degree
    activations = 8 * samples * network.width * (1 if setting.degree is None else 4)
    training = rates * (copies * network.parameters + activations)
    return item * (training + samples * outputs * network.parameters)
