"""Functions in JAX: their forward pass, and the laws of their parameters."""
