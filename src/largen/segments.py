"""Compiled loops in segments of about half a second, between which an interrupt is answered."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.interrupts import Pace, interruptible
from largen.memory import check_fits

# A function of constants that are compiled in, of the number of the step, of what one step hands
# to the next, and of arrays; it returns the latter two of what is handed on, and what is seen.
Step = Callable[..., tuple[Any, Any]]


def scanned(step: Step, fixed: Hashable, carry: Any, number: int, *arrays: Any) -> tuple[Any, Any]:
    """Return what the last step hands on, and what all have seen, stacked: as ``lax.scan`` does.

    The numbers do not depend on where segments end. A single step is not divided.

    Parameters
    ----------
    step
        ``step(fixed, i, carry, *arrays)`` returns carry and what is seen; a function of a module,
        which is compiled once.
    fixed
        What is compiled in.
    carry
        What the first step gets.
    number
        Of steps.
    arrays
        What all steps get.

    Raises
    ------
    KeyboardInterrupt
        Between two segments.

    Examples
    --------
    >>> def fibonacci(fixed, i, pair):
    ...     return (pair[1], pair[0] + pair[1]), pair[0]
    >>> last, seen = scanned(fibonacci, None, (1, 1), 6)
    >>> int(last[0]), seen.tolist()
    (13, [1, 1, 2, 3, 5, 8])
    """
    passed = _begun(step, fixed, number, carry, arrays)
    with interruptible():
        for begin, end in Pace().segments(0, number):
            passed = _advanced(step, fixed, passed, begin, end, arrays)
            jax.block_until_ready(passed)
    return passed


def mapped(one: Callable[..., Any], fixed: Hashable, entries: Any, *arrays: Any, what: str) -> Any:
    """Return a function of each entry, stacked: as ``lax.map`` does, in segments.

    Parameters
    ----------
    one
        ``one(fixed, entry, *arrays)``, a function of a module, which is compiled once.
    fixed
        What is compiled in.
    entries
        A tree of arrays, whose first axis is that of the entries.
    arrays
        What is the same for all.
    what
        The argument and what takes memory, as in :func:`largen.memory.check_fits`.

    Raises
    ------
    OutOfMemory
        If the results do not fit into memory twice, as they are computed and as they are returned.
    KeyboardInterrupt
        Between two segments.

    Examples
    --------
    >>> def power(exponent, base):
    ...     return base**exponent
    >>> mapped(power, 2, jnp.arange(4), what="base: powers").tolist()
    [0, 1, 4, 9]
    """
    number = len(jax.tree.leaves(entries)[0])
    first = jax.tree.map(lambda each: each[0], entries)
    shapes = jax.tree.leaves(jax.eval_shape(partial(one, fixed), first, *arrays))
    needed = 2.0 * number * sum(shape.size * shape.dtype.itemsize for shape in shapes)
    check_fits(needed, what, "Ask for fewer.")
    return scanned(_of_entry, (one, fixed), (), number, entries, *arrays)[1]


def _of_entry(given: Any, i: Any, carry: Any, entries: Any, *arrays: Any) -> tuple[Any, Any]:
    one, fixed = given
    return carry, one(fixed, jax.tree.map(lambda each: each[i], entries), *arrays)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _begun(step: Step, fixed: Hashable, number: int, carry: Any, arrays: Any) -> tuple[Any, Any]:
    """Return copies of what the first step gets, of the types that steps hand on, and room."""
    after, seen = jax.eval_shape(lambda carry: step(fixed, jnp.int32(0), carry, *arrays), carry)
    carry = jax.tree.map(lambda old, new: jnp.array(old, new.dtype), carry, after)
    return carry, jax.tree.map(lambda one: jnp.zeros((number, *one.shape), one.dtype), seen)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _advanced(
    step: Step, fixed: Hashable, passed: tuple[Any, Any], begin: Any, end: Any, arrays: Any
) -> tuple[Any, Any]:
    def one(i, passed):
        carry, seen = passed
        carry, now = step(fixed, i, carry, *arrays)
        return carry, jax.tree.map(lambda all, new: all.at[i].set(new), seen, now)

    return lax.fori_loop(jnp.int32(begin), jnp.int32(end), one, passed)
