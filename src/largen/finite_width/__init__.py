"""Networks of finite width: their kernels at initialisation, and training at the next order."""

from largen.finite_width.corrections import WidthCorrections, width_corrections
from largen.finite_width.correlators import correlator_order, linear_correlator
from largen.finite_width.fluctuations import WidthFluctuations, width_fluctuations
from largen.finite_width.hierarchy import training_hierarchy
from largen.finite_width.homogeneous import (
    HomogeneousJacobian,
    HomogeneousLimits,
    HomogeneousMoments,
    homogeneous_jacobian,
    homogeneous_limits,
    homogeneous_moments,
)
from largen.finite_width.laws import OutputLaw, output_law
from largen.finite_width.linear_networks import LinearOutput, linear_network_output
from largen.finite_width.observables import Expectation
from largen.finite_width.one_step import LayerRates, layer_learning_rates
from largen.finite_width.path_sums import PathSum, path_sum
from largen.finite_width.predictions import WidthPosterior, corrected_posterior
from largen.finite_width.shaped import CovariancePaths, covariance_sde
from largen.finite_width.simulation import sample_kernels
from largen.finite_width.spectra import KernelSpectrum, kernel_spectrum
from largen.finite_width.tangent_simulation import TangentSamples, sample_tangent_kernels

__all__ = [
    "CovariancePaths",
    "Expectation",
    "HomogeneousJacobian",
    "HomogeneousLimits",
    "HomogeneousMoments",
    "KernelSpectrum",
    "LayerRates",
    "LinearOutput",
    "OutputLaw",
    "PathSum",
    "TangentSamples",
    "WidthCorrections",
    "WidthFluctuations",
    "WidthPosterior",
    "corrected_posterior",
    "correlator_order",
    "covariance_sde",
    "homogeneous_jacobian",
    "homogeneous_limits",
    "homogeneous_moments",
    "kernel_spectrum",
    "layer_learning_rates",
    "linear_correlator",
    "linear_network_output",
    "output_law",
    "path_sum",
    "sample_kernels",
    "sample_tangent_kernels",
    "training_hierarchy",
    "width_corrections",
    "width_fluctuations",
]
