"""Entries of parameters against the laws that a model's construction says they have."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from largen.reading.laws import Law, Parameter, constant

MANY = 64  # fewest entries whose moments are compared with a law
MOST_Z = 6.0  # largest deviation of a moment from its law, in standard errors


def compared(law: Law | str, entries: np.ndarray) -> Parameter:
    """Return a parameter's law after it has been compared with the entries.

    ``law``: the law of the construction, or why there is none.
    """
    shape, values = entries.shape, entries.astype(np.float64).flatten()
    if values.size > 1 and np.all(values == values[0]):
        return Parameter(constant(float(values[0])), shape)
    if (found := _orthogonal(entries)) is not None:
        return Parameter(found, shape)
    if not isinstance(law, Law):
        return Parameter(None, shape, law)
    why = _disagreement(law, values)
    return Parameter(None if why else law, shape, why)


def _disagreement(law: Law, values: np.ndarray) -> str:
    """Return how entries differ from a law, or an empty text."""
    if law.kind == "constant":
        same = np.all(np.abs(values - law.mean) <= 1e-6 * abs(law.mean))
        return "" if same else f"its entries are not the constant {law.mean:g}"
    if law.kind == "uniform":
        half = math.sqrt(3 * law.variance) * (1 + 1e-5)
        if np.any(np.abs(values - law.mean) > half):
            return f"its entries are not between {law.mean - half:.3g} and {law.mean + half:.3g}"
    if values.size < MANY:
        return ""
    centred, n = values - law.mean, values.size
    first = float(centred.mean()) / math.sqrt(law.variance / n)
    second = float((centred**2).mean()) / law.variance - 1
    if max(abs(first), abs(second) / math.sqrt((law.excess + 2) / n)) > MOST_Z:
        return (
            f"its entries have the variance {float(values.var(ddof=1)):.3g}, and the {law.kind} "
            f"law of its construction {law.variance:.3g}"
        )
    return ""


def _orthogonal(entries: np.ndarray) -> Law | None:
    """Return the law of an orthogonal matrix, which has the limit of a normal one, if it is one."""
    if entries.ndim < 2 or min(entries.shape) < 2:
        return None
    matrix = entries.astype(np.float64).reshape(len(entries), -1)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    gram = matrix @ matrix.T
    size = float(gram.diagonal().mean())
    off = float(np.abs(gram - size * np.eye(len(gram))).max())
    if not size or off > 1e-5 * size or (matrix != 0).sum(axis=1).max() < 2:
        return None  # rows with one entry, as those of the identity, are not mixed
    return Law("orthogonal", 0.0, size / matrix.shape[1])


def estimated(entries: np.ndarray) -> Law:
    """Return the law with the moments of entries, whose mean is 0 if it may be."""
    values = entries.astype(np.float64).flatten()
    n, variance, mean = values.size, float(values.var(ddof=1)), float(values.mean())
    excess = float(((values - mean) ** 4).mean()) / variance**2 - 3
    mean = 0.0 if abs(mean) < MOST_Z * math.sqrt(variance / n) else mean
    law = Law("measured", mean, variance, excess)
    return replace(law, relative_error=math.sqrt(max(excess + 2, 0) / n))
