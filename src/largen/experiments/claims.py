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
        }


VERDICTS = {True: "agree", False: "disagree", None: "unclear"}


def tally(claims: Sequence[Claim]) -> str:
    """Return how many of the paper's claims agree, how many do not, and how many remain open."""
    own = [c for c in claims if c.whose == "paper"]
    counts = {word: sum(c.agrees is v for c in own) for v, word in VERDICTS.items()}
    counts["alternative refuted"] = sum(c.agrees is False for c in claims if c not in own)
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no claims"


def above_zero(low: float, high: float) -> bool | None:
    """Return whether a number is positive, given its interval; None if that remains open."""
    return True if low > 0 else False if high <= 0 else None
