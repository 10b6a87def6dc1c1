"""NNGP and NTK of infinitely wide networks: the recursion over layers."""

from largen.kernels.estimate import averaged_kernel
from largen.kernels.nngp_ntk import Kernels, kernel, nngp_kernel, ntk_kernel
from largen.kernels.of_constants import KernelFunction, kernel_of_stds

__all__ = [
    "KernelFunction",
    "Kernels",
    "averaged_kernel",
    "kernel",
    "kernel_of_stds",
    "nngp_kernel",
    "ntk_kernel",
]
