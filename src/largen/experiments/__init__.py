"""Experiments: theory beside networks, tables and figures."""

from largen.experiments.comparison import Comparison, compare
from largen.experiments.exponents import (
    MeasuredExponent,
    MeasuredExponents,
    measure_exponents,
)
from largen.experiments.phase_plane import ScalingMap, scaling_map
from largen.experiments.power_law import PowerLaw, fit_exponent

__all__ = [
    "Comparison",
    "MeasuredExponent",
    "MeasuredExponents",
    "PowerLaw",
    "ScalingMap",
    "compare",
    "fit_exponent",
    "measure_exponents",
    "scaling_map",
]
