"""Mean-field limits: wide networks whose features move while they learn."""

from largen.dmft.deep import DEEP
from largen.dmft.one_hidden_layer import ONE_HIDDEN_LAYER
from largen.dmft.solvable import whitened_linear_flow

__all__ = ["DEEP", "ONE_HIDDEN_LAYER", "whitened_linear_flow"]
