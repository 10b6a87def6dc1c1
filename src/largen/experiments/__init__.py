"""Experiments: theory beside networks, tables and figures."""

from largen.experiments.comparison import Comparison, compare
from largen.experiments.convergence import ConvergenceBound, convergence_bound
from largen.experiments.exponents import (
    MeasuredExponent,
    MeasuredExponents,
    measure_exponents,
)
from largen.experiments.learning_rates import LearningRateCurve, learning_rate_curve
from largen.experiments.phase_plane import ScalingMap, scaling_map
from largen.experiments.power_law import PowerLaw, fit_exponent
from largen.experiments.regimes import Regimes, gamma_regimes

__all__ = [
    "Comparison",
    "ConvergenceBound",
    "LearningRateCurve",
    "MeasuredExponent",
    "MeasuredExponents",
    "PowerLaw",
    "Regimes",
    "ScalingMap",
    "compare",
    "convergence_bound",
    "fit_exponent",
    "gamma_regimes",
    "learning_rate_curve",
    "measure_exponents",
    "scaling_map",
]
