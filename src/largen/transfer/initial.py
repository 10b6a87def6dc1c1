"""Measurement, on small models, of how a builder's own initialisation depends on the size.

``nn.Linear`` has standard deviations of order 1/√fan_in, GPT-2 has 0.02 at every width and 1/√L in
the branches, an LSTM has 1/√hidden. The builder's power is measured on a base model and on one of
another size, so that only the factor missing to the rule's power is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, sqrt

import numpy as np

QUARTER = Fraction(1, 4)
# Errors of a measured power: a power is mistaken for its neighbour if the error is half a step, ¼.
WANTED_ERROR, LARGEST_ERROR = 0.07, 0.1
# In units of the mean square: MANY entries or more with a smaller variance count as constants.
LEAST_VARIANCE, MANY = 0.02, 64
FEW_DRAWS, MOST_DRAWS = 8, 512
MOST_ENTRIES = 2**25  # limit on the entries in all further draws together: about a second
MOST_MEASURED = 1000  # number of builders and shapes whose moments are cached


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of squares of entries; they add up over tensors and draws."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    @classmethod
    def of(cls, entries: np.ndarray) -> Moments:
        """Return the moments of one tensor.

        Equal entries count as zeros, because constants may differ between copies of a block without
        being random. A single entry is random if its value differs between draws.
        """
        values = np.asarray(entries, dtype=np.float64)
        if values.size > 1 and (values == values.flat[0]).all():
            return cls(values.size)
        return cls(values.size, float(values.sum()), float(np.square(values).sum()))

    @property
    def std(self) -> float:
        """The standard deviation; 0 for entries that are equal, or nearly so.

        The gains of weight normalisation start at the lengths of random rows, whose small scatter
        has another power of the width than their mean.
        """
        if not self.count:
            return 0.0
        mean = self.total / self.count
        variance = self.squares / self.count - mean * mean
        least = LEAST_VARIANCE if self.count >= MANY else 1e-10
        return sqrt(variance) if variance > least * self.squares / self.count else 0.0


@dataclass(frozen=True)
class InitialDistribution:
    """A weight's initialisation: its standard deviation at the base, and its powers of n and l."""

    std: float  # the standard deviation at the base shape; 0 if the weight starts as a constant
    # width, depth: powers of n and l, rounded to multiples of ¼ where the measurement allows it.
    width: float = 0.0
    depth: float = 0.0


def initial_distributions(
    # base, wide, deep: moments, by the base model's names, of models of the base shape, of a larger
    # width, and of a larger depth.
    base: Mapping[str, Moments],
    wide: Mapping[str, Moments],
    deep: Mapping[str, Moments],
    # width_ratios, depth_ratio: ratio of the widths, by name, and ratio of the depths.
    width_ratios: Mapping[str, float],
    depth_ratio: float,
) -> dict[str, InitialDistribution]:
    """Return the initialisation of every weight of the base model."""
    distributions = {}
    for name, at_base in base.items():
        in_width = _power(at_base, wide.get(name), width_ratios.get(name, 1.0))
        in_depth = _power(at_base, deep.get(name), depth_ratio)
        distributions[name] = InitialDistribution(at_base.std, in_width, in_depth)
    return distributions


def entries_for(ratios: Iterable[float]) -> int:
    """Return the number of entries that resolve a power at the smallest of these ratios."""
    logs = [abs(log(ratio)) for ratio in ratios if ratio != 1.0]
    return ceil((WANTED_ERROR * min(logs, default=1.0)) ** -2)


# (number of the draw, wanted weights or None for all) → names and values of these weights
Draw = Callable[[int, Collection[str] | None], Iterable[tuple[str, np.ndarray]]]
_MEASURED: dict[tuple, Mapping[str, Moments]] = {}


def measured(draw: Draw, names: Mapping[str, str], entries: int) -> Mapping[str, Moments]:
    """Return the moments of initial weights, from several draws if tensors are small.

    ``draw(number, wanted)`` returns the wanted weights, or all for None. ``names``: weight → name
    under which copies are pooled. Moments are cached by the numbers of the first draw.
    """
    first = _count(draw(0, None), names)
    builder = (entries, frozenset(first.items()))
    found = _MEASURED.get(builder)
    if found is None:
        found = _draw_again(draw, names, first, entries)
        if len(_MEASURED) >= MOST_MEASURED:
            _MEASURED.clear()
        _MEASURED[builder] = found
    return found


def _draw_again(
    draw: Draw, names: Mapping[str, str], first: Mapping[str, Moments], entries: int
) -> dict[str, Moments]:
    """Draw until every random weight has this many entries, or :data:`MOST_ENTRIES` is reached."""
    found, number, spent = dict(first), 1, 0.0
    while number < MOST_DRAWS and spent < MOST_ENTRIES:
        # At least two draws distinguish a random weight of one entry from a constant.
        few = {
            name
            for name, m in found.items()
            if m.count < entries and (m.std or m.count == number == 1)
        }
        if not few:
            break
        wanted = {weight for weight, name in names.items() if name in few}
        for name, own in _count(draw(number, wanted), names).items():
            found[name] += own
            spent += own.count if number >= FEW_DRAWS else 0
        number += 1
    return found


def _count(
    weights: Iterable[tuple[str, np.ndarray]], names: Mapping[str, str]
) -> dict[str, Moments]:
    """Return the moments of weights by the names under which they are pooled."""
    found: dict[str, Moments] = {}
    for weight, values in weights:
        found[names[weight]] = found.get(names[weight], Moments()) + Moments.of(values)
    return found


def _power(before: Moments, after: Moments | None, ratio: float) -> float:
    """Return the power as the multiple of ¼ that agrees with it, multiples of ½ first.

    The standard deviation of n Gaussian entries has a relative error of 1/√(2n). A power that too
    few entries distinguish from its neighbours is 0: the builder's values are kept.
    """
    if after is None or ratio == 1.0 or not before.std or not after.std:
        return 0.0
    power = log(after.std / before.std) / log(ratio)
    error = sqrt(0.5 / before.count + 0.5 / after.count) / abs(log(ratio))
    if error > LARGEST_ERROR:
        return 0.0
    for step in (2 * QUARTER, QUARTER):
        near = round(Fraction(power) / step) * step
        if abs(power - float(near)) <= max(5 * error, 0.02):
            return float(near)
    return power
