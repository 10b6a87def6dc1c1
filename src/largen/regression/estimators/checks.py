"""Scikit-learn's checks of samples, raising errors that are also largen's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.utils.validation import validate_data

from largen.arrays import as_array, known, opened
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
    """Return samples and targets, read as everywhere in largen and validated by scikit-learn."""
    samples = read("X", X)
    if hasattr(X, "columns"):
        samples = X  # a frame, whose names of features scikit-learn keeps
    read_targets = read if options.get("y_numeric") else opened
    given: list[Any] = [y if y is None else read_targets("y", y) for y in targets]
    with named_by("X, y" if targets else "X"):
        return validate_data(estimator, samples, *given, **options)


def read(name: str, value: Any) -> Any:
    """Return :func:`largen.arrays.as_array` of an argument."""
    try:
        known(name, value)
        return as_array(name, value)
    except InvalidInput as error:
        if isinstance(error.__cause__, TypeError):
            raise InvalidType(f"{error} {error.__cause__}") from error
        raise
