"""Names of the kernels to record during training, common to networks and limits."""

from __future__ import annotations

from typing import Any, Literal

from largen.errors import InvalidInput, one_of
from largen.scalars import integers, sequence
from largen.text import shown

RECORDS = ("feature_kernel", "gradient_kernel", "ntk")


def record_names(record: Any) -> tuple[str, ...]:
    """Return the kernels to record, given one name or a list.

    ``"feature_kernel"`` and ``"gradient_kernel"`` are Φ and G of each layer on training samples,
    ``"ntk"`` the tangent kernel among training samples and between test and training samples.
    """
    if isinstance(record, (set, frozenset)):
        record = list(record)
    wanted = f"names out of {', '.join(RECORDS)}"
    given = [record] if isinstance(record, str) else sequence("record", record, wanted)
    names = {one_of("record", name, RECORDS) for name in given}
    return tuple(name for name in RECORDS if name in names)


def pairs_of(name: str, wanted: Any) -> tuple[tuple[int, ...], ...] | Literal["all"]:
    """Return pairs of time indices in the given order, without repetition, or "all" as it is."""
    words = "a list of pairs of time indices, such as [(0, 10)], or 'all'"
    if isinstance(wanted, str):
        return one_of(name, wanted, ("all",))
    pairs = [sequence(name, pair, words) for pair in sequence(name, wanted, words)]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidInput(f"{name}: wanted {words}, got {shown(wanted)}.")
    return tuple(dict.fromkeys(tuple(integers(name, pair, at_least=0)) for pair in pairs))
