"""Claims of papers: a statement, the measured number with its interval, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A paper's claim about a figure, and the measurement that tests it."""

    says: str  # the claim, in our words
    measured: str  # description of the number
    # value, low, high: the number and its interval of 95 %; equal for a number without an error,
    # and NaN where nothing could be resolved.
    value: float
    low: float
    high: float
    agrees: bool | None  # whether the number supports the claim; None if its error leaves that open
    # "paper", or "alternative" for what the paper does not claim and is to be refuted: the other
    # order of limits, an equality where it has a bound.
    whose: str = "paper"
    bounds: tuple[float, ...] = ()  # values of the number at which the verdict turns

    @property
    def effort(self) -> float | None:
        """How many times as many networks would decide an open claim.

        An interval shrinks with the root of their number, and decides if it ends before the nearest
        bound. None for a decided claim, for one without bounds, and where the number is a bound.
        """
        gaps = [abs(self.value - bound) for bound in self.bounds]
        if self.agrees is not None or not gaps or not min(gaps) > 0:
            return None
        return max(1.0, ((self.high - self.low) / 2 / min(gaps)) ** 2)

    def summary(self) -> dict[str, Any]:
        """Return the fields for the JSON file, with null for NaN."""
        value, *interval = (
            float(number) if math.isfinite(number) else None
            for number in (self.value, self.low, self.high)
        )
        return {
            "claim": self.says,
            "measured": self.measured,
            "value": value,
            "interval": interval,
            "agrees": None if self.agrees is None else bool(self.agrees),
            "whose": self.whose,
            "effort": self.effort,
            "bounds": [float(bound) for bound in self.bounds if math.isfinite(bound)],
        }


VERDICTS = {True: "agree", False: "disagree", None: "unclear"}


def tally(claims: Sequence[Claim]) -> str:
    """Return how many of the paper's claims agree, how many do not, and how many remain open."""
    own = [c for c in claims if c.whose == "paper"]
    counts = {word: sum(c.agrees is v for c in own) for v, word in VERDICTS.items()}
    counts["alternative refuted"] = sum(c.agrees is False for c in claims if c not in own)
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no claims"


def above(
    says: str, measured: str, value: float, low: float, high: float, bound: float = 0.0
) -> Claim:
    """Return the claim that a number with an interval is above a bound.

    Examples
    --------
    >>> above("", "", 1.0, 0.9, 1.1).agrees
    True
    >>> claim = above("", "", 1.0, 0.8, 1.2, bound=0.9)
    >>> claim.agrees is None, round(claim.effort, 2)
    (True, 4.0)
    """
    verdict = True if low > bound else False if high <= bound else None
    return Claim(says, measured, value, low, high, verdict, bounds=(bound,))


def below(
    says: str, measured: str, value: float, low: float, high: float, bound: float = 0.0
) -> Claim:
    """Return the claim that a number with an interval is below a bound."""
    verdict = True if high < bound else False if low >= bound else None
    return Claim(says, measured, value, low, high, verdict, bounds=(bound,))
