"""Tangent kernels of any JAX function, from the structure of its affine maps."""
