"""Whether the outputs of a sample depend on that sample alone, proved from a function's jaxpr.

Each value is either *along samples*, with entries at index i of one axis that depend on sample i
alone and in the same way for all i, or *common* to all samples. A common value is combined with
samples only along axes in which it is constant: rows of a mask differ, broadcast biases do not. An
operation that is not listed here proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import is_traced
from largen.traces.primitives import CUMULATIVE, ELEMENTWISE, REDUCTIONS, WINDOWS, axes_of
from largen.traces.walk import OWN_JVP, PLAIN_CALLS, Walk, called, written_out

MOST_STEPS = 64  # of a loop that is written out


class Along(NamedTuple):
    """A value whose entries along an axis are those of samples."""

    axis: int


class Common(NamedTuple):
    """A value that all samples share, and the axes along which it is constant."""

    constant: frozenset[int] = frozenset()


class _NotProved(Exception):
    """An operation may couple samples."""


State = Along | Common


def proved_apart(f: Any, params: Any, x: Any) -> bool:
    """Whether the jaxpr of f shows that samples do not influence one another."""
    if len(x) == 1:
        return True
    closed = jax.make_jaxpr(f)(params, x)
    states = [Common()] * len(jax.tree.leaves(params))
    try:
        (output,) = Walk(_behind, _of_constant, _inside).run(closed, [*states, Along(0)])
    except _NotProved:
        return False
    return output == Along(0)


def apart(f: Any, params: Any, x: Any) -> bool:
    """Whether samples do not influence one another: proved, or shown on concrete arrays.

    Without a proof, random combinations of gradients are compared; what differs by rounding at a
    kink is taken for coupled, and computed as such.
    """
    if proved_apart(f, params, x):
        return True
    if is_traced(params, x):
        return False
    with_batch, alone = _gradients(f, params, x)
    if is_traced(with_batch, alone):  # the function has captured a tracer
        return False
    pairs = list(zip(*map(jax.tree.leaves, (with_batch, alone)), strict=True))
    size = sum(float(np.sum(np.square(a))) for a, _ in pairs) ** 0.5
    apart = sum(float(np.sum(np.square(a - b))) for a, b in pairs) ** 0.5
    return bool(apart <= np.finfo(x.dtype).eps ** (2 / 3) * size)


def _gradients(f, params, x):
    """Return Σ_i u_i ∂f_i/∂θ for random u, of a batch and of its rows alone."""
    out = jax.eval_shape(f, params, x)
    u = np.random.default_rng(0).standard_normal(out.shape).astype(out.dtype)

    @jax.jit
    def both(params, x, u):
        def sums(p):
            return jnp.vdot(u, f(p, x))

        def of_row(row):
            return jax.grad(lambda p: jnp.vdot(row[1], f(p, row[0][None])[0]))(params)

        def add(total, row):
            return jax.tree.map(jnp.add, total, of_row(row)), None

        zero = jax.tree.map(jnp.zeros_like, params)
        return jax.grad(sums)(params), jax.lax.scan(add, zero, (x, u))[0]

    return both(params, x, u)


def _ones(shape: Sequence[int]) -> frozenset[int]:
    return frozenset(i for i, size in enumerate(shape) if size == 1)


def _of_constant(value: Any) -> Common:
    return Common(_ones(np.shape(value)))


def _behind(equation: Any, states: list[State]) -> list[State]:
    name = equation.primitive.name
    rule = _elementwise if name in ELEMENTWISE else _RULES.get(name, _unknown)
    after = rule(equation, states)
    if isinstance(after, Along):
        return [after] * len(equation.outvars)
    return [Common(after.constant | _ones(_shape(out))) for out in equation.outvars]


def _inside(equation: Any, states: list[State]) -> Any:
    """Return the jaxpr of a call, and a loop of few steps with all of them written out."""
    name = equation.primitive.name
    if name == "unstack" or (name == "scan" and equation.params["length"] <= MOST_STEPS):
        return written_out(equation)
    return called(equation) if name in PLAIN_CALLS | OWN_JVP else None


def _unknown(equation, states):
    if any(isinstance(state, Along) for state in states):
        raise _NotProved(equation.primitive.name)
    return Common()


def _shape(atom) -> tuple[int, ...]:
    return atom.aval.shape


def _elementwise(equation, states) -> State:
    """Operations of entries at the same index; scalars go with everything."""
    ranks = [len(_shape(atom)) for atom in equation.invars]
    states = [state for state, rank in zip(states, ranks, strict=True) if rank]
    axes = {state.axis for state in states if isinstance(state, Along)}
    common = [state.constant for state in states if isinstance(state, Common)]
    if not axes:
        return Common(frozenset.intersection(*common)) if common else Common()
    axis = axes.pop()
    if axes or any(axis not in constant for constant in common):
        raise _NotProved
    return Along(axis)


def _mapped(state: State, where: dict[int, int], new: Sequence[int] = ()) -> State:
    """Return the state after axes have moved; ``new`` axes are constant."""
    if isinstance(state, Along):
        if state.axis not in where:
            raise _NotProved
        return Along(where[state.axis])
    return Common(frozenset({where[axis] for axis in state.constant if axis in where} | {*new}))


def _broadcast(equation, states):
    axes, shape = map(int, equation.params["broadcast_dimensions"]), equation.params["shape"]
    before = _shape(equation.invars[0])
    kept = {i: axis for i, axis in enumerate(axes) if before[i] == shape[axis]}
    new = {*range(len(shape))} - {*kept.values()}
    return _mapped(states[0], kept, tuple(new))


def _reshape(equation, states):
    """An axis is the same one behind if it has as many entries, and so have those before it."""
    if equation.params["dimensions"] is not None:
        return _unknown(equation, states)
    before, after = _shape(equation.invars[0]), equation.params["new_sizes"]
    starts = {(int(np.prod(after[:j])), size): j for j, size in enumerate(after) if size > 1}
    where = {
        i: starts[key]
        for i, size in enumerate(before)
        if (key := (int(np.prod(before[:i])), size)) in starts
    }
    return _mapped(states[0], where)


def _transpose(equation, states):
    order = equation.params["permutation"]
    where = {int(old): new for new, old in enumerate(order)}
    return _mapped(states[0], where)


def _axes(equation):
    name, rank = equation.primitive.name, len(_shape(equation.invars[0]))
    return axes_of(name, equation.params, rank)


def _without(axes_of):
    def rule(equation, states):
        gone = {*axes_of(equation)}
        left = [i for i in range(len(_shape(equation.invars[0]))) if i not in gone]
        return _mapped(states[0], {i: j for j, i in enumerate(left)})

    return rule


def _within(axes_of):
    """Operations along some axes, which leave the others alone."""

    def rule(equation, states):
        after = _elementwise(equation, states)
        touched = {*axes_of(equation)}
        if isinstance(after, Along):
            if after.axis in touched:
                raise _NotProved
            return after
        return Common(after.constant - touched)

    return rule


def _resized(equation):
    before, after = _shape(equation.invars[0]), _shape(equation.outvars[0])
    return [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]


def _padded(equation):
    changes = equation.params["padding_config"]
    return [i for i, change in enumerate(changes) if any(change)]


def _windows(equation):
    options, shape = equation.params, _shape(equation.invars[0])
    return [
        i
        for i in range(len(shape))
        if options["window_dimensions"][i] != 1
        or options["window_strides"][i] != 1
        or any(options["padding"][i])
    ]


def _product(equation, states):
    contracted, batch = equation.params["dimension_numbers"]
    behind, first = [], len(batch[0])
    for i, state in enumerate(states):
        ndim = len(_shape(equation.invars[i]))
        free = [j for j in range(ndim) if j not in (*contracted[i], *batch[i])]
        places = (*range(len(batch[0])), *range(first, first + len(free)))
        behind.append(_mapped(state, dict(zip((*batch[i], *free), places, strict=True))))
        first += len(free)
    axes = {state.axis for state in behind if isinstance(state, Along)}
    common = [state.constant for state in behind if isinstance(state, Common)]
    if not axes:
        of_batch = frozenset(range(len(batch[0])))
        return Common(frozenset.union(*common) - of_batch | frozenset.intersection(*common))
    axis = axes.pop()
    if axes or (axis < len(batch[0]) and any(axis not in constant for constant in common)):
        raise _NotProved
    return Along(axis)


def _convolution(equation, states):
    inputs, _, outputs = equation.params["dimension_numbers"]
    if all(isinstance(state, Common) for state in states):
        return Common()
    if (
        states[0] == Along(inputs[0])
        and isinstance(states[1], Common)
        and equation.params["batch_group_count"] == 1
    ):
        return Along(outputs[0])
    raise _NotProved


def _taken(equation, states):
    """Entries of a common table at the indices of samples."""
    table, indices = states
    numbers = equation.params["dimension_numbers"]
    if isinstance(table, Along) or numbers.operand_batching_dims:
        return _unknown(equation, states)
    if isinstance(indices, Common):
        return Common()
    ndim = len(_shape(equation.outvars[0]))
    batch = [i for i in range(ndim) if i not in numbers.offset_dims]
    return _mapped(indices, dict(enumerate(batch)))


def _counted(equation, states):
    if states:
        return _unknown(equation, states)
    axes = {*range(len(equation.params["shape"]))} - {equation.params["dimension"]}
    return Common(frozenset(axes))


_RULES = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _without(_axes),
    **dict.fromkeys(REDUCTIONS, _without(_axes)),
    **dict.fromkeys(CUMULATIVE | {"rev", "sort", "split", "concatenate"}, _within(_axes)),
    "slice": _within(_resized),
    "pad": _within(_padded),
    **dict.fromkeys(WINDOWS - {"reduce_window"}, _within(_windows)),
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _taken,
    "iota": _counted,
}  # fmt: skip
