"""Mean-field limits: wide networks whose features move while they learn."""

from largen.theories.mean_field.deep import DeepMeanField, ResponseFunctions, response_functions
from largen.theories.mean_field.infinite_depth import InfiniteDepth, infinite_depth_one_step
from largen.theories.mean_field.one_hidden_layer import MeanField
from largen.theories.mean_field.solvable import (
    deep_linear,
    kernel_after_one_step,
    whitened_linear_flow,
)
from largen.theories.mean_field.transformer import AttentionMeanField

__all__ = [
    "AttentionMeanField",
    "DeepMeanField",
    "InfiniteDepth",
    "MeanField",
    "ResponseFunctions",
    "deep_linear",
    "infinite_depth_one_step",
    "kernel_after_one_step",
    "response_functions",
    "whitened_linear_flow",
]
