"""Laws of weights at initialisation, and the powers of the width in their constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from scipy import special, stats

EXACT = 1e-6  # relative size below which a difference of constants is rounding, of floats as well
NEAR = 1e-3  # the same for powers that are read at a large width
HALF = math.sqrt(0.5)
TRUNCATED = "truncated normal"


@dataclass(frozen=True)
class Law:
    """The law of a parameter's entries, which are independent."""

    kind: str  # its name, such as "uniform"; "constant" for entries that are all the same number
    # mean, variance: its moments.
    mean: float
    variance: float
    excess: float = 0.0  # the excess kurtosis, E[(w − m)⁴]/σ⁴ − 3; 0 for normal entries
    # The relative standard error of a variance that is estimated from entries; 0 for a law that was
    # read from the construction.
    relative_error: float = 0.0

    def scaled(self, factor: float) -> Law:
        """Return the law of entries that are multiplied by a number."""
        return replace(self, mean=self.mean * factor, variance=self.variance * factor**2)

    def shifted(self, by: float) -> Law:
        """Return the law of entries to which a number is added."""
        return replace(self, mean=self.mean + by)


def uniform(low: float, high: float) -> Law:
    """Return the uniform law between two numbers."""
    if low == high:
        return constant(low)
    return Law("uniform", (low + high) / 2, (high - low) ** 2 / 12, -1.2)


def normal(mean: float, std: float) -> Law:
    """Return the normal law."""
    if std == 0:
        return constant(mean)
    return Law("normal", mean, std**2)


def constant(value: float) -> Law:
    """Return the law of entries that are all one number."""
    return Law("constant", value, 0.0)


def inverse_error_function(law: Law) -> Law:
    """Return the law of erf⁻¹(u) for a uniform u, a normal one of variance ½ that is cut."""
    half = math.sqrt(3 * law.variance)
    return cut(*(special.erfinv(law.mean + side) / HALF for side in (-half, half))).scaled(HALF)


def cut(low: float, high: float) -> Law:
    """Return the law of standard normal numbers between two bounds."""
    mean, variance, _, excess = map(float, stats.truncnorm.stats(low, high, moments="mvsk"))
    # Bounds that are symmetric have the mean 0 but for rounding.
    return Law(TRUNCATED, mean if abs(mean) > 1e-12 else 0.0, variance, excess)


class Parameter(NamedTuple):
    """A parameter of a module as constructed: its law, None if it cannot be read, and its shape.

    ``why`` says why a law cannot be read; ``zero_row`` is a row of a table of tokens that is 0 and
    not of the law, as that of padding is.
    """

    law: Law | None
    shape: tuple[int, ...]
    why: str = ""
    zero_row: int | None = None


class Constant(NamedTuple):
    """A constant of order one and its power of the width, value · (n/n₀)^power."""

    value: float  # the limit for power 0; otherwise the value at the first width
    power: Fraction | None  # the power of the width; None if a single width is known

    @property
    def limit(self) -> float:
        """The limit of infinite width; ``inf`` for a constant that grows."""
        if not self.power or not self.value:
            return self.value
        return 0.0 if self.power < 0 else math.inf


def constant_of(
    values: tuple[float, float],
    ratio: float,
    # Returns the values at a very large width and at twice that width. They are asked for where the
    # two values are not related by a half-integer power, such as for 2/(n + d); None if they are
    # not known.
    at_large: Callable[[], tuple[float, float]] | None,
) -> Constant | None:
    """Return a constant from its values at two widths, None if it follows no power of the width."""
    small, large = values
    if small == large or (small and abs(large / small - 1) < EXACT):
        return Constant(large, Fraction(0))
    found = _power(small, large, ratio, EXACT)
    if found is not None:
        return Constant(small, found)
    if at_large is None:
        return None
    one, two = at_large()
    found = _power(one, two, 2.0, NEAR)
    if found is None:
        return None
    # The next term is of relative order 1/width, which the two values extrapolate.
    return Constant(2 * two - one if found == 0 else small, found)


def _power(small: float, large: float, ratio: float, tolerance: float) -> Fraction | None:
    """Return the half-integer power that relates two values, if one does."""
    if not (small > 0 and large > 0):
        return None
    power = math.log(large / small) / math.log(ratio)
    nearest = Fraction(round(2 * power), 2)
    return nearest if abs(power - nearest) < tolerance else None
