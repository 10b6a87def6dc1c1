"""Exponents of the width, measured on networks and compared with the predicted ones."""

from largen.experiments.exponents.measure import measure_exponents
from largen.experiments.exponents.report import MeasuredExponent, MeasuredExponents

__all__ = ["MeasuredExponent", "MeasuredExponents", "measure_exponents"]
