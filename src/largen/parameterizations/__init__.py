"""How multipliers, variances and rates scale with width and depth: one class, one table."""

from largen.parameterizations.averages import Averages, Moments, Velocity
from largen.parameterizations.canonical import CanonicalForm, CanonicalWeight, canonical_form
from largen.parameterizations.exponents import Exponents
from largen.parameterizations.learning_rules import (
    FeedbackAlignment,
    Hebbian,
    PseudoGradient,
    feedback_alignment,
    hebbian,
    pseudo_gradient_of,
)
from largen.parameterizations.optimizers import (
    Adam,
    GradientDescent,
    GradientFlow,
    Langevin,
    RMSProp,
    adam,
    gd,
    gradient_flow,
    langevin,
    rmsprop,
    sgd,
    temperature_of,
)
from largen.parameterizations.parameterization import Parameterization, Reference
from largen.parameterizations.powers import Power
from largen.parameterizations.rules import Rule, RuleTable
from largen.parameterizations.schemes import (
    abc,
    complete_p,
    depth_mup,
    mean_field,
    mup,
    ntk,
    plane_scheme,
    standard,
)
from largen.parameterizations.stepping import Optimizer, Stepped
from largen.parameterizations.updates import Scales, momentum_of

__all__ = [
    "Adam",
    "Averages",
    "CanonicalForm",
    "CanonicalWeight",
    "Exponents",
    "FeedbackAlignment",
    "GradientDescent",
    "GradientFlow",
    "Hebbian",
    "Langevin",
    "Moments",
    "Optimizer",
    "Parameterization",
    "Power",
    "PseudoGradient",
    "RMSProp",
    "Reference",
    "Rule",
    "RuleTable",
    "Scales",
    "Stepped",
    "Velocity",
    "abc",
    "adam",
    "canonical_form",
    "complete_p",
    "depth_mup",
    "feedback_alignment",
    "gd",
    "gradient_flow",
    "hebbian",
    "langevin",
    "mean_field",
    "momentum_of",
    "mup",
    "ntk",
    "plane_scheme",
    "pseudo_gradient_of",
    "rmsprop",
    "sgd",
    "standard",
    "temperature_of",
]
