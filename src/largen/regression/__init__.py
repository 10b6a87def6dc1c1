"""Gaussian processes of infinitely wide networks: posteriors, likelihoods, learning rates."""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
