"""Experiments: theory beside networks, tables and figures."""

from largen.experiments.comparison import Comparison, compare
from largen.experiments.power_law import PowerLaw, fit_exponent

__all__ = ["Comparison", "PowerLaw", "compare", "fit_exponent"]
