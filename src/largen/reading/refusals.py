"""Rules of a reading applied to calls, and the sentence with which a part is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from largen.errors import NoRule


def by_rule(reader: Any, rule: Callable[..., Any], call: Any) -> Any:
    """Return what a rule makes of a call, or refuse arguments that it does not have."""
    try:
        bound = inspect.signature(rule).bind(reader, call, *call.args, **call.kwargs)
    except TypeError as error:
        raise reader.refused(call, f"there is no rule for these arguments: {error}") from None
    return rule(*bound.args, **bound.kwargs)


def refused(place: str, why: str) -> NoRule:
    """Return the error of a reading for a part of a model.

    ``place``: the part: the path of a module with the operation, or the name of a parameter;
    ``why``: why it cannot be read and what to do, without the final period.

    >>> print(refused("4 (max_pool2d)", "the maximum of several neurons has no rule"))
    lg.read: 4 (max_pool2d): the maximum of several neurons has no rule.
    """
    return NoRule("lg.read", place, said=f"lg.read: {place}: {why}.")
