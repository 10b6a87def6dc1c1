"""The registered theories, in the order in which ``lg.solve`` tries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from importlib import import_module
from inspect import isabstract
from typing import Any, TypeVar

from largen.errors import InvalidInput, NoRule, NoTheory, one_of
from largen.programs import Affine, Attend, Repeat
from largen.runs import Run, Theory
from largen.text import shown

Kind = TypeVar("Kind", bound=type[Theory])
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class _Entry:
    """A theory by its address, imported for runs that are ``likely``, a necessary quick check."""

    module: str
    name: str
    likely: Callable[[Run], bool]

    def load(self) -> type[Theory]:
        """Return the theory."""
        return getattr(import_module(f"largen.theories.{self.module}"), self.name)


def _moves(run: Run) -> bool:
    """Whether features move at order one."""
    return run.param.canonical_d >= HALF  # above it if the read-out starts from 0


def _adapts(run: Run) -> bool:
    return _moves(run) and run.optimizer.kind == "normalised"


def _by_rule(run: Run) -> bool:
    return run.optimizer.backward != "gradients"


def _two_maps(run: Run) -> bool:
    steps = run.program.operations
    maps = sum(isinstance(step, Affine) for step in steps)
    return _moves(run) and maps == 2 and not any(isinstance(step, Repeat) for step in steps)


def _endless(run: Run) -> bool:
    repeats = [step.times for step in run.program.operations if isinstance(step, Repeat)]
    return _moves(run) and math.inf in repeats


def _of_chain(run: Run) -> bool:
    attends = any(isinstance(step, Attend) for step in run.program.operations)
    return _moves(run) and not attends and not _endless(run)


_THEORIES: dict[str, _Entry | type[Theory]] = {
    "kernel": _Entry("kernel_limit.limit", "KernelLimit", lambda run: run.param.canonical_d < HALF),
    "kernel, adaptive": _Entry(
        "mean_field.adaptive_deep",
        "AdaptiveKernelLimit",
        lambda run: run.param.canonical_d < HALF and run.optimizer.kind == "normalised",
    ),
    "kernel, pseudo-gradients": _Entry(
        "kernel_limit.feedback",
        "FeedbackKernelLimit",
        lambda run: run.param.canonical_d < HALF and _by_rule(run),
    ),
    "mean field, one hidden layer": _Entry("mean_field.one_hidden_layer", "MeanField", _two_maps),
    "mean field, deep": _Entry("mean_field.deep", "DeepMeanField", _of_chain),
    "mean field, infinite depth": _Entry("mean_field.infinite_depth", "InfiniteDepth", _endless),
    "mean field, branches and attention": _Entry(
        "mean_field.transformer", "AttentionMeanField", _moves
    ),
    "mean field, pseudo-gradients": _Entry(
        "mean_field.feedback", "FeedbackMeanField", lambda run: _moves(run) and _by_rule(run)
    ),
    "mean field, adaptive": _Entry("mean_field.adaptive_deep", "AdaptiveMeanField", _adapts),
}


def registered() -> tuple[type[Theory], ...]:
    """Return all registered theories, in the order in which ``lg.solve`` tries them.

    Examples
    --------
    >>> import largen as lg
    >>> for theory in lg.theories.registered():
    ...     print(theory.name)
    kernel
    kernel, adaptive
    kernel, pseudo-gradients
    mean field, one hidden layer
    mean field, deep
    mean field, infinite depth
    mean field, branches and attention
    mean field, pseudo-gradients
    mean field, adaptive
    """
    return tuple(map(by_name, _THEORIES))


def candidates(run: Run) -> Iterator[type[Theory]]:
    """Yield all theories, first those that may cover a run: the others need not be imported."""
    yield from map(by_name, sorted(_THEORIES, key=lambda name: not may_cover(name, run)))


def may_cover(name: str, run: Run) -> bool:
    """Whether a theory may cover a run, by what is known before it is imported."""
    entry = _THEORIES[name]
    try:
        return not isinstance(entry, _Entry) or entry.likely(run)
    except (NoTheory, NoRule):
        return False


def by_name(name: str) -> type[Theory]:
    """Return a registered theory.

    Raises
    ------
    InvalidInput
        If no registered theory has that name.
    """
    found = _THEORIES[one_of("theory", name, _THEORIES)]
    return found.load() if isinstance(found, _Entry) else found


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
    >>> lg.theories.unregister(lg.theories.AdaptiveMeanField)
    >>> lg.theories.register(lg.theories.AdaptiveMeanField).name
    'mean field, adaptive'
    """
    check_theory("theory", theory)
    if theory.name in _THEORIES:
        holder = by_name(theory.name).__name__
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
    if theory.name not in _THEORIES or by_name(theory.name) is not theory:
        raise InvalidInput(f"theory: {theory.__name__} is not registered.")
    del _THEORIES[theory.name]


def options_of(theory: type[Theory]) -> tuple[str, ...]:
    """Return the names of a theory's options."""
    return tuple(field.name for field in fields(theory) if field.init)  # type: ignore[arg-type]


def check_theory(name: str, theory: Any) -> None:
    """Check that an argument is a theory: a class with a default for each of its options."""
    if not isinstance(theory, type) or not issubclass(theory, Theory):
        raise InvalidInput(f"{name}: wanted a subclass of lg.theories.Theory, got {shown(theory)}.")
    if isabstract(theory):
        missing = ", ".join(sorted(theory.__abstractmethods__))
        raise InvalidInput(f"{name}: {theory.__name__} lacks {missing}.")
    if not isinstance(getattr(theory, "name", None), str) or not theory.name:
        raise InvalidInput(f"{name}: {theory.__name__} lacks a name, name: ClassVar[str] = '…'.")
    for base in theory.__mro__[1:]:
        if getattr(base, "name", None) == theory.name:
            raise InvalidInput(
                f"{name}: {theory.__name__} has the name {theory.name!r} of {base.__name__}, from "
                "which it derives; give it its own, name: ClassVar[str] = '…'."
            )
    made: Any = getattr(theory, "__dataclass_params__", None)
    if not is_dataclass(theory) or not made.frozen:
        raise InvalidInput(f"{name}: {theory.__name__} is not a @dataclass(frozen=True).")
    for field in fields(theory):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidInput(
                f"{name}: the option {field.name!r} of {theory.__name__} lacks a default."
            )
