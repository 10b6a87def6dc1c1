"""Errors against samples, features, time and compute, predicted from a kernel's spectrum."""

from largen.regression.learning_curves.curve import LearningCurve, learning_curve
from largen.regression.learning_curves.features import RandomFeatureCurve, random_feature_curve
from largen.regression.learning_curves.spectrum import Spectrum, target_spectrum

__all__ = [
    "LearningCurve",
    "RandomFeatureCurve",
    "Spectrum",
    "learning_curve",
    "random_feature_curve",
    "target_spectrum",
]
