"""Everything largen raises on purpose.

A wrong argument is an :class:`InvalidInput`; a question that no implemented theory answers is a
:class:`NoTheory`; a layer that a theory does not know is a :class:`NoRule`; a computation that
went numerically wrong is a :class:`NumericalFailure`, and carries what had been computed until
then. A file that is not what was written is a :class:`DamagedFile`, one that cannot be written
:class:`CannotWrite`. The one warning is :class:`LostDigits`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike
from typing import Any, TypeVar

from largen.text import shown

Name = TypeVar("Name", bound=str)
Kind = TypeVar("Kind")


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


class OutOfMemory(LargenError, MemoryError):
    """What is asked for does not fit into memory: how much it takes, and how much there is."""


class CannotWrite(LargenError, OSError):
    """A file could not be written; what was there before is as it was.

    The disk is full, the file is larger than is allowed, or writing is not permitted there.
    """


class DamagedFile(LargenError, OSError):
    """A file does not hold what was written to it: bits have changed, or its end is missing.

    What it held has to be computed again. A file that largen has not written may be called damaged,
    too: one cannot be told from the other.
    """

    def __init__(self, path: object, why: str):
        named = repr(str(path)) if isinstance(path, PathLike) else str(path)
        super().__init__(f"{named} is damaged: {why}. What it held has to be computed again.")


class LostDigits(UserWarning):
    """Samples differ so much in size that kernels of a small and a large one miss their accuracy.

    All other entries are right. Scale samples alike, such as to a mean square of 1 each;
    ``warnings.simplefilter("error", LostDigits)`` raises it.
    """


def one_of(name: str, got: object, known: Iterable[Name]) -> Name:
    """Return a name if it is among the known ones; else raise, with a guess at what was meant."""
    known = sorted(known)
    if isinstance(got, str):
        for each in known:
            if got == each:
                return each
    close: list[str] = []
    if isinstance(got, str):
        close += get_close_matches(got[:60], known, n=1)
        close += [each for each in known if len(got) > 2 and got in each]
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInput(f"{name}: {shown(got)} is not known.{guess} Known: {', '.join(known)}.")


def instance_of(name: str, got: Any, kind: type[Kind], wanted: str) -> Kind:
    """Return an argument if it is of a type; else raise, saying what is wanted.

    Parameters
    ----------
    name, got
        The argument.
    kind
        Its type.
    wanted
        What is wanted, in words, such as ``"a Parameterization such as lg.ntk()"``.
    """
    if isinstance(got, kind):
        return got
    hint = " Did you forget the parentheses?" if isinstance(got, type) else ""
    raise InvalidInput(f"{name}: wanted {wanted}, got {shown(got)}.{hint}")
