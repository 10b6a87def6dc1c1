"""Training with steps beyond 2/λ: the exact recursion, and measurements on networks."""

from largen.experiments.large_steps.diagram import CatapultDiagram, catapult_diagram
from largen.experiments.large_steps.exact_catapult import Catapult, catapult
from largen.experiments.large_steps.linear import (
    LinearTraining,
    linear_catapult_diagram,
    linear_training,
)

__all__ = [
    "Catapult",
    "CatapultDiagram",
    "LinearTraining",
    "catapult",
    "catapult_diagram",
    "linear_catapult_diagram",
    "linear_training",
]
