"""Training with steps beyond 2/λ: the exact recursion, and measurements on networks."""

from largen.experiments.large_steps.diagram import CatapultDiagram, catapult_diagram
from largen.experiments.large_steps.exact_catapult import Catapult, catapult

__all__ = ["Catapult", "CatapultDiagram", "catapult", "catapult_diagram"]
