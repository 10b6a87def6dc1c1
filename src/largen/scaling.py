"""How weights and rates scale with width and depth, and which limit follows."""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
