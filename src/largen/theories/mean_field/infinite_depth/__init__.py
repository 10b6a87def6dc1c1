"""The mean-field limit of residual networks of infinite width and depth."""

from largen.theories.mean_field.infinite_depth.solution import InfiniteDepth

__all__ = ["InfiniteDepth"]
