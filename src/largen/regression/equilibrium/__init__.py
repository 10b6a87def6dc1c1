"""Posteriors in which features move: what wide networks have learned at rest.

==================  ==========================================================================
``network``         which network it is, and its constants
``sites``           points over which averages of neurons are taken
``dual``            the concave problem of one hidden layer, by Newton's method
``one_layer``       its posterior
``nested``          the saddle of several hidden layers
``response``        their outputs at test samples, and variances
``deep``            their posterior
``trust``           whether averages over points can be trusted
``linear_modes``    linear networks of any depth, mode by mode of the kernel
``linear``          their posterior
``sampler``         networks of a width drawn from it, neuron by neuron
``rescaled``        one hidden layer as wide as there are samples
``decay``           weight decay without noise
``posterior``       the public function
==================  ==========================================================================
"""

from largen.regression.equilibrium.deep import DeepPosterior
from largen.regression.equilibrium.linear import DeepLinearPosterior
from largen.regression.equilibrium.one_layer import AdaptivePosterior
from largen.regression.equilibrium.posterior import adaptive_posterior
from largen.regression.equilibrium.predictions import AdaptivePrediction
from largen.regression.equilibrium.rescaled import rescaled_posterior
from largen.regression.equilibrium.sampler import PosteriorSamples, sample_posterior

__all__ = [
    "AdaptivePosterior",
    "AdaptivePrediction",
    "DeepLinearPosterior",
    "DeepPosterior",
    "PosteriorSamples",
    "adaptive_posterior",
    "rescaled_posterior",
    "sample_posterior",
]
