"""Layers, and the networks that are made of them: frozen records without sizes."""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
