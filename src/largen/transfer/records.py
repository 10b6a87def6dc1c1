"""Dataclasses from parsed JSON: every field is checked against its annotation."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from largen.errors import InvalidInput, instance_of
from largen.scalars import integer, real
from largen.text import shown


def fields_of(kind: Any, content: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass from parsed JSON, which has all of them and no others.

    Types are strings, Booleans, numbers, integers ≥ 0, dataclasses, and tuples and dictionaries of
    them.
    """
    instance_of(where, content, dict, "a dictionary of names and values")
    wanted = {field.name for field in fields(kind)}
    odd = sorted(wanted ^ set(content))
    if odd:
        state = "is missing" if odd[0] in wanted else "is not known"
        raise InvalidInput(f"{where}: the field {shown(odd[0])} {state}.")
    hints = _hints(kind)
    return {name: _value(hints[name], content[name], f"{where}: {name}") for name in content}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return one value if it has the annotated type."""
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**fields_of(hint, value, where))
    if get_origin(hint) is tuple:
        entries = instance_of(where, value, list, "a list")
        return tuple(_value(get_args(hint)[0], v, f"{where}[{i}]") for i, v in enumerate(entries))
    if get_origin(hint) is dict:
        held = instance_of(where, value, dict, "a dictionary")
        return {k: _value(get_args(hint)[1], v, f"{where}[{shown(k)}]") for k, v in held.items()}
    if hint is float:
        return real(where, value)
    if hint is int:
        return integer(where, value, at_least=0)
    words = {str: "a text", bool: "true or false"}
    return instance_of(where, value, hint, words[hint])
