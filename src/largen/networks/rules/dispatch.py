"""The functions that define an operation in finite networks, dispatched on the operation's type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from largen.programs import Operation, Source, no_rule

Features = tuple[int, ...]


@singledispatch
def rule(operation: Operation, constants: Any, values: tuple[Any, ...]) -> Any:
    """Return the value of an operation for a batch, (sample, *space, channel).

    Parameters
    ----------
    operation
        The operation.
    constants
        The factor of residual branches; for an operation with a weight, its parameters
        (:class:`largen.networks.rules.affine.Weights`).
    values
        The values that it reads.

    Raises
    ------
    NoRule
        For an operation without a rule.
    """
    raise no_rule("a finite network", operation, Source(repr(operation)))


@singledispatch
def channels_behind(
    operation: Operation, reads: tuple[Features, ...], source: Source
) -> int | None:
    """Return the number of channels behind an operation, after checking the sizes that it reads.

    By default this is None: the number follows from the signal.

    Parameters
    ----------
    operation, source
        The operation, and its layer for messages.
    reads
        Shapes of the values that it reads, (*space, channel).

    Raises
    ------
    InvalidInput
        If these sizes do not fit.
    """
    return None


def has_rule(operation: Operation) -> bool:
    """Whether there is a :func:`rule` for an operation."""
    return rule.dispatch(type(operation)) is not rule.dispatch(object)
