"""Finite networks, the oracle: initialisation, forward pass, training, empirical kernels."""

from largen.networks.any_function import nngp_of_function, ntk_of_function, ntk_operator_of_function
from largen.networks.ensembles import train
from largen.networks.expansion import linearize, taylor_expand
from largen.networks.modules import Module
from largen.networks.monte_carlo import KernelEstimate, monte_carlo_kernel
from largen.networks.network import FiniteNetwork, apply, finite_network, init
from largen.networks.observation import train_and_measure
from largen.networks.rules import channels_behind, rule
from largen.networks.tangent import empirical_ntk

__all__ = [
    "FiniteNetwork",
    "KernelEstimate",
    "Module",
    "apply",
    "channels_behind",
    "empirical_ntk",
    "finite_network",
    "init",
    "linearize",
    "monte_carlo_kernel",
    "nngp_of_function",
    "ntk_of_function",
    "ntk_operator_of_function",
    "rule",
    "taylor_expand",
    "train",
    "train_and_measure",
]
