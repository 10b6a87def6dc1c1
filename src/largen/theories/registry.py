"""The registered theories, in the order in which ``lg.solve`` tries them."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from inspect import isabstract
from typing import Any, TypeVar

from largen.errors import InvalidInput, one_of
from largen.runs import Theory
from largen.text import shown
from largen.theories.kernel_limit import KernelLimit
from largen.theories.mean_field import (
    AttentionMeanField,
    DeepMeanField,
    InfiniteDepth,
    MeanField,
)

Kind = TypeVar("Kind", bound=type[Theory])

_THEORIES: dict[str, type[Theory]] = {
    kind.name: kind
    for kind in (KernelLimit, MeanField, DeepMeanField, InfiniteDepth, AttentionMeanField)
}


def registered() -> tuple[type[Theory], ...]:
    """Return all registered theories, in the order in which ``lg.solve`` tries them.

    Examples
    --------
    >>> import largen as lg
    >>> for theory in lg.theories.registered():
    ...     print(theory.name)
    kernel
    mean field, one hidden layer
    mean field, deep
    mean field, infinite depth
    mean field, branches and attention
    """
    return tuple(_THEORIES.values())


def by_name(name: str) -> type[Theory]:
    """Return a registered theory.

    Raises
    ------
    InvalidInput
        If no registered theory has that name.
    """
    return _THEORIES[one_of("theory", name, _THEORIES)]


def register(theory: Kind) -> Kind:
    """Add a theory to those from which ``lg.solve(run)`` chooses; it is tried after all others.

    Parameters
    ----------
    theory
        A subclass of :class:`largen.theories.Theory`, a frozen dataclass whose fields all have
        defaults.

    Returns
    -------
    type
        The theory itself, so that this function can be used as a class decorator.

    Raises
    ------
    InvalidInput
        If the argument is not a valid theory, or if another theory has its name.

    Examples
    --------
    See :class:`largen.theories.Theory` for a theory of one's own.

    >>> import largen as lg
    >>> lg.theories.unregister(lg.theories.AttentionMeanField)
    >>> lg.theories.register(lg.theories.AttentionMeanField).name
    'mean field, branches and attention'
    """
    check_theory("theory", theory)
    if theory.name in _THEORIES:
        holder = _THEORIES[theory.name].__name__
        raise InvalidInput(f"theory: the name {theory.name!r} is taken by {holder}.")
    _THEORIES[theory.name] = theory
    return theory


def unregister(theory: type[Theory]) -> None:
    """Remove a theory from those from which ``lg.solve(run)`` chooses.

    Parameters
    ----------
    theory
        A theory that :func:`register` has added.

    Raises
    ------
    InvalidInput
        If the theory is not registered.
    """
    check_theory("theory", theory)
    if _THEORIES.get(theory.name) is not theory:
        raise InvalidInput(f"theory: {theory.__name__} is not registered.")
    del _THEORIES[theory.name]


def options_of(theory: type[Theory]) -> tuple[str, ...]:
    """Return the names of a theory's options."""
    return tuple(field.name for field in fields(theory) if field.init)  # type: ignore[arg-type]


def check_theory(name: str, theory: Any) -> None:
    """Check that an argument is a theory: a class with a default for each of its options.

    Raises
    ------
    InvalidInput
        If it is none; the message names what is missing.
    """
    if not isinstance(theory, type) or not issubclass(theory, Theory):
        raise InvalidInput(f"{name}: wanted a subclass of lg.theories.Theory, got {shown(theory)}.")
    if isabstract(theory):
        missing = ", ".join(sorted(theory.__abstractmethods__))
        raise InvalidInput(f"{name}: {theory.__name__} lacks {missing}.")
    if not isinstance(getattr(theory, "name", None), str) or not theory.name:
        raise InvalidInput(f"{name}: {theory.__name__} lacks a name, name: ClassVar[str] = '…'.")
    made: Any = getattr(theory, "__dataclass_params__", None)
    if not is_dataclass(theory) or not made.frozen:
        raise InvalidInput(f"{name}: {theory.__name__} is not a @dataclass(frozen=True).")
    for field in fields(theory):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidInput(
                f"{name}: the option {field.name!r} of {theory.__name__} lacks a default."
            )
