"""Calls that people carry over from other libraries end in a sentence that names the remedy."""

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput

X = np.eye(3)
NET = lg.mlp(1, "tanh")


@pytest.mark.parametrize(
    ("call", "error", "remedy"),
    [
        (
            lambda: lg.kernel(NET, X, get="ntk"),
            InvalidInput,
            r"get: .*lg.ntk_kernel\(net",
        ),
        (lambda: lg.batch, AttributeError, "memory_budget="),
        (lambda: lg.cross_entropy, AttributeError, 'loss="cross_entropy" of lg.Run'),
        (lambda: lg.relu, AttributeError, r'lg.Activation\("relu"\)'),
        (lambda: NET(X), InvalidInput, r"lg.kernel\(net, x\)"),
        (lambda: lg.Dense()(X), InvalidInput, r"lg.networks.apply\(net, params, x\)"),
        (lambda: lg.Activation("identity"), InvalidInput, "the identity is 'linear'"),
        (lambda: lg.mlp(2, "softmax"), InvalidInput, "not elementwise"),
    ],
)
def test_the_remedy_is_named(call, error, remedy):
    with pytest.raises(error, match=remedy):
        call()


def test_networks_that_can_be_called_are_no_functions():
    """Only elementwise layers are functions of numbers."""
    assert lg.Activation("relu")(jnp.array([-1.0, 2.0])).tolist() == [0.0, 2.0]
    with pytest.raises(InvalidInput, match="got a network"):
        lg.criticality.phase_diagram(NET)
    with pytest.raises(InvalidInput):
        lg.Activation(lg.Dense())
    with pytest.raises(InvalidInput):
        lg.Run(NET, lg.ntk(), lg.Dataset(X, np.ones(3)), loss=NET, optimizer=lg.gd(0.1), steps=1)


def test_functions_of_pytorch_are_named():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    for one in (torch.relu, functional.relu, torch.nn.ReLU(), torch.nn.ReLU):
        with pytest.raises(InvalidInput, match=r"of PyTorch.*pass the name 'relu'"):
            lg.Activation(one)
    with pytest.raises(InvalidInput, match="such as 'relu'"):
        lg.Activation(torch.sinc)
    with pytest.raises(InvalidInput, match="calls functions of PyTorch"):
        lg.mlp(2, lambda x: torch.relu(x))


def test_a_base_takes_the_scheme():
    nn = pytest.importorskip("torch").nn

    def make(width):
        return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))

    task = lg.sweeps.Task(np.eye(3, dtype="float32"), np.array([0, 1, 0]), steps=2, batch_size=3)
    given = {"make_model": make, "task": task, "base": {"width": 16}, "optimizer": "adam"}
    assert lg.sweeps.BaseTraining(**given, scheme="standard").plan().scheme == "standard"
    with pytest.raises(InvalidInput, match="scheme: is one of the options as well"):
        lg.sweeps.BaseTraining(**given, scheme="mup", options={"scheme": "mup"})
