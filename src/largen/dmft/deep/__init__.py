"""The mean-field limit of deep networks, residual ones included, by one causal sweep in time.

====================  ==================================================================
``chain``             how affine maps follow one another, past residual branches
``reading``           which positions of the layer before it a map reads
``taps``              from features to what a map reads, and back
``problem``           what the run says of the network: fields, rates and scales
``neurons``           how many neurons layers of unequal widths have
``matrix``            Gaussian random matrices that are never stored
``dense``             such matrices that are stored instead
``innovations``       what it answers to a direction it has not seen
``start``, ``state``  the network of random matrices at initialisation, and its state
``reduction``         initialisation with all that is exact in the limit made exact
``sweep``             one step of training, and the loop over steps
``records``           Φ, G and the tangent kernel at chosen times
``linear``            linear networks: closed equations
``schedule``          the steps of a run; gradient flow from smaller and smaller ones
``checkpoint``        what is done so far, in a file
``method``            which of the ways to solve, and in how much memory
``widths``            two widths, extrapolated in 1/N
``control_variate``   what the lazy limit knows of the error of a replicate
``effort``            how much is spent on a solution
``averages``          means over replicates, and their errors
``replicates``        independent solutions, and their number
``solution``          what the user calls
``responses``         the response functions A and B, for who wants to see them
====================  ==================================================================
"""

from largen.dmft.deep.problem import covers
from largen.dmft.deep.responses import ResponseFunctions, response_functions
from largen.dmft.deep.solution import NAME, solve
from largen.runs import Theory

DEEP = Theory(name=NAME, covers=covers, solve=solve)

__all__ = ["DEEP", "ResponseFunctions", "response_functions"]
