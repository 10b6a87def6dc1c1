"""What each function of PyTorch is in a graph of nodes, in one table."""

from largen.reading.torch.rules import affine, arithmetic, functions, norms, pooling, shapes
from largen.reading.torch.rules.registry import REASONS, RULES

__all__ = ["REASONS", "RULES", "affine", "arithmetic", "functions", "norms", "pooling", "shapes"]
