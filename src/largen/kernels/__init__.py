"""NNGP and NTK of infinitely wide networks: the recursion over layers."""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
