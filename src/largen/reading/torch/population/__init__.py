"""Kernels of modules by runs at populations of neurons."""

from largen.reading.torch.population.estimate import Modules

__all__ = ["Modules"]
