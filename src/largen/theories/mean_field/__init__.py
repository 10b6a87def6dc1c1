"""Mean-field limits: wide networks whose features move while they learn."""

from largen.theories.mean_field.deep import DeepMeanField, ResponseFunctions, response_functions
from largen.theories.mean_field.infinite_depth import InfiniteDepth, infinite_depth_one_step
from largen.theories.mean_field.one_hidden_layer import MeanField
from largen.theories.mean_field.solvable import (
    kernel_after_one_step,
    solve_deep_linear,
    whitened_linear_flow,
)
from largen.theories.mean_field.transformer import AttentionMeanField

__all__ = [
    "AttentionMeanField",
    "DeepMeanField",
    "InfiniteDepth",
    "MeanField",
    "ResponseFunctions",
    "infinite_depth_one_step",
    "kernel_after_one_step",
    "response_functions",
    "solve_deep_linear",
    "whitened_linear_flow",
]
