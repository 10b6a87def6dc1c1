"""Experiments that compare theory with networks, their tables and figures."""

from largen.experiments.at_rest import NetworksAtRest, equilibrium
from largen.experiments.citations import cite
from largen.experiments.comparison import Comparison, compare
from largen.experiments.convergence import ConvergenceBound, convergence_bound
from largen.experiments.exponents import MeasuredExponent, MeasuredExponents, measure_exponents
from largen.experiments.large_steps import (
    Catapult,
    CatapultDiagram,
    LinearTraining,
    catapult,
    catapult_diagram,
    linear_catapult_diagram,
    linear_training,
)
from largen.experiments.laziness import Regime, lazy_or_rich
from largen.experiments.learning_rates import LearningRateCurve, learning_rate_curve
from largen.experiments.phase_plane import ScalingMap, plane_map
from largen.experiments.power_law import PowerLaw, fit_exponent
from largen.experiments.predicted_networks import PredictedNetworks, predict_networks
from largen.experiments.predicted_training import PredictedTraining, predict_training
from largen.experiments.rate_drift import RateDrift, critical_rates
from largen.experiments.regimes import Regimes, feature_movement
from largen.experiments.training_corrections import (
    WidthCorrectionsInTraining,
    width_corrections_in_training,
)

__all__ = [
    "Catapult",
    "CatapultDiagram",
    "Comparison",
    "ConvergenceBound",
    "LearningRateCurve",
    "LinearTraining",
    "MeasuredExponent",
    "MeasuredExponents",
    "NetworksAtRest",
    "PowerLaw",
    "PredictedNetworks",
    "PredictedTraining",
    "RateDrift",
    "Regime",
    "Regimes",
    "ScalingMap",
    "WidthCorrectionsInTraining",
    "catapult",
    "catapult_diagram",
    "cite",
    "compare",
    "convergence_bound",
    "critical_rates",
    "equilibrium",
    "feature_movement",
    "fit_exponent",
    "lazy_or_rich",
    "learning_rate_curve",
    "linear_catapult_diagram",
    "linear_training",
    "measure_exponents",
    "plane_map",
    "predict_networks",
    "predict_training",
    "width_corrections_in_training",
]
