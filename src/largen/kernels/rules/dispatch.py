"""The functions that define the kernels of an operation, each dispatched on the operation's type.

Only ``rule`` has no default. A program is carried through by :func:`run`, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.errors import NoRule
from largen.expectations.watching import add_requests, separate_watch
from largen.kernels.state import KernelState, Wanted
from largen.programs import Affine, Operation, Pool, Product, Program, Repeat, Sum

States = tuple[KernelState, ...]


@singledispatch
def rule(operation: Operation, constants: Any, states: States, behind: Wanted) -> KernelState:
    """Return the state of the value of an operation, with at least the moments required there.

    Parameters
    ----------
    operation
        The operation.
    constants
        Its constants.
    states
        The states of the values that it reads, with the moments that it requires of them.
    behind
        The moments that are required of its value.

    Raises
    ------
    NoRule
        For an operation without a kernel rule.
    """
    raise no_rule(operation, operation)


@singledispatch
def wanted(operation: Operation, behind: Wanted) -> Wanted:
    """Return the moments required of what an operation reads, given those required of its value.

    By default they are the same.
    """
    return behind


@singledispatch
def simplify(operation: Operation) -> Operation:
    """Return a cheaper operation that leaves variances of the same size; by default the same."""
    return operation


def run(program: Program, constants: Any, state: KernelState, behind: Wanted) -> KernelState:
    """Return the state of the output of a program, with the moments that are required there.

    Parameters
    ----------
    program, constants
        The program, and the constants of each operation.
    state
        The state of the data.
    behind
        The moments that are required of the output.
    """
    required = requirements(program, behind)
    states = [state]
    for place, (operation, its) in enumerate(
        zip(program.operations[1:], constants[1:], strict=True), start=1
    ):
        ahead = _of_reads(program, place, required[place])
        reads = tuple(states[read].reduced(ahead) for read in operation.reads)
        states.append(advance(operation, its, reads, required[place]))
    return states[-1].reduced(behind)


@lru_cache(maxsize=4096)
def requirements(program: Program, behind: Wanted) -> tuple[Wanted, ...]:
    """Return the moments that are required of each value, given those required of the output."""
    found = [Wanted() for _ in program.operations]
    found[-1] = behind
    for place in range(program.output, 0, -1):
        for read in program.operations[place].reads:
            found[read] |= _of_reads(program, place, found[place])
    return tuple(found)


def wanted_of_data(program: Program, behind: Wanted | None = None) -> Wanted:
    """Return the moments that a program requires of its data."""
    return requirements(program, Wanted() if behind is None else behind)[0]


def _of_reads(program: Program, place: int, behind: Wanted) -> Wanted:
    operation = program.operations[place]
    required = wanted(operation, behind)
    if isinstance(operation, Sum):
        # Second moments of a sum contain the products of the means of any two terms.
        off_centre = sum(not _centred(program)[read] for read in operation.reads)
        required |= Wanted(means=off_centre > 1)
    if isinstance(operation, Repeat):
        for _ in range(2):  # requirements only grow, and there are two of them
            required |= requirements(operation.body, required)[0]
    return required


@lru_cache(maxsize=4096)
def _centred(program: Program) -> tuple[bool, ...]:
    """Return of which values it is known from the operations alone that their mean is zero."""
    found = [False]
    for operation in program.operations[1:]:
        reads = [found[read] for read in operation.reads]
        match operation:
            case Affine():
                found.append(True)
            case Sum() | Pool():
                found.append(all(reads))
            case Product():
                found.append(any(reads))
            case Repeat():
                found.append(reads[0] and _centred(operation.body)[-1])
            case _:
                found.append(False)
    return tuple(found)


def advance(operation: Operation, constants: Any, states: States, behind: Wanted) -> KernelState:
    """Return the state of an operation's value, with only the moments that are required there."""
    if states[0].displacement is not None and not isinstance(operation, Repeat):
        return _separately(lambda *s: rule(operation, constants, s, behind), states, behind)
    with separate_watch() as inner:
        after = rule(operation, constants, states, behind)
    add_requests(inner.all)
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

    first, following = constants, None
    if not alike:
        first = jax.tree.map(lambda c: c[0], constants)
        following = jax.tree.map(lambda c: jnp.roll(c, -1, axis=0), constants)
    times = int(operation.times)
    (state, _), requests = lax.scan(copy, (state, first), following, length=times)
    add_requests(requests)
    return state


def has_rule(operation: Operation) -> bool:
    """Whether there is a :func:`rule` for an operation."""
    return rule.dispatch(type(operation)) is not rule.dispatch(object)


def no_rule(operation: Operation, source: object) -> NoRule:
    """Return the error for an operation without a kernel rule, which names its layer."""
    return NoRule("kernels", source, [kind for kind in rule.registry if kind is not object])
