"""The mean-field limit under feedback alignment."""

from largen.theories.mean_field.feedback.solution import FeedbackMeanField

__all__ = ["FeedbackMeanField"]
