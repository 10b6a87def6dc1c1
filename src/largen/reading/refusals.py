"""The sentence with which a reading refuses a part of a model."""

from __future__ import annotations

from largen.errors import NoRule


def refused(place: str, why: str) -> NoRule:
    """Return the error of a reading for a part of a model.

    ``place``: the part: the path of a module with the operation, or the name of a parameter;
    ``why``: why it cannot be read and what to do, without the final period.

    Examples
    --------
    >>> print(refused("4 (max_pool2d)", "the maximum of several neurons has no rule"))
    lg.read: 4 (max_pool2d): the maximum of several neurons has no rule.
    """
    return NoRule("lg.read", place, said=f"lg.read: {place}: {why}.")
