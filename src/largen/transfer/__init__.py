"""Hyperparameter transfer: tune a small model, train a large one with the same numbers.

:mod:`largen.transfer.torch` and :mod:`largen.transfer.jax` do so for the user's models.
Both read one rule table (:mod:`largen.transfer.rules`): that of the
:class:`largen.scaling.Parameterization`, relative to a base shape. This package itself does not
need PyTorch.
"""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
