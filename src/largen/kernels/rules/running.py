"""Kernels of whole programs: the rules of the operations, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.expectations.watching import add_requests, separate_watch
from largen.kernels.rules.crosses import Values
from largen.kernels.rules.crossing import cross
from largen.kernels.rules.dependent_sums import dependent_sum
from largen.kernels.rules.dispatch import States, rule
from largen.kernels.rules.planning import dependent_terms, of_reads, plan_of, requirements
from largen.kernels.state import Copies, KernelState, Wanted
from largen.programs import Operation, Program, Repeat


def run(program: Program, constants: Any, state: KernelState, behind: Wanted) -> KernelState:
    """Return the state of the output of a program, with the moments that are required there.

    ``program``, ``constants``: the program, and the constants of each operation; ``state``: the
    state of the data.
    """
    plan = plan_of(program, behind)
    values = Values(program, constants, [state], {})
    for place, operation in enumerate(program.operations[1:], start=1):
        required = plan.values[place]
        ahead = of_reads(program, place, required)
        reads = tuple(values.states[read].reduced(ahead) for read in operation.reads)
        if dependent_terms(program, place):
            after = dependent_sum(values, place, reads, required)
            values.states.append(_finished(after, reads, required))
        else:
            values.states.append(advance(operation, constants[place], reads, required))
        for pair, way in plan.pairs[place]:
            values.pairs[pair] = cross(way, pair, values, plan.wanted[pair])
    return values.states[-1].reduced(behind)


def advance(operation: Operation, constants: Any, states: States, behind: Wanted) -> KernelState:
    """Return the state of an operation's value, with only the moments that are required there."""
    if states[0].displacement is not None and not isinstance(operation, Repeat):
        return _separately(lambda *s: rule(operation, constants, s, behind), states, behind)
    with separate_watch() as inner:
        after = rule(operation, constants, states, behind)
    add_requests(inner.all)
    return _finished(after, states, behind)


def _finished(after: KernelState, states: States, behind: Wanted) -> KernelState:
    """Return a state with only the moments that are required."""
    after = after.reduced(behind)
    # States in NumPy, which are those of single samples, stay in NumPy: nothing is compiled.
    return jax.tree.map(np.asarray, after) if isinstance(states[0].gap, np.ndarray) else after


def _separately(
    operation: Callable[..., KernelState], planes: States, behind: Wanted
) -> KernelState:
    """Carry planes through an operation that XLA does not fuse into the next one.

    XLA would evaluate the operation anew at every position of the next one's window. It does not
    look into the branches of a condition that it cannot decide; this one always holds.
    """

    def step(*planes: KernelState) -> KernelState:
        return operation(*planes).reduced(behind)

    after = jax.eval_shape(step, *planes)

    def nothing(*planes: KernelState) -> KernelState:
        return jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), after)

    assert planes[0].displacement is not None
    return lax.cond(planes[0].displacement[0] >= 0, step, nothing, *planes)


@rule.register
def _(operation: Repeat, constants: Any, states: States, behind: Wanted) -> KernelState:
    (state,), body = states, operation.body
    behind = reduce(  # each copy but the last is followed by another one
        lambda required, _: required | requirements(body, required)[0], range(2), behind
    )
    alike = len(operation.weights) == 1  # all copies have the same constants
    if isinstance(state.gap, np.ndarray):  # nothing is compiled
        for n in range(int(operation.times)):
            its = constants if alike else jax.tree.map(lambda c, n=n: c[n], constants)
            state = run(body, its, state, behind)
        return state

    # The constants of a copy are selected one copy ahead and carried along. If they are selected
    # within the copy, XLA does so for every pair of samples, in loops that do not vectorise.
    def copy(
        carried: tuple[KernelState, Any], following: Any
    ) -> tuple[tuple[KernelState, Any], Any]:
        state, its_constants = carried
        with separate_watch() as inner:
            state = run(body, its_constants, state, behind)
        return (state, its_constants if alike else following), inner.all

    number, first, following = None, constants, None
    if isinstance(constants, Copies):
        number, first = constants.number, constants.constants
        constants = first
    if not alike:
        first = jax.tree.map(lambda c: c[0], constants)
        following = jax.tree.map(lambda c: jnp.roll(c, -1, axis=0), constants)
    if number is not None:
        return lax.fori_loop(
            0,
            jnp.asarray(number, jnp.int32),
            lambda n, carried: copy(carried, jax.tree.map(lambda c: c[n], following))[0],
            (state, first),
        )[0]
    times = int(operation.times)
    (state, _), requests = lax.scan(copy, (state, first), following, length=times)
    add_requests(requests)
    return state
