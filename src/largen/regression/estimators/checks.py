"""Scikit-learn's checks of samples, raising errors that are also largen's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.utils.validation import validate_data

from largen.arrays import known
from largen.errors import InvalidInput


class InvalidType(InvalidInput, TypeError):
    """An argument of a type for which scikit-learn's contract requires a ``TypeError``."""


@contextmanager
def named_by(name: str) -> Iterator[None]:
    """Convert scikit-learn's error for an argument into one that names the argument."""
    try:
        yield
    except InvalidInput:
        raise
    except TypeError as error:
        raise InvalidType(f"{name}: {error}") from error
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name}: {error}") from error


def checked_by_sklearn(estimator: Any, X: Any, *targets: Any, **options: Any) -> Any:
    """Return samples and targets validated by ``sklearn.utils.validation.validate_data``.

    Raises
    ------
    InvalidInput
        If scikit-learn refuses them; an :class:`InvalidType` where it raises a ``TypeError``.
    """
    known("X", X)
    known("y", targets)
    with named_by("X, y" if targets else "X"):
        return validate_data(estimator, X, *targets, **options)
