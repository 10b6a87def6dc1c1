"""Ordinary data, networks and calls: each once here, more with the mark slow, any number by hand.

``python -m tests.ordinary`` prints what makes a failed trial again.
"""

import pytest
from tests.ordinary.data import KINDS, TARGETS
from tests.ordinary.networks import NETWORKS
from tests.ordinary.registry import CALLS
from tests.ordinary.trials import Draw, covering, draw, outcome

import largen as lg

# Public names that take no samples, targets, or kernels of them.
WITHOUT_DATA = {
    "__version__", "Activation", "AvgPool", "Axes", "BatchNorm", "Comparison", "Concatenate",
    "Conv", "ConvTranspose", "Dense", "Dropout", "Flatten", "GlobalAvgPool", "GlobalSumPool",
    "Layer", "LayerNorm", "LocallyConnected", "Loss", "MaxPool", "MeasuredExponents",
    "MultiHeadAttention", "Parameterization", "Product", "QKVAttention", "RMSNorm", "Residual",
    "SelfAttention", "SumPool", "Theory", "Trajectory", "abc", "activation", "adam", "classify",
    "complete_p", "critical_initialization", "depth_mup", "edge_of_chaos", "variance_fixed_points",
    "from_reference", "gradient_flow", "homogeneous_jacobian", "homogeneous_limits",
    "infinite_depth_one_step", "jacobian_moments", "kernel_after_one_step", "langevin", "loss",
    "mlp", "mup", "ntk", "phase_diagram", "repeat", "residual_mlp", "ridge_test_error", "rmsprop",
    "scaling", "plane_class", "plane_map", "serial", "sgd", "standard",
}  # fmt: skip
DRAWS, BLOCKS = 2000, 20


def test_every_public_name_that_takes_data_is_called():
    called = {name for call in CALLS.values() for name in call.names}
    assert called.isdisjoint(WITHOUT_DATA)
    assert called | WITHOUT_DATA == set(lg.__all__)


def test_every_kind_network_and_call_is_in_the_fixed_draws():
    assert {trial.call for trial in covering()} == set(CALLS)
    assert {trial.network for trial in covering()} == set(NETWORKS)
    assert {trial.kind for trial in covering()} == set(KINDS)
    assert {trial.target for trial in covering()} == set(TARGETS)


@pytest.mark.parametrize("trial", covering(), ids=str)
def test_fixed_draws(trial: Draw):
    what = outcome(trial)
    assert not what.startswith("FAULT"), what


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_draws(block):
    """The draws of a block are of the same few networks, whose programs are compiled once."""
    among = tuple(NETWORKS)[block::BLOCKS]
    first = block * (DRAWS // BLOCKS)
    trials = [draw(seed, among) for seed in range(first, first + DRAWS // BLOCKS)]
    found = [(str(trial), outcome(trial)) for trial in trials]
    assert not [pair for pair in found if pair[1].startswith("FAULT")]
