"""Limits under feedback alignment."""

from largen.theories.mean_field.feedback.kernel_limit import FeedbackKernelLimit
from largen.theories.mean_field.feedback.solution import FeedbackMeanField

__all__ = ["FeedbackKernelLimit", "FeedbackMeanField"]
