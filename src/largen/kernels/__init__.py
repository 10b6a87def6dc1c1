"""NNGP and NTK of infinitely wide networks, and the kernel limit of their training."""

from largen.kernels.estimate import kernel_estimate
from largen.kernels.limit import KERNEL_LIMIT
from largen.kernels.nngp_ntk import Kernels, kernel, nngp, ntk_kernel

__all__ = ["KERNEL_LIMIT", "Kernels", "kernel", "kernel_estimate", "nngp", "ntk_kernel"]
