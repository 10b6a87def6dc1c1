"""Figures; the only package that imports matplotlib."""

from largen.plots.comparison import comparison_figure, depth_figure
from largen.plots.coordinates import coordinate_figure
from largen.plots.criticality import edge_figure, network_figure, phase_figure, propagation_figure
from largen.plots.exponents import exponents_figure
from largen.plots.large_steps import catapult_diagram_figure, catapult_figure
from largen.plots.layer_exponents import layer_exponents_figure
from largen.plots.learning_curves import learning_curve_figure
from largen.plots.learning_rates import learning_rate_figure
from largen.plots.panels import placed_in
from largen.plots.plan_factors import plan_figure
from largen.plots.predicted_networks import predicted_networks_figure
from largen.plots.predicted_training import predicted_figure
from largen.plots.random_features import random_feature_figure
from largen.plots.regimes import regimes_figure
from largen.plots.results import dataset_figure, draw, figure_of, variable_figure
from largen.plots.scaling_map import scaling_figure
from largen.plots.style import scheme_title
from largen.plots.theory import posterior_figure, response_figure
from largen.plots.training_corrections import training_corrections_figure
from largen.plots.trajectory import trajectory_figure

__all__ = [
    "catapult_diagram_figure",
    "catapult_figure",
    "comparison_figure",
    "coordinate_figure",
    "dataset_figure",
    "depth_figure",
    "draw",
    "edge_figure",
    "exponents_figure",
    "figure_of",
    "layer_exponents_figure",
    "learning_curve_figure",
    "learning_rate_figure",
    "network_figure",
    "phase_figure",
    "placed_in",
    "plan_figure",
    "posterior_figure",
    "predicted_figure",
    "predicted_networks_figure",
    "propagation_figure",
    "random_feature_figure",
    "regimes_figure",
    "response_figure",
    "scaling_figure",
    "scheme_title",
    "training_corrections_figure",
    "trajectory_figure",
    "variable_figure",
]
