"""The mean-field limit of networks with one hidden layer.

At infinite width the neurons of the hidden layer are independent copies of one process, coupled
through the residuals Δ alone: a neuron starts from Gaussian weights, and moves in the field that
all of them make. A solution is therefore a set of neurons with weights that stands for their
distribution, stepped through training:

================  ===================================================================
``problem``       what the run says of a neuron: its fields, rates and scales
``neurons``       which neurons stand for the distribution at initialisation
``dynamics``      how a set of neurons moves, and what the network computes meanwhile
``training``      gradient descent and gradient flow
``methods``       closed equations, quadrature, particles: the choice, and the error that is left
``fluctuations``  how networks of finite width differ from one another
``solution``      the record of options, and the trajectory
================  ===================================================================
"""

from largen.theories.mean_field.one_hidden_layer.solution import MeanField

__all__ = ["MeanField"]
