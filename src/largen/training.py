"""Properties of training beyond its limit: regimes, corrections, large steps, bounds."""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
