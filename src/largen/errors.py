"""The exceptions and warnings of largen.

A wrong argument raises :class:`InvalidInput`; a run that no implemented theory covers raises
:class:`NoTheory`; a layer without a rule in the theory raises :class:`NoRule`; a computation that
fails numerically raises :class:`NumericalFailure`, which carries the results so far. A file whose
contents have changed raises :class:`DamagedFile`, a file that cannot be written
:class:`CannotWrite`. Warnings are :class:`Inaccurate`, :class:`LostDigits`, :class:`NotGaussian`,
:class:`RepeatedSamples`, :class:`WrongPlan` and :class:`WrongRun`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike
from typing import Any, TypeVar

from largen.text import shown

Name = TypeVar("Name", bound=str)
Kind = TypeVar("Kind")

__all__ = [
    "CannotWrite",
    "DamagedFile",
    "Inaccurate",
    "InvalidInput",
    "LargenError",
    "LostDigits",
    "NoRule",
    "NoTheory",
    "NotGaussian",
    "NumericalFailure",
    "OutOfMemory",
    "RepeatedSamples",
    "WrongPlan",
    "WrongRun",
]


def __dir__() -> list[str]:
    return __all__


class LargenError(Exception):
    """Base class of all errors of largen."""


class InvalidInput(LargenError, ValueError):
    """An argument is invalid; the message names it, its value and the values that are accepted."""


class NoTheory(LargenError, NotImplementedError):
    """No implemented theory covers this run; the message names what is missing."""


class NoRule(LargenError, NotImplementedError):
    """A computation on networks (a kernel, a limit, …) has no rule for one of the layers."""

    def __init__(self, reading: str, layer: object, known: Iterable[type] = (), said: str = ""):
        self.layer = layer
        self._given = reading, layer, tuple(known), said
        if said:
            super().__init__(said)
            return
        names = ", ".join(sorted(kind.__name__ for kind in self._given[2]))
        said = f"{reading} has no rule for the layer {layer!r}; it knows {names}."
        if not names:
            said = f"the layer {layer!r} does not say which operations it is: it has no `lower`."
        super().__init__(f"{said} See 'How to add a layer' in CONTRIBUTING.md.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given  # so that it can come from another process


class NumericalFailure(LargenError, ArithmeticError):
    """A computation diverged, or did not reach the required accuracy.

    Attributes
    ----------
    result
        The results so far, flagged as failed; with ``throw=False`` they are returned instead of
        raised.
    """

    def __init__(self, message: str, result: object = None):
        super().__init__(message)
        self.result = result


class OutOfMemory(LargenError, MemoryError):
    """A result does not fit into memory; the message gives the memory needed and available."""


class CannotWrite(LargenError, OSError):
    """A file could not be written; an existing file of that name is unchanged.

    The disk is full, the file exceeds a size limit, or writing is not permitted in the folder.
    """


class DamagedFile(LargenError, OSError):
    """A file does not hold what was written to it: bits have changed, or its end is missing.

    Its contents have to be computed again. A file that largen has not written may be reported as
    damaged as well, since the two cases cannot be distinguished.
    """

    def __init__(self, path: object, why: str):
        self._given = path, why
        named = repr(str(path)) if isinstance(path, PathLike) else str(path)
        super().__init__(f"{named} is damaged: {why}. What it held has to be computed again.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given


class LostDigits(UserWarning):
    """Numbers cancel, and little of their accuracy is left; the message says which.

    Samples differ so much in size that kernels of a small and a large one are inaccurate: all other
    entries are accurate. Rescale the samples, for example to a mean square of 1 each. Or the
    curvature of a loss is the small difference of two terms
    (:meth:`largen.runs.Trajectory.sharpness`).
    ``warnings.simplefilter("error", LostDigits)`` turns the warning into an error.
    """


class Inaccurate(UserWarning):
    """The error of a limit is larger than ``rtol``, or not known; its ``status`` says which.

    The message says how large it is, and what makes it smaller. Outputs are returned as they are,
    with ``f_train_error`` and ``f_train_margin``; ``throw=False`` leaves the warning out, and
    ``warnings.simplefilter("error", Inaccurate)`` turns it into an error.
    """


class NotGaussian(UserWarning):
    """Preactivations of a read-in are not Gaussian, and kernels take them to be.

    They are sums over the inputs, and not over the width. The message has the size of the excess
    kurtosis; kernels differ by less, in proportion. Normal initialisation has none.
    """


class RepeatedSamples(UserWarning):
    """Many samples of a pool are the same, and learning curves take them to be independent.

    The error of a sample whose twin is in the training set is that of its noise, so that errors on
    new samples are larger. Leave out the repeated ones, with
    ``np.unique(x, axis=0, return_index=True)``.
    """


class WrongPlan(UserWarning):
    """Updates by a plan grow or fade with the size of the model; the message names the weight.

    Also of a model that does not carry the plan's multipliers, and of a width that no weight has.

    ``warnings.simplefilter("error", WrongPlan)`` turns the warning into an error.
    """


class WrongRun(UserWarning):
    """The losses of a run are not those that its pilots foretell; the message has the step.

    ``warnings.simplefilter("error", WrongRun)`` ends the run.
    """


def exactly(name: str, got: Kind, kind: type, instead: str) -> Kind:
    """Return a record of a class whose meaning is in its fields; refuse those of its subclasses.

    ``instead``: what to pass, such as ``"the function ℓ(f, y) itself"``. Methods of a subclass
    would not be asked, so that it would count as its base.
    """
    if type(got) is kind:
        return got
    raise InvalidInput(
        f"{name}: {type(got).__name__} is a subclass of {kind.__name__}, which is known by its "
        f"fields alone: methods of a subclass have no effect. Wanted {instead}."
    )


def one_of(name: str, got: object, known: Iterable[Name]) -> Name:
    """Return a name if it is known; otherwise raise an error that suggests a similar name."""
    known = sorted(known)
    if isinstance(got, str):
        for each in known:
            if got == each:
                return each
    close: list[str] = []
    if isinstance(got, str):
        lower = {each.lower(): each for each in known}
        close += [lower[each] for each in get_close_matches(got[:60].lower(), lower, n=1)]
        close += [each for each in known if len(got) > 2 and got in each]
    guess = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInput(f"{name}: {shown(got)} is not known.{guess} Known: {', '.join(known)}.")


def instance_of(name: str, got: Any, kind: type[Kind], wanted: str) -> Kind:
    """Return an argument if it has the given type; otherwise raise an error.

    ``kind``: the required type; ``wanted``: the accepted values, in words, such as ``"a
    Parameterization such as lg.ntk()"``.
    """
    if isinstance(got, kind):
        return got
    hint = " Did you forget the parentheses?" if isinstance(got, type) else ""
    raise InvalidInput(f"{name}: wanted {wanted}, got {shown(got)}.{hint}")
