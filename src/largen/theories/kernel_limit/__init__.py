"""The kernel limit: features stay fixed, and outputs follow the neural tangent kernel.

====================  ==================================================================
``limit``             the runs that the kernel limit covers, and its solution
``dynamics``          the problem in function space, and the choice of its solver
``squared_error``     mean and covariance over initialisations in closed form
``by_draws``          the same for other losses, by Monte Carlo over initial outputs
``descent``, ``flow`` training step by step, and gradient flow
``prior``             outputs at initialisation
``observables``       statistics over a batch of networks at each recorded time
``width``             the correction of order 1/n to the mean at finite width n
====================  ==================================================================
"""
