"""NNGP and NTK of infinitely wide networks, and the kernel limit of their training."""

from largen.kernels.kernel import Kernels, kernel, nngp, ntk_kernel
from largen.kernels.limit import KERNEL_LIMIT

__all__ = ["KERNEL_LIMIT", "Kernels", "kernel", "nngp", "ntk_kernel"]
