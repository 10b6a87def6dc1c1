"""The mean-field limit of deep networks, residual ones included, by one causal sweep in time.

=============================  =========================================================
``largen.theories.chains``     what the run says of the network
``matrices``                   Gaussian random matrices and what training makes of them
``sweep``                      the causal sweep through training
``estimation``                 means over independent sweeps, and their errors
``restarts``                   what is done so far, in files
``method``                     which of the ways to solve
``solution``                   the record of options, and the way through all of these
``answer``                     the trajectory that a solution is told as
``responses``                  the response functions A and B, for who wants to see them
=============================  =========================================================
"""

from largen.theories.mean_field.deep.responses import ResponseFunctions, response_functions
from largen.theories.mean_field.deep.solution import DeepMeanField

__all__ = ["DeepMeanField", "ResponseFunctions", "response_functions"]
