"""How multipliers, variances and rates scale with width and depth: one class, one table."""

from largen.parameterizations.canonical import CanonicalForm, CanonicalWeight, canonical_form
from largen.parameterizations.classification.by_exponents import classify, plane_class
from largen.parameterizations.classification.plane import ScalingClass
from largen.parameterizations.classification.report import Classification, LayerScaling
from largen.parameterizations.exponents import Exponents
from largen.parameterizations.given_at_width import from_reference
from largen.parameterizations.learning_rules import (
    FeedbackAlignment,
    feedback_alignment,
    feedback_of,
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

__all__ = [
    "Adam",
    "CanonicalForm",
    "CanonicalWeight",
    "Classification",
    "Exponents",
    "FeedbackAlignment",
    "GradientDescent",
    "GradientFlow",
    "Langevin",
    "LayerScaling",
    "Optimizer",
    "Parameterization",
    "Power",
    "RMSProp",
    "Reference",
    "Rule",
    "RuleTable",
    "ScalingClass",
    "Stepped",
    "abc",
    "adam",
    "canonical_form",
    "classify",
    "complete_p",
    "depth_mup",
    "feedback_alignment",
    "feedback_of",
    "from_reference",
    "gd",
    "gradient_flow",
    "langevin",
    "mean_field",
    "mup",
    "ntk",
    "plane_class",
    "plane_scheme",
    "rmsprop",
    "sgd",
    "standard",
    "temperature_of",
]
