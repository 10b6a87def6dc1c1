"""The times at which kernels are recorded: single times, and pairs of times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Recorded(NamedTuple):
    """The times of recorded kernels, as time indices of the trajectory or steps of the sweep."""

    alone: np.ndarray  # the times t of Φ(t, t), G(t, t) and other equal-time records, (record,)
    pairs: np.ndarray  # the pairs (t, s) of Φ(t, s) and G(t, s), (pair, 2)

    def at(self, steps: np.ndarray) -> Recorded:
        """Return the same times as steps of the sweep, given the step of each time index."""
        return Recorded(steps[self.alone], steps[self.pairs])

    @property
    def single(self) -> set[int]:
        """The set of times t at which Φ(t, t) and G(t, t) are recorded."""
        return set(self.alone.tolist())

    @property
    def paired(self) -> set[int]:
        """The set of times in pairs, at which φ(h) and g are stored until all their partners."""
        return set(self.pairs.ravel().tolist())

    def before(self, step: int) -> Recorded:
        """Return the times and pairs that lie entirely before a step."""
        return Recorded(self.alone[self.alone < step], self.pairs[(self.pairs < step).all(axis=1)])

    def waiting(self, step: int) -> set[int]:
        """Return the times before a step that are paired with a time at or after it."""
        met = (self.pairs < step).any(axis=1) & (self.pairs >= step).any(axis=1)
        return {int(min(pair)) for pair in self.pairs[met]}


NOTHING = Recorded(np.zeros(0, int), np.zeros((0, 2), int))
