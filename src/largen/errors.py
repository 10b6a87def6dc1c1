"""Everything largen raises on purpose.

A wrong argument is an :class:`InvalidInput`; a question that no implemented theory answers is a
:class:`NoTheory`; a layer that a theory does not know is a :class:`NoRule`; a computation that
went numerically wrong is a :class:`NumericalFailure`, and the last one carries what had been
computed until then. The one warning is :class:`LostDigits`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeVar

Name = TypeVar("Name", bound=str)


class LargenError(Exception):
    """Base class of all errors of largen."""


class InvalidInput(LargenError, ValueError):
    """An argument that cannot be meant: it is named, with what was got and what is wanted."""


class NoTheory(LargenError, NotImplementedError):
    """No implemented theory covers this run; the message names what is missing."""


class NoRule(LargenError, NotImplementedError):
    """A reading of the network (a kernel, a limit, …) has no rule for one of its layers."""

    def __init__(self, reading: str, layer: object, known: Iterable[type]):
        self.layer = layer
        names = ", ".join(sorted(kind.__name__ for kind in known))
        super().__init__(
            f"{reading} has no rule for the layer {layer!r}; it knows {names}. "
            "A rule is one function: see 'How to add a layer' in CONTRIBUTING.md."
        )


class NumericalFailure(LargenError, ArithmeticError):
    """A computation diverged, or did not reach its accuracy.

    Attributes
    ----------
    result
        What had been computed, flagged as failed; pass ``throw=False`` to get it returned
        instead of raised.
    """

    def __init__(self, message: str, result: object = None):
        super().__init__(message)
        self.result = result


class LostDigits(UserWarning):
    """Samples differ so much in size that kernels of a small and a large one miss their accuracy.

    All other entries are right. Scale samples alike, such as to a mean square of 1 each;
    ``warnings.simplefilter("error", LostDigits)`` raises it.
    """


def one_of(name: str, got: object, known: Iterable[Name]) -> Name:
    """Return a name if it is among the known ones; else raise, with a guess at what was meant."""
    known = sorted(known)
    for each in known:
        if isinstance(got, str) and got == each:
            return each
    close = get_close_matches(str(got), known, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInput(f"{name}: {got!r} is not known.{guess} Known: {', '.join(known)}.")
