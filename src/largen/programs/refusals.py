"""The sentence with which a reader of programs refuses an operation."""

from __future__ import annotations

from collections.abc import Iterable

from largen.errors import NoRule
from largen.programs.operations import Affine, Normalise, Operation, Pool
from largen.programs.program import Program, Source, name_of


def in_words(operation: Operation) -> str:
    """Return an operation as a noun with its article.

    >>> in_words(Affine((0,), 0, groups=2))
    'an affine map in 2 groups of channels'
    """
    match operation:
        case Affine(groups=groups) if groups > 1:
            return f"an affine map in {groups} groups of channels"
        case Affine(tied=False):
            return "an affine map with a weight at each position"
        case Affine(window=window) if window is not None:
            return "an affine map of windows"
        case Normalise(over=over):
            over = {"sample": "channels and positions", "batch": "the batch"}.get(over, over)
            return f"a normalisation over {over}"
        case Pool(total=True):
            return "a sum over positions"
    return operation.words


def at(source: Source) -> str:
    """Return the layer of an operation with its path, as in ``"MaxPool((2,)) at 3"``."""
    return f"{source} at {name_of(source.path)}" if source.path else f"{source}"


def first(program: Program, kind: type[Operation]) -> str:
    """Return the layer and the path of the first operation of a kind, which is in a program."""
    operations = zip(program.operations, program.sources, strict=True)
    return next(at(source) for operation, source in operations if isinstance(operation, kind))


def no_rule(
    reading: str, operation: Operation, source: Source, known: Iterable[type] = ()
) -> NoRule:
    """Return the error of a reader for an operation.

    Parameters
    ----------
    reading
        What has no rule, such as ``"lg.solve (mean field)"``.
    operation, source
        The operation, and the layer that it is of.
    known
        The kinds of operations that have rules.

    Examples
    --------
    >>> from largen.programs import Maximum, Window
    >>> pool = Maximum((2,), Window((2,), (2,), (1,)))
    >>> print(no_rule("lg.solve (mean field)", pool, Source("MaxPool((2,))", (3,)), [Affine, Pool]))
    lg.solve (mean field): no rule for a maximum over positions (MaxPool((2,)) at 3). It has rules \
for Affine, Pool; networks of finite width have more: lg.train.
    """
    names = ", ".join(sorted(kind.__name__ for kind in known if kind is not object))
    rules = f" It has rules for {names}; networks of finite width have more: lg.train."
    said = f"{reading}: no rule for {in_words(operation)} ({at(source)}).{rules if names else ''}"
    return NoRule(reading, source, said=said)
