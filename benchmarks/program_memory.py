"""Memory of compiled programs over a hundred different sizes: it should stop growing.

    python benchmarks/program_memory.py

Prints, after a number of calls of each kind with a new size each, how many programs were compiled,
the resident memory in MB, and the number of memory maps, of which Linux allows 65530.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import largen as lg
from largen.memory import give_back

PROC = Path("/proc/self")
COMPILED = "/jax/core/compile/backend_compile_duration"
SIZES = range(20, 120)
AT = (1, 10, 25, 50, 75, 100)


class Programs:
    """Counts what XLA has compiled."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, *_: Any, **__: Any) -> None:
        self.count += event == COMPILED


def inputs(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 5))


def predict(count: int) -> Any:
    x = inputs(count)
    return lg.posterior(lg.mlp(2, "relu"), x, np.sin(x[:, 0]), noise=0.1).predict(inputs(10))


CALLS: dict[str, Callable[[int], Any]] = {
    "kernel": lambda count: lg.kernel(lg.mlp(2, "relu"), inputs(count)),
    "posterior": predict,
}


def state(programs: Programs) -> Iterator[str]:
    gc.collect()
    give_back()
    resident = int((PROC / "statm").read_text().split()[1]) * 4096 / 1e6
    maps = (PROC / "maps").read_bytes().count(b"\n")
    yield from (f"{programs.count}", f"{resident:.0f}", f"{maps}")


def main() -> None:
    programs = Programs()
    print("| call | sizes | programs | MB | maps |\n|---|---|---|---|---|")
    for name, call in CALLS.items():
        for done, count in enumerate(SIZES, 1):
            call(count)
            if done in AT:
                print(f"| {name} | {done} | {' | '.join(state(programs))} |", flush=True)


if __name__ == "__main__":
    main()
