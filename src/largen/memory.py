"""Available memory, and freed memory that the C library has not returned to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import jax

from largen.errors import OutOfMemory

MEMORY_BUDGET = 2**32  # bytes, the default of every memory_budget=
PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
# Files with the limit and the use of a control group, in version 2 and version 1.
GROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def available_bytes() -> float:
    """Return the memory that this process can still allocate; infinity where it is unknown.

    It is the minimum of the system's available memory and of what the limits of the process's
    control group and of its address space (``ulimit -v``) leave.
    """
    return min((*_of_system(), *_of_group(), *_of_address_space()), default=float("inf"))


def check_fits(needed: float, what: str, advice: str) -> None:
    """Check that results fit into memory, before anything is allocated.

    XLA ends the process if an allocation fails. Only memory of the CPU is checked. ``what``:
    argument and objects, such as ``"x1: two kernels of 10 samples"``; ``advice``: what to do
    instead.
    """
    there = available_bytes() if jax.default_backend() == "cpu" else float("inf")
    if needed > there:
        raise OutOfMemory(
            f"{what} take {needed / 1e9:.3g} GB, and {there / 1e9:.3g} GB are available. {advice}"
        )


def _of_system() -> Iterator[float]:
    for line in _text(PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield 1024.0 * int(line.split()[1])


def _of_group() -> Iterator[float]:
    for limit, use in GROUP_FILES:
        most, now = _text(CGROUP / limit).strip(), _text(CGROUP / use).strip()
        if most.isdecimal() and now.isdecimal():
            yield max(float(most) - float(now), 0.0)


def _of_address_space() -> Iterator[float]:
    try:
        import resource
    except ImportError:  # on Windows
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text(PROC / "self" / "statm").split()
    if most != resource.RLIM_INFINITY and pages:
        yield max(float(most) - int(pages[0]) * resource.getpagesize(), 0.0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def give_back() -> None:
    """Return freed memory to the system, where the C library supports it.

    XLA's compiler runs in several threads, and glibc keeps the memory that each has freed: 80 MB
    after the kernel of a few layers, in addition to results that may take as much.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
