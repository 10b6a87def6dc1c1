"""Products that the processes of ``jax.distributed`` compute together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput

Part = TypeVar("Part")


def own_parts(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts of some work that this process does: every n-th, of n processes."""
    return parts[jax.process_index() :: jax.process_count()]


def sum_over_processes(part: np.ndarray) -> np.ndarray:
    """Return the sum of an array over all processes, the same bits in each of them."""
    return _of_all(part).sum(axis=0)


def any_of_processes(wanted: bool) -> bool:
    """Return whether any process asks for it: the same answer in all, so that all leave a loop."""
    return bool(_of_all(np.array(wanted)).any())


def check_agreement(name: str, *values: Any) -> None:
    """Check that all processes were given the same values."""
    digest = hashlib.sha256()
    for value in values:
        array = isinstance(value, np.ndarray)
        digest.update(np.ascontiguousarray(value).tobytes() if array else repr(value).encode())
    digests = _of_all(np.frombuffer(digest.digest(), np.uint8))
    if (digests != digests[0]).any():
        raise InvalidInput(
            f"{name}: the processes of jax.distributed were given different systems; each needs "
            "the same matrix, targets and options."
        )


def _of_all(array: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, with a leading axis of processes."""
    from jax.experimental.multihost_utils import process_allgather

    with precision(array):
        return np.asarray(process_allgather(array)).reshape(jax.process_count(), *array.shape)
