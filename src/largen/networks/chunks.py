"""An ensemble in chunks that fit into memory, each trained in segments of about half a second.

A chunk is trained group by group. The networks of a group are trained together: on accelerators all
of a chunk, on CPUs as many small ones as the cache holds, or a single one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.interrupts import SEGMENT, Pace, interruptible
from largen.memory import check_fits
from largen.networks.descent import Descent
from largen.networks.flow import MOST_STEPS, Flow
from largen.networks.network import FiniteNetwork
from largen.networks.plan import Numbers, Plan
from largen.networks.spectra import VALUES
from largen.progress import Report

# A function of a network, its initial and its trained parameters, and all inputs.
Measure = Callable[[FiniteNetwork, Any, Any, Any], Any]
# Chunks that are computed at the same time, one on each core; more would only cost memory.
IN_FLIGHT = 2
SLOW = 1e9  # multiplications per second of a slow machine; they set the length of the first segment
# Multiplications of a step of all networks that a CPU trains together, and the fewest and the most
# of them. Fewer are bound by the time that each operation takes to begin, and larger networks fill
# the cache one by one.
TOGETHER, FEWEST_TOGETHER, MOST_TOGETHER = 3e6, 8, 256
# Chunk size, in multiplications, above which Python's overhead is negligible; the least number of
# groups of a network, and of chunks of an ensemble, so that the cores end together.
ENOUGH, FEWEST_GROUPS, FEWEST_CHUNKS = 1e10, 8, 8


def in_chunks(
    plan: Plan,
    numbers: Numbers,
    key: Any,
    seeds: int,
    memory_budget: float,
    report: Report,
    measure: Measure | None = None,
) -> tuple[np.ndarray, Any]:
    """Train all seeds in equal chunks, two at a time; return outputs, and records or measurements.

    Training can be interrupted between two segments, on whose ends results do not depend.
    """
    kept, working = _bytes(plan, numbers)
    check_fits(
        seeds * kept if measure is None else 0,
        f"seeds: outputs and records of {seeds} networks at {plan.time_points} times",
        "Take fewer seeds or steps, or fewer time indices in record_at.",
    )
    check_fits(
        IN_FLIGHT * (kept + working),
        f"width: {IN_FLIGHT} networks of width {plan.network.width} in training",
        "Take a smaller width, or fewer samples.",
    )
    shape = _grouping(plan, numbers, seeds, memory_budget / IN_FLIGHT)
    groups, chunk = shape[0], prod(shape)
    flows = plan.optimizer.continuous
    # Steps of a chunk. Gradient flow, whose number of steps is unknown, pauses after each group.
    steps = _most_steps(plan) * groups
    unit = MOST_STEPS if flows else steps
    pace = Pace(_first_segment(plan, numbers, chunk // groups))

    def trained(start: int) -> Iterator[Any]:
        """Yield the pending computation after each segment, and the result at the end."""
        # The last chunk is padded with further seeds, which are dropped.
        keys = _keys(key, np.arange(start, start + chunk)).reshape(shape)
        passed = _nothing(plan, measure, numbers, keys)
        for first in range(0, steps, unit):
            for begin, end in pace.segments(first, first + unit):
                passed = _advance(plan, measure, numbers, keys, begin, end, passed)
                yield passed
                if flows and np.asarray(passed[2]).all():
                    break
        # Groups stand along one axis of networks.
        done[start] = jax.tree.map(
            lambda x: np.asarray(x).reshape(chunk, *x.shape[len(shape) :]), passed[1]
        )
        report(min(len(done) * chunk, seeds), seeds)

    starts = range(0, seeds, chunk)
    done: dict[int, Any] = {}  # chunks need not end in the order in which they begin
    waiting = [trained(start) for start in reversed(starts)]
    running: deque[tuple[Iterator[Any], Any]] = deque()
    with interruptible():
        try:
            while waiting or running:
                if waiting and len(running) < IN_FLIGHT:
                    one = waiting.pop()
                else:
                    one, computed = running.popleft()
                    jax.block_until_ready(computed)
                for computed in one:
                    running.append((one, computed))
                    break
        finally:
            jax.block_until_ready([computed for _, computed in running])
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:seeds], *map(done.get, starts))


@jax.jit
def _keys(key: Any, seeds: Any) -> Any:
    """Return the key of each seed; compiled, since thousands of them one by one take seconds."""
    return lax.map(partial(jax.random.fold_in, key), seeds)


def at_once(plan: Plan, numbers: Numbers, keys: Any) -> tuple[Any, Any]:
    """Return outputs and records of all networks in one segment; ``keys`` may be in groups."""
    room = _nothing(plan, None, numbers, keys)
    return _advance(plan, None, numbers, keys, 0, _most_steps(plan) * len(keys), room)[1]


def even_chunk(seeds: int, limit: int) -> int:
    """Return the largest chunk of at most ``limit`` seeds among those that pad the fewest."""
    limit = min(seeds, limit)
    return min(range((limit + 1) // 2, limit + 1), key=lambda size: (-seeds % size, -size))


def _first_segment(plan: Plan, numbers: Numbers, seeds: int) -> int:
    """Return the number of steps that a slow machine makes in a segment."""
    if numbers.x.ndim > 2:
        return 1  # a weight is used at every position
    return int(SEGMENT * SLOW / (seeds * _multiplications(plan, numbers)))


def _grouping(plan: Plan, numbers: Numbers, seeds: int, budget: float) -> tuple[int, ...]:
    """Return the number of groups of a chunk, and of networks of a group if it has several.

    A network is computed by the same operations whatever the budget: networks that could be trained
    together form groups even if only one of them fits.
    """
    kept, working = _bytes(plan, numbers)
    together = _together(plan, numbers) if jax.default_backend() == "cpu" else np.inf
    group = even_chunk(seeds, int(max(min(budget / (kept + working), together), 1)))
    groups = -(-seeds // group)
    fewest = FEWEST_GROUPS if together == 1 else 1
    of_group = group * _most_steps(plan) * _multiplications(plan, numbers)
    wanted = max(min(ENOUGH / of_group, groups / FEWEST_CHUNKS), fewest)
    fit = (budget - group * working) / (group * kept)
    groups = even_chunk(groups, int(max(min(wanted, fit), 1)))
    return (groups,) if together == 1 else (groups, group)


def _multiplications(plan: Plan, numbers: Numbers) -> float:
    """Return, roughly, the multiplications of a step of one network without positions."""
    return 6.0 * len(numbers.x) * plan.network.parameters


def _together(plan: Plan, numbers: Numbers) -> int:
    """Return the number of networks that a CPU trains together: many small ones, or 1."""
    if numbers.x.ndim > 2 or plan.optimizer.continuous:
        return 1
    networks = int(TOGETHER / _multiplications(plan, numbers))
    return min(networks, MOST_TOGETHER) if networks >= FEWEST_TOGETHER else 1


def _most_steps(plan: Plan) -> int:
    return MOST_STEPS if plan.optimizer.continuous else plan.time_points


def _course(plan: Plan, numbers: Numbers, key: Any) -> Any:
    """Return the training of a network, a descent or a flow; both have the same methods."""
    if plan.optimizer.continuous:
        return Flow(plan, numbers)
    return Descent(plan, numbers, jax.random.fold_in(key, 1))


def _begun(plan: Plan, numbers: Numbers, key: Any) -> Any:
    return _course(plan, numbers, key).begin(plan.network.draw(key, numbers.x.dtype))


def _found(plan: Plan, measure: Measure | None, numbers: Numbers, key: Any, state: Any) -> Any:
    """Return outputs, and records or measurements, of a trained network."""
    outputs, records, params = _course(plan, numbers, key).results(state)
    if measure is None:
        return outputs, records
    start = plan.network.draw(key, numbers.x.dtype)
    return outputs, measure(plan.network, start, params, numbers.x)


@partial(jax.jit, static_argnums=(0, 1))
def _nothing(plan: Plan, measure: Measure | None, numbers: Numbers, keys: Any):
    """Return arrays for the state of one group and for all results, and an end flag."""
    numbers = jax.tree.map(jnp.asarray, numbers)
    one = keys.ravel()[0]
    state = jax.eval_shape(partial(_begun, plan, numbers), one)
    expected = jax.eval_shape(partial(_found, plan, measure, numbers, one), state)

    def room(shapes, leading):
        return jax.tree.map(lambda leaf: jnp.zeros((*leading, *leaf.shape), leaf.dtype), shapes)

    group = keys.shape[1:]
    return room(state, group), room(expected, keys.shape), jnp.zeros(group, bool)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=6)
def _advance(plan: Plan, measure, numbers: Numbers, keys, begin, end, passed):
    """Train from one step to another; steps are counted over the groups in turn."""
    numbers = jax.tree.map(jnp.asarray, numbers)
    most = _most_steps(plan)

    def one(key, state, values, start, stop):
        course = _course(plan, numbers, key)
        state = lax.cond(start == 0, lambda: _begun(plan, numbers, key), lambda: state)
        state = course.advance(state, start, stop)
        ended = course.ended(state, stop)
        finish = partial(_found, plan, measure, numbers, key, state)
        return state, lax.cond(ended, finish, lambda: values), ended

    train = one if keys.ndim == 1 else jax.vmap(one, in_axes=(0, 0, 0, None, None))

    def of_group(group, passed):
        state, values, _ = passed
        start, stop = (jnp.clip(step - group * most, 0, most) for step in (begin, end))
        group_values = jax.tree.map(lambda all: all[group], values)
        state, group_values, ended = train(keys[group], state, group_values, start, stop)
        return (
            state,
            jax.tree.map(lambda all, new: all.at[group].set(new), values, group_values),
            ended,
        )

    return lax.fori_loop(begin // most, (end + most - 1) // most, of_group, passed)


def _bytes(plan: Plan, numbers: Numbers) -> tuple[float, float]:
    """Return the bytes of one network's results and, roughly, of its training."""
    network, (rows, item) = plan.network, (len(numbers.x), numbers.x.dtype.itemsize)
    samples, outputs = plan.samples, network.outputs or 1
    places = [row.site for row in plan.table.rows if row.kind == "weight"]
    sites = sum(site.copies for site in places)
    neurons = network.width * sum(float(site.copies * site.width_ratio) for site in places)
    kernel = samples**2 * outputs**2
    sizes = {"feature_kernel": sites * samples**2, "gradient_kernel": sites * kernel}
    sizes["ntk"] = kernel + samples * (rows - samples) * outputs**2
    sizes["pseudo_gradient_kernel"], sizes["effective_ntk"] = sites * kernel, kernel
    sizes["alignment"] = sites * samples * outputs
    sizes |= {"singular_values": sites * VALUES, "sharpness": 1}
    sizes |= {"output_hessian": samples * outputs, "input_jacobian": rows * outputs}
    kept = plan.time_points * rows * outputs + len(plan.record_at) * sum(
        sizes[name] for name in plan.records
    )
    probes = 2 * outputs if plan.records else 0
    copies = 12 if plan.optimizer.continuous else 6
    if plan.optimizer.backward != "gradients":
        copies, probes = copies + 2, 2 * probes
    copies += 5 if {"sharpness", "output_hessian"} & set(plan.records) else 0
    working = copies * network.parameters + (4 + probes) * rows * neurons
    working += outputs * numbers.x.size if "input_jacobian" in plan.records else 0
    return item * kept, item * working
