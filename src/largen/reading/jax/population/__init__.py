"""Kernels of functions in JAX by runs at populations of neurons."""

from largen.reading.jax.population.sampler import Sampler

__all__ = ["Sampler"]
