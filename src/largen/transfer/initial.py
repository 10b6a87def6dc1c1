"""How a builder's own initialisation depends on the size, measured on small models.

Builders initialise as they please: ``nn.Linear`` with deviations of order 1/√fan_in, GPT-2 with
0.02 at every width and 1/√L in the branches, an LSTM with 1/√hidden for all of its tensors. A rule
that multiplies one of these by a fixed power is wrong for the others. Here the builder's own power
is measured, on a base model and on one of another width or depth, and only what is missing to the
rule's power is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log, sqrt

import numpy as np

QUARTER = Fraction(1, 4)
# A power is half a step, ¼, away from being taken for its neighbour.
WANTED_ERROR, LARGEST_ERROR = 0.07, 0.1
# Of the mean square: many entries that scatter less are constants.
LEAST_VARIANCE, MANY = 0.02, 64
FEW_DRAWS, MOST_DRAWS = 8, 512
MOST_ENTRIES = 2**25  # of all weights, in more than the few draws: about a second
MOST_MEASURED = 1000  # builders and shapes that are remembered


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

        Entries that are all the same count as zeros: constants may differ between copies of a
        block, and are not random for that. A single entry is random if the draws differ.
        """
        values = np.asarray(entries, dtype=np.float64)
        if values.size != 1 and (values == values.flat[:1]).all():
            return cls(values.size)
        return cls(values.size, float(values.sum()), float(np.square(values).sum()))

    @property
    def std(self) -> float:
        """The deviation; exactly 0 for entries that are all the same, or nearly so.

        Lengths of rows of random entries, as weight normalisation starts with, scatter a little
        about a mean: they are constants, and what scatters has another power of the width.
        """
        if not self.count:
            return 0.0
        mean = self.total / self.count
        variance = self.squares / self.count - mean * mean
        least = LEAST_VARIANCE if self.count >= MANY else 1e-10
        return sqrt(variance) if variance > least * self.squares / self.count else 0.0


@dataclass(frozen=True)
class InitialLaw:
    """A weight's initialisation: its deviation at the base, and its powers of n and l.

    Attributes
    ----------
    std
        The deviation at the base shape; 0 if it starts as a constant.
    width, depth
        Powers of n and l, multiples of ¼ where the measurement allows it.
    """

    std: float
    width: float = 0.0
    depth: float = 0.0


def initial_laws(
    base: Mapping[str, Moments],
    wide: Mapping[str, Moments],
    deep: Mapping[str, Moments],
    width_ratios: Mapping[str, float],
    depth_ratio: float,
) -> dict[str, InitialLaw]:
    """Return the law of every weight of the base model.

    Parameters
    ----------
    base, wide, deep
        Moments by the base model's names, of models of the base shape, a larger width, and a
        larger depth.
    width_ratios, depth_ratio
        How much wider, by name, and how much deeper.
    """
    laws = {}
    for name, at_base in base.items():
        in_width = _power(at_base, wide.get(name), width_ratios.get(name, 1.0))
        in_depth = _power(at_base, deep.get(name), depth_ratio)
        laws[name] = InitialLaw(at_base.std, in_width, in_depth)
    return laws


def entries_for(ratios: Iterable[float]) -> int:
    """Return how many entries tell the power of the smallest of these ratios."""
    logs = [abs(log(ratio)) for ratio in ratios if ratio != 1.0]
    return ceil((WANTED_ERROR * min(logs, default=1.0)) ** -2)


# (number of the draw, wanted weights or None for all) → their names and values in it
Draw = Callable[[int, Collection[str] | None], Iterable[tuple[str, np.ndarray]]]
_MEASURED: dict[tuple, Mapping[str, Moments]] = {}


def measured(draw: Draw, names: Mapping[str, str], entries: int) -> Mapping[str, Moments]:
    """Return the moments of initial weights, over several draws if tensors are small.

    A builder whose first draw is, number for number, one that was seen before is the same builder
    at the same shape, and is not drawn again.

    Parameters
    ----------
    draw
        ``draw(number, wanted)``, the same for the same number; of all weights if ``wanted`` is
        None.
    names
        Weight → name under which its entries are counted, one for all copies of a block.
    entries
        How many are wanted of each random weight.
    """
    first = _counted(draw(0, None), names)
    builder = (entries, frozenset(first.items()))
    found = _MEASURED.get(builder)
    if found is None:
        found = _drawn_again(draw, names, first, entries)
        if len(_MEASURED) >= MOST_MEASURED:
            _MEASURED.clear()
        _MEASURED[builder] = found
    return found


def _drawn_again(
    draw: Draw, names: Mapping[str, str], first: Mapping[str, Moments], entries: int
) -> dict[str, Moments]:
    """Draw until every random weight has these entries, or it takes too long."""
    found, number, spent = dict(first), 1, 0.0
    while number < MOST_DRAWS and spent < MOST_ENTRIES:
        # Two draws at least tell a random weight of one entry from a constant.
        few = {
            name
            for name, m in found.items()
            if m.count < entries and (m.std or m.count == number == 1)
        }
        if not few:
            break
        wanted = {weight for weight, name in names.items() if name in few}
        for name, own in _counted(draw(number, wanted), names).items():
            found[name] += own
            spent += own.count if number >= FEW_DRAWS else 0
        number += 1
    return found


def _counted(
    weights: Iterable[tuple[str, np.ndarray]], names: Mapping[str, str]
) -> dict[str, Moments]:
    """Return the moments of weights by the names under which they are counted."""
    found: dict[str, Moments] = {}
    for weight, values in weights:
        found[names[weight]] = found.get(names[weight], Moments()) + Moments.of(values)
    return found


def _power(before: Moments, after: Moments | None, ratio: float) -> float:
    """Return the power, snapped to a multiple of ¼ that agrees with it.

    A deviation of n entries is known to 1/√(2n) of itself for Gaussians, to less for lighter
    tails. ½ is tried first, since all common initialisations have multiples of it. A power that
    too few entries tell from its neighbours is taken to be 0: the builder's values are kept.
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
