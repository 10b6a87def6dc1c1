"""The mean-field limit of networks with one hidden layer.

At infinite width the neurons of the hidden layer are independent copies of one process, coupled
through the residuals Δ alone: a neuron starts from Gaussian weights, and moves in the mean field of
all neurons. The distribution of neurons is represented by a weighted set of neurons, which is
trained:

================  ===================================================================
``problem``       the problem of a single neuron: fields, learning rates and scales
``neurons``       sets of neurons that represent the distribution at initialisation
``dynamics``      the equations of motion of a set of neurons, and the network's outputs
``training``      gradient descent and gradient flow
``methods``       closed equations, quadrature, particles: their choice, and the remaining error
``fluctuations``  fluctuations of networks of finite width
``solution``      the options, and the trajectory
================  ===================================================================
"""

from largen.theories.mean_field.one_hidden_layer.solution import MeanField

__all__ = ["MeanField"]
