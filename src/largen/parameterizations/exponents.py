"""Exponents, exactly: the powers of the width that one role of a weight has."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from largen.errors import InvalidInput
from largen.text import shown

LARGEST_EXPONENT = 20  # N to more than that overflows for usual widths


@dataclass(frozen=True)
class Exponents:
    """Powers of 1/N of one role: multiplier N^(−a), variance N^(−b), rate η₀γ²N^(−c).

    ``adaptive_rate`` and ``adaptive_eps`` state the powers of 1/N of an adaptive optimizer's rate
    and ε; by default they follow from c and the size of the gradient.
    """

    a: Fraction
    b: Fraction
    c: Fraction
    adaptive_rate: Fraction | None = None
    adaptive_eps: Fraction | None = None

    def shift(self, theta: Fraction) -> Exponents:
        """Move along the symmetry that leaves training unchanged."""
        rate, eps = self.adaptive_rate, self.adaptive_eps
        return Exponents(
            self.a + theta,
            self.b - 2 * theta,
            self.c - 2 * theta,
            None if rate is None else rate - theta,
            None if eps is None else eps + theta,
        )


def exact(name: str, value: Any) -> Fraction:
    """Check an exponent: a fraction, an integer, a string, or a float close to one."""
    if isinstance(value, np.floating):
        value = float(value)
    if isinstance(value, np.integer):
        value = int(value)
    wrong = InvalidInput(f"{name}: wanted a rational exponent, got {shown(value)}.")
    if not isinstance(value, (str, Rational, float)) or isinstance(value, bool):
        raise wrong
    try:
        fraction = Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise wrong from None
    if abs(fraction) > LARGEST_EXPONENT:
        raise InvalidInput(
            f"{name}: wanted an exponent of at most {LARGEST_EXPONENT}, got {shown(value)}."
        )
    if isinstance(value, float):
        near = fraction.limit_denominator(1000)
        if abs(near - fraction) > Fraction(1, 10**9):
            raise InvalidInput(
                f"{name}: wanted a rational exponent, got the float {value!r}, which is none to "
                "1e-9; pass a fractions.Fraction."
            )
        return near
    return fraction
