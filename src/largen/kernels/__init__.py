"""NNGP and NTK of infinitely wide networks, and the kernel limit of their training."""

from largen.kernels.kernel import Kernels, kernel, nngp, ntk_kernel

__all__ = ["Kernels", "kernel", "nngp", "ntk_kernel"]
