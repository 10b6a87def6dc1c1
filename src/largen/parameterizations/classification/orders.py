"""Orders of magnitude in the width: the exponent q of a quantity of size N^q.

Exponents are exact fractions; ``None`` stands for a quantity that is identically zero.
"""

from __future__ import annotations

from fractions import Fraction

from largen.parameterizations.powers import Power

Order = Fraction | None

ZERO = Fraction(0)
HALF = Fraction(1, 2)
ONE = Fraction(1)


def largest(*orders: Order) -> Order:
    """Return the order of a sum: that of its largest term."""
    return max((order for order in orders if order is not None), default=None)


def product(*orders: Order) -> Order:
    """Return the order of a product: the sum of the exponents."""
    total = ZERO
    for order in orders:
        if order is None:
            return None
        total += order
    return total


def below(order: Order, bound: Fraction) -> bool:
    """Whether a quantity is of smaller order than N^bound."""
    return order is None or order < bound


def show(order: Order) -> str:
    """Write an order as a power of N, such as N⁻¹ᐟ²; 0 for a quantity that is identically zero."""
    return "0" if order is None else str(Power(width=order))
