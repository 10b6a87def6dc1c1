"""The status of a result, and the functions that determine it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np


class Status(StrEnum):
    """Whether a result is usable, or the kind of failure; equal to its text.

    Examples
    --------
    >>> Status.OK == "ok", f"{Status.OUT_OF_MEMORY}"
    (True, 'out of memory')
    """

    OK = "ok"
    DIVERGED = "diverged"
    """Outputs grew beyond all bounds."""
    OVERFLOW = "overflow"
    """Losses, kernels or standard deviations are beyond the largest number."""
    INACCURATE = "inaccurate"
    """The requested accuracy was not reached."""
    ERROR_UNKNOWN = "error unknown"
    """The result has no estimate of its error, such as the mean of a single replicate."""
    OUT_OF_MEMORY = "out of memory"
    """The memory budget ended before the computation."""
    NOT_CONVERGED = "not converged"
    """The steps that were allowed did not suffice."""
    AT_BOUND = "at bound"
    """The best value lies at the end of the range that was searched."""
    SINGULAR = "singular"
    """A matrix could not be inverted."""

    @property
    def has_numbers(self) -> bool:
        """Whether all numbers are there, if perhaps less accurate than requested."""
        return self in (Status.OK, Status.INACCURATE, Status.ERROR_UNKNOWN)


def status_of(variables: Mapping[str, tuple[tuple[str, ...], Any]]) -> Status:
    """Return the status of a trajectory by its variables, given as name to (axes, array)."""
    bad = not_finite(variables)
    if not bad:
        return Status.OK
    return Status.DIVERGED if {"f_train", "f_test"} & set(bad) else Status.OVERFLOW


def not_finite(variables: Mapping[str, tuple[tuple[str, ...], Any]]) -> list[str]:
    """Return the names of variables with NaN or infinite numbers.

    NaN is intended in unknown errors, in losses on no samples, and at positions that a layer does
    not have.
    """
    untested = "f_test" in variables and not np.size(variables["f_test"][1])
    bad = []
    for name, (axes, array) in variables.items():
        values = np.asarray(array)
        if values.dtype.kind not in "fc" or name.endswith(("_error", "_margin")):
            continue
        if untested and name == "loss_test":
            continue
        meant = np.isnan(values) if "position" in axes else False
        if not (np.isfinite(values) | meant).all():
            bad.append(name)
    return bad
