"""Papers, in ``references.bib``, and how functions and classes name those they are based on."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TypeVar

Cited = TypeVar("Cited")


@cache
def references() -> dict[str, str]:
    """Return the BibTeX entries of ``references.bib`` by their keys, the oldest first."""
    text = files("largen").joinpath("references.bib").read_text(encoding="utf-8")
    entries = text.strip().split("\n\n")
    return {re.findall(r"@\w+\{(\w+),", entry)[0]: entry for entry in entries}


def cites(*keys: str) -> Callable[[Cited], Cited]:
    """Name the papers that a function or a class is based on, by their keys in :func:`references`.

    Examples
    --------
    >>> @cites("jacot2018neural")
    ... def tangent_kernel(): ...
    >>> tangent_kernel.papers
    ('jacot2018neural',)
    """

    def named(described: Cited) -> Cited:
        setattr(described, "papers", keys)  # noqa: B010 # any object, with an attribute more
        return described

    return named
