"""Finite networks, the oracle: initialisation, forward pass, training, empirical kernels."""

from largen.networks.ensembles import train
from largen.networks.modules import Module, build, weightless
from largen.networks.network import FiniteNetwork, apply, finite_network, init
from largen.networks.observation import observe
from largen.networks.tangent import empirical_ntk

__all__ = [
    "FiniteNetwork",
    "Module",
    "apply",
    "build",
    "empirical_ntk",
    "finite_network",
    "init",
    "observe",
    "train",
    "weightless",
]
