"""Kernels of many samples: low rank, iterative solves, matrices on disk or never stored."""

from largen.regression.large.iterative import KernelSolution, solve_kernel
from largen.regression.large.landmarks import LowRankPosterior, low_rank_posterior
from largen.regression.large.on_disk import stored_kernel
from largen.regression.large.operators import KernelOperator, kernel_operator

__all__ = [
    "KernelOperator",
    "KernelSolution",
    "LowRankPosterior",
    "kernel_operator",
    "low_rank_posterior",
    "solve_kernel",
    "stored_kernel",
]
