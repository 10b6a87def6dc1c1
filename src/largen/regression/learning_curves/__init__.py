"""Errors against the number of training samples, predicted from a kernel's spectrum."""

from largen.regression.learning_curves.curve import LearningCurve, learning_curve

__all__ = ["LearningCurve", "learning_curve"]
