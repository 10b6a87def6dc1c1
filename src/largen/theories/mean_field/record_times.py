"""When kernels are kept: at single times, and between two of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Recorded(NamedTuple):
    """At what kernels are kept: entries, or steps of the sweep.

    Attributes
    ----------
    alone
        Φ(t, t), G(t, t) and what else is kept at a time, ``(record,)``.
    pairs
        Φ(t, s), G(t, s), ``(pair, 2)``.
    """

    alone: np.ndarray
    pairs: np.ndarray

    def at(self, steps: np.ndarray) -> Recorded:
        """Return steps for entries."""
        return Recorded(steps[self.alone], steps[self.pairs])

    @property
    def single(self) -> set[int]:
        """Those of Φ(t, t) and G(t, t)."""
        return set(self.alone.tolist())

    @property
    def paired(self) -> set[int]:
        """Those of which φ(h) and g are kept until they have met all others."""
        return set(self.pairs.ravel().tolist())

    def before(self, step: int) -> Recorded:
        """Return what is recorded before a step."""
        return Recorded(self.alone[self.alone < step], self.pairs[(self.pairs < step).all(axis=1)])

    def waiting(self, step: int) -> set[int]:
        """Return the times before a step that have yet to meet a later one."""
        met = (self.pairs < step).any(axis=1) & (self.pairs >= step).any(axis=1)
        return {int(min(pair)) for pair in self.pairs[met]}


NOTHING = Recorded(np.zeros(0, int), np.zeros((0, 2), int))
