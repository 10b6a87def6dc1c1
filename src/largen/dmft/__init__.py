"""Mean-field limits: wide networks whose features move while they learn."""

from largen.dmft.deep import DEEP, ResponseFunctions, response_functions
from largen.dmft.one_hidden_layer import ONE_HIDDEN_LAYER
from largen.dmft.solvable import deep_linear, kernel_after_one_step, whitened_linear_flow

__all__ = [
    "DEEP",
    "ONE_HIDDEN_LAYER",
    "ResponseFunctions",
    "deep_linear",
    "kernel_after_one_step",
    "response_functions",
    "whitened_linear_flow",
]
