"""The kernel limit: features stand still, and outputs follow the neural tangent kernel.

====================  ==================================================================
``limit``             which runs it covers, and its solution
``dynamics``          what is solved: outputs under a fixed kernel, by the loss's best route
``squared_error``     mean and covariance over initialisations in closed form
``by_draws``          the same for other losses, by Monte Carlo over initial outputs
``descent``, ``flow`` training step by step, and gradient flow
``decay``             weight decay, which shrinks the initial weights as well
``prior``             outputs at initialisation
``observables``       what is kept of a batch of networks at each recorded time
``width``             what a finite width adds to the mean at order 1/n
====================  ==================================================================
"""

from largen.theories.kernel_limit.limit import KernelLimit
from largen.theories.kernel_limit.width import FiniteWidth

__all__ = ["FiniteWidth", "KernelLimit"]
