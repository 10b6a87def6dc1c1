"""Errors against samples, features, time and compute, predicted from a kernel's spectrum."""

from largen.regression.learning_curves.curve import LearningCurve, learning_curve
from largen.regression.learning_curves.features import RandomFeatureCurve, random_feature_curve
from largen.regression.learning_curves.one_pass import Frontier, OnePassCurve, one_pass_sgd
from largen.regression.learning_curves.scaling import ScalingLaws, scaling_laws
from largen.regression.learning_curves.spectrum import Spectrum, target_spectrum

__all__ = [
    "Frontier",
    "LearningCurve",
    "OnePassCurve",
    "RandomFeatureCurve",
    "ScalingLaws",
    "Spectrum",
    "learning_curve",
    "one_pass_sgd",
    "random_feature_curve",
    "scaling_laws",
    "target_spectrum",
]
