"""The mean-field limit of networks with attention: of infinite key size, or of many heads."""

# Attention registers its passes.
from largen.theories.mean_field.transformer import attention  # noqa: F401
from largen.theories.mean_field.transformer.solution import AttentionMeanField

__all__ = ["AttentionMeanField"]
