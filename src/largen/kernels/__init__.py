"""NNGP and NTK of infinitely wide networks: the recursion over layers."""

from largen.kernels.estimate import kernel_estimate
from largen.kernels.nngp_ntk import Kernels, kernel, nngp, ntk_kernel
from largen.kernels.of_constants import KernelFunction, kernel_function

__all__ = [
    "KernelFunction",
    "Kernels",
    "kernel",
    "kernel_estimate",
    "kernel_function",
    "nngp",
    "ntk_kernel",
]
