"""Compiled programs of a process: Linux limits how many it may map."""

import gc
from pathlib import Path

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65530; compiled programs keep tens of them each


def forget_programs() -> None:
    """Let go of compiled programs before there are more of them than a process may map."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()
