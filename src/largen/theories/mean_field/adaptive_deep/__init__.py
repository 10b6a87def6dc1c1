"""Limits under adaptive optimizers, of networks of any depth."""

from largen.theories.mean_field.adaptive_deep.kernel_limit import AdaptiveKernelLimit
from largen.theories.mean_field.adaptive_deep.solution import AdaptiveMeanField

__all__ = ["AdaptiveKernelLimit", "AdaptiveMeanField"]
