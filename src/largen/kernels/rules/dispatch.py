"""The functions that define the kernels of an operation, each dispatched on the operation's type.

Only ``rule`` has no default. A program is carried through by :func:`largen.kernels.rules.run`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from largen.kernels.state import KernelState, Wanted
from largen.programs import Operation, Source, no_rule

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
    raise no_rule("kernels", operation, Source(repr(operation)))


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


def has_rule(operation: Operation) -> bool:
    """Whether there is a :func:`rule` for an operation."""
    return rule.dispatch(type(operation)) is not rule.dispatch(object)
