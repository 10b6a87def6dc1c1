"""Monomials in the sizes of a network, which are the entries of rule tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

_SUPERSCRIPTS = str.maketrans("-0123456789/", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᐟ")


@dataclass(frozen=True)
class Power:
    """The number ``constant · Nʷⁱᵈᵗʰ · Lᵈᵉᵖᵗʰ · Dⁱⁿᵖᵘᵗˢ`` with exact exponents.

    N is the width, L the number of residual branches, D the number of inputs.

    Examples
    --------
    >>> p = Power(2.0, width=Fraction(-1, 2)) * Power(depth=1)
    >>> print(p, "=", p.at(width=16, depth=3, inputs=10))
    2·N⁻¹ᐟ²·L = 1.5
    """

    constant: float = 1.0
    width: Fraction | int = 0
    depth: Fraction | int = 0
    inputs: Fraction | int = 0

    def __mul__(self, other: Power) -> Power:
        return Power(
            self.constant * other.constant,
            self.width + other.width,
            self.depth + other.depth,
            self.inputs + other.inputs,
        )

    def __pow__(self, exponent: Fraction | int) -> Power:
        return Power(
            power(self.constant, exponent),
            self.width * exponent,
            self.depth * exponent,
            self.inputs * exponent,
        )

    def __truediv__(self, other: Power) -> Power:
        return self * other**-1

    def at(self, *, width: int, depth: float, inputs: int) -> float:
        """Return its value; L⁰ = 1 for a network without residual branches, whose depth is 0."""
        value = self.constant * power(width, self.width) * power(inputs, self.inputs)
        return value * power(depth, self.depth) if self.depth else value

    def __str__(self) -> str:
        letters = (("N", self.width), ("L", self.depth), ("D", self.inputs))
        factors = [_power(letter, exponent) for letter, exponent in letters if exponent]
        if self.constant != 1.0 or not factors:
            factors.insert(0, f"{self.constant:.4g}")
        return "·".join(factors)


def power(base: float, exponent: Fraction | int) -> float:
    """Return a power of a number ≥ 0; infinity where it is too large for a float."""
    try:
        return float(base) ** float(exponent)
    except (OverflowError, ZeroDivisionError):
        return float("inf")


def _power(letter: str, exponent: Fraction | int) -> str:
    return letter if exponent == 1 else letter + str(exponent).translate(_SUPERSCRIPTS)
