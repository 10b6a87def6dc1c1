"""Experiments: theory beside networks, tables and figures."""

from largen.experiments.comparison import Comparison, compare
from largen.experiments.power_law import Estimate, fit_exponent

__all__ = ["Comparison", "Estimate", "compare", "fit_exponent"]
