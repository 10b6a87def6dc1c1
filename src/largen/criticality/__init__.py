"""Order, chaos and the edge of chaos: propagation of signals through deep networks."""

from largen.criticality.all_fixed_points import FixedPoint, FixedPoints, variance_fixed_points
from largen.criticality.drawn import DrawnNetworks
from largen.criticality.edge import CriticalPoint, EdgeOfChaos, edge_of_chaos
from largen.criticality.initialization import Initialization, critical_initialization
from largen.criticality.jacobian import JacobianMoments, jacobian_moments
from largen.criticality.of_networks import NetworkDiagram, network_diagram
from largen.criticality.phases import PhaseDiagram, phase_diagram
from largen.criticality.products import LyapunovExponents, lyapunov_exponents, product_density
from largen.criticality.propagation import Propagation, propagate
from largen.criticality.smoothness import InputGradients, input_gradients

__all__ = [
    "CriticalPoint",
    "DrawnNetworks",
    "EdgeOfChaos",
    "FixedPoint",
    "FixedPoints",
    "Initialization",
    "InputGradients",
    "JacobianMoments",
    "LyapunovExponents",
    "NetworkDiagram",
    "PhaseDiagram",
    "Propagation",
    "critical_initialization",
    "edge_of_chaos",
    "input_gradients",
    "jacobian_moments",
    "lyapunov_exponents",
    "network_diagram",
    "phase_diagram",
    "product_density",
    "propagate",
    "variance_fixed_points",
]
