"""Checks of arguments that are patterns of names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from largen.errors import InvalidInput
from largen.text import shown


def patterns(argument: str, value: Any) -> Collection[str]:
    """Check a collection of patterns; a single string is one pattern."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Collection) or not _all_texts(value):
        raise InvalidInput(f"{argument}: wanted patterns of names, got {shown(value)}.")
    return value


def by_pattern(argument: str, value: Any) -> Mapping[str, Any]:
    """Check a dictionary whose keys are patterns; None stands for an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not _all_texts(value):
        raise InvalidInput(
            f"{argument}: wanted a dictionary with patterns of names as its keys, "
            f"got {shown(value)}."
        )
    return value


def _all_texts(values: Collection[Any]) -> bool:
    return not getattr(values, "ndim", 0) and all(isinstance(v, str) for v in values)
