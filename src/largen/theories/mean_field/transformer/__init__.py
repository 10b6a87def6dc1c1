"""The mean-field limit of networks with attention whose key size is infinite."""

from largen.theories.mean_field.transformer.solution import AttentionMeanField

__all__ = ["AttentionMeanField"]
