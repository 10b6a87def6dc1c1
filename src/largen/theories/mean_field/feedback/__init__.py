"""The mean-field limit under rules of pseudo-gradients."""

from largen.theories.mean_field.feedback.solution import FeedbackMeanField

__all__ = ["FeedbackMeanField"]
