"""What comes of a call: an error of largen's, the user's own error, a finite result, or a fault."""

from __future__ import annotations

import dataclasses
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import xarray
from tests.wrong_arguments import values

from largen.errors import LargenError

SECONDS = 20
# Fields whose docstrings say when they are infinite or not a number: depth scales on the edge of
# chaos, times of directions that are never learned, slopes of correlations that do not exist, the
# condition and the determinant of singular kernels, gradients of networks whose signals die, steps
# of training that does not end, the time ∞ as it was given.
UNBOUNDED = {
    "growth", "growth_error", "correlation_error", "correlation_exponent",
    "correlation_depth", "variance_depth", "chi_perp", "gap", "times", "condition", "factor",
    "log_determinant", "steps", "time",
}  # fmt: skip


class TooLong(BaseException):
    """The call is still running."""


def outcome(call: Callable[[], Any]) -> str:
    """Make the call, and say in a line what came of it; faults begin with FAULT."""

    def stop(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call()
            problem = not_finite(result)
    except LargenError as error:
        return f"{type(error).__name__}: {error}"
    except values.OwnError:
        return "own error"
    except TooLong:
        return f"FAULT: runs for more than {SECONDS} s"
    except BaseException as error:
        if in_users_code(error):
            return "own error"
        return raw(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return f"FAULT: {problem}" if problem else "result"


def raw(error: BaseException) -> str:
    """Return the fault that an error from elsewhere is, with where it passed through largen."""
    where = traceback.extract_tb(error.__traceback__)
    ours = [
        f"{f.filename.rsplit('/src/')[-1]}:{f.lineno}"
        for f in where
        if "/src/largen/" in f.filename
    ]
    return f"FAULT: {type(error).__name__}: {str(error)[:200]!r} in {ours[-3:]}"


def in_users_code(error: BaseException) -> bool:
    """Whether an error passed through a function of the pool, on its way out of it."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = next((i for i, name in enumerate(frames) if "/src/largen/" in name), len(frames))
    # Functions of the examples that largen calls: models and losses on data that are none.
    theirs = any(name.endswith("transfer_examples.py") for name in frames[ours:])
    return theirs or values.__file__ in frames


def not_finite(result: Any) -> str:
    """Say which number of a result is not finite though its status is good; else nothing."""
    if getattr(result, "status", "ok") != "ok":
        return ""
    for where, array in numbers(result, "result", 0):
        if isinstance(array, jax.core.Tracer) or array.dtype.kind not in "fc":
            continue
        if not np.isfinite(np.asarray(array, dtype=complex)).all():
            return f"{where} is not finite"
    return ""


def numbers(value: Any, where: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a result, with where they are."""
    if depth > 6 or isinstance(value, type):
        return
    if isinstance(value, (float, complex, np.generic)):
        yield where, np.asarray(value)
    elif isinstance(value, (np.ndarray, jax.Array)):
        yield where, value
    elif isinstance(value, xarray.Dataset):
        for name, array in value.variables.items():
            yield f"{where}.{name}", np.asarray(array)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from numbers(entry, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        for name, entry in zip(names, value, strict=True):
            if name not in UNBOUNDED:
                yield from numbers(entry, f"{where}.{name}", depth + 1)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name not in UNBOUNDED:
                yield from numbers(getattr(value, field.name), f"{where}.{field.name}", depth + 1)
