"""Compiled loops in segments of about half a second, between which interrupts are raised."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.interrupts import Pace, interruptible
from largen.memory import check_fits

# A function of static constants, the number of the step, the carry and further arrays; it returns
# the new carry and the step's output.
Step = Callable[..., tuple[Any, Any]]


def scan_segments(
    step: Step, fixed: Hashable, carry: Any, number: int, *arrays: Any
) -> tuple[Any, Any]:
    """Return the final carry and the stacked outputs of all steps, as ``lax.scan`` does.

    ``step(fixed, i, carry, *arrays)``, a module-level function, is compiled once for static
    ``fixed``. Results do not depend on the division into segments; a single step is not divided.

    >>> def fibonacci(fixed, i, pair):
    ...     return (pair[1], pair[0] + pair[1]), pair[0]
    >>> last, seen = scan_segments(fibonacci, None, (1, 1), 6)
    >>> int(last[0]), seen.tolist()
    (13, [1, 1, 2, 3, 5, 8])
    """
    passed = _begun(step, fixed, number, carry, arrays)
    with interruptible():
        for begin, end in Pace().segments(0, number):
            passed = _advance(step, fixed, passed, begin, end, arrays)
            jax.block_until_ready(passed)
    return passed


def map_segments(
    one: Callable[..., Any], fixed: Hashable, entries: Any, *arrays: Any, what: str
) -> Any:
    """Return the stacked values of a function at each entry, as ``lax.map`` does, in segments.

    ``one(fixed, entry, *arrays)`` is a module-level function; ``what`` is as in
    :func:`largen.memory.check_fits`.

    >>> def power(exponent, base):
    ...     return base**exponent
    >>> map_segments(power, 2, jnp.arange(4), what="base: powers").tolist()
    [0, 1, 4, 9]
    """
    number = len(jax.tree.leaves(entries)[0])
    first = jax.tree.map(lambda each: each[0], entries)
    shapes = jax.tree.leaves(jax.eval_shape(partial(one, fixed), first, *arrays))
    needed = 2.0 * number * sum(shape.size * shape.dtype.itemsize for shape in shapes)
    check_fits(needed, what, "Ask for fewer.")
    return scan_segments(_of_entry, (one, fixed), (), number, entries, *arrays)[1]


def _of_entry(given: Any, i: Any, carry: Any, entries: Any, *arrays: Any) -> tuple[Any, Any]:
    one, fixed = given
    return carry, one(fixed, jax.tree.map(lambda each: each[i], entries), *arrays)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _begun(step: Step, fixed: Hashable, number: int, carry: Any, arrays: Any) -> tuple[Any, Any]:
    """Return a copy of the initial carry, cast to the types of later ones, and empty outputs."""
    after, seen = jax.eval_shape(lambda carry: step(fixed, jnp.int32(0), carry, *arrays), carry)
    carry = jax.tree.map(lambda old, new: jnp.array(old, new.dtype), carry, after)
    return carry, jax.tree.map(lambda one: jnp.zeros((number, *one.shape), one.dtype), seen)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _advance(
    step: Step, fixed: Hashable, passed: tuple[Any, Any], begin: Any, end: Any, arrays: Any
) -> tuple[Any, Any]:
    def one(i, passed):
        carry, seen = passed
        carry, now = step(fixed, i, carry, *arrays)
        return carry, jax.tree.map(lambda all, new: all.at[i].set(new), seen, now)

    return lax.fori_loop(jnp.int32(begin), jnp.int32(end), one, passed)
