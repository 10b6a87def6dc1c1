"""The mean-field limit of deep networks, residual ones included, by one causal sweep in time.

=============================  =========================================================
``largen.theories.chains``     the network as a chain of affine maps
``matrices``                   Gaussian random matrices and their change by training
``sweep``                      the causal sweep through training
``estimation``                 means over independent sweeps, and their errors
``restarts``                   checkpoints in files
``method``                     the choice of the method
``solution``                   the options of the theory, and its solution
``answer``                     the trajectory of a solution
``responses``                  the response functions A and B
=============================  =========================================================
"""

from largen._rooms import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
