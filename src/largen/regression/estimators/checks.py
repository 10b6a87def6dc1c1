"""Scikit-learn's checks of samples, with errors that are largen's as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.utils.validation import validate_data

from largen.arrays import known
from largen.errors import InvalidInput


class InvalidType(InvalidInput, TypeError):
    """An argument of a type that scikit-learn's contract wants a ``TypeError`` for."""


@contextmanager
def named_by(name: str) -> Iterator[None]:
    """Raise what scikit-learn raises for an argument as an error that names it."""
    try:
        yield
    except InvalidInput:
        raise
    except TypeError as error:
        raise InvalidType(f"{name}: {error}") from error
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name}: {error}") from error


def checked_by_sklearn(estimator: Any, X: Any, *targets: Any, **options: Any) -> Any:
    """Return what ``sklearn.utils.validation.validate_data`` makes of samples, and of targets.

    Raises
    ------
    InvalidInput
        For what scikit-learn does not take; an :class:`InvalidType` where that is a ``TypeError``.
    """
    known("X", X)
    known("y", targets)
    with named_by("X, y" if targets else "X"):
        return validate_data(estimator, X, *targets, **options)
