"""The mean-field limit of residual networks of infinite width and depth."""

from largen.theories.mean_field.infinite_depth.one_step import (
    InfiniteDepthStep,
    infinite_depth_one_step,
)
from largen.theories.mean_field.infinite_depth.solution import InfiniteDepth

__all__ = ["InfiniteDepth", "InfiniteDepthStep", "infinite_depth_one_step"]
