import copy
import operator
import pickle

import jax.numpy as jnp
import pytest

import largen as lg
import largen.architectures
from largen.architectures import Dense, Repeat, Residual, Serial, depth, weight_sites
from largen.errors import InvalidInput

NAMES = dict(vars(largen.architectures))


def test_a_network_is_a_value():
    a, b = lg.mlp(3, "tanh"), lg.mlp(3, "tanh")
    assert a == b
    assert hash(a) == hash(b)
    assert a != lg.mlp(3, "relu")
    assert a != lg.mlp(3, "tanh", weight_std=2.0)
    assert len({a, b, lg.mlp(2, "tanh")}) == 2


@pytest.mark.parametrize("phi", ["relu", "tanh", "erf", "gelu", operator.neg])
def test_networks_are_copied_and_pickled(phi):
    net = lg.residual_mlp(2, phi)
    assert copy.deepcopy(net) == net
    assert pickle.loads(pickle.dumps(net)) == net


def test_printed_form_is_the_code_that_makes_it():
    net = lg.residual_mlp(4, "relu", layers_per_block=2, bias_std=0.5)
    assert eval(repr(net), NAMES) == net


@pytest.mark.parametrize(
    "shown",
    [
        "Conv((3, 3))",
        "Conv((1, 1), strides=(1, 2), padding='VALID', groups=2)",
        "Conv((3,), dilation=(2,), weight_std=1.5, bias_std=0.1)",
        "LocallyConnected((2,), strides=(2,))",
        "AvgPool((2, 2))",
        "AvgPool((2, 2), strides=(1, 1), padding='SAME')",
        "SumPool((1,))",
        "Residual(Conv((3,), strides=(2,)), shortcut=AvgPool((2,)))",
        "Axes('CHW')",
        "LayerNorm(over_space=True)",
    ],
)
def test_printed_form_leaves_out_what_need_not_be_given(shown):
    assert repr(eval(shown, NAMES)) == shown


def test_serial_is_associative():
    a, b, c = lg.Dense(), lg.Activation("erf"), lg.Dense(bias_std=0.1)
    assert lg.serial(lg.serial(a, b), c) == lg.serial(a, lg.serial(b, c)) == lg.serial(a, b, c)
    assert lg.serial(a) == a


def test_repeating_once_is_the_layer_itself():
    block = lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()))
    assert lg.repeat(block, 1) == block
    assert lg.repeat(block, 3) == Repeat(block, 3)


def test_user_functions_are_activations():
    def cubic(x):
        return x + 0.1 * x**3

    assert lg.mlp(1, cubic) == lg.mlp(1, cubic)
    assert lg.mlp(1, cubic) != lg.mlp(1, jnp.sin)
    assert "cubic" in repr(lg.mlp(1, cubic))


def test_weight_sites_of_a_residual_network():
    sites = weight_sites(lg.residual_mlp(5, "relu", layers_per_block=2))
    assert [s.role for s in sites] == ["input", "hidden", "hidden", "output"]
    assert [s.in_branch for s in sites] == [False, True, True, False]
    assert [s.copies for s in sites] == [1, 5, 5, 1]
    assert len({s.name for s in sites}) == 4


def test_depth_counts_residual_branches():
    block = lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()))
    net = lg.serial(lg.Dense(), lg.repeat(lg.serial(block, block), 3), block, lg.Dense())
    assert depth(net) == 7
    assert depth(lg.mlp(9)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lg.mlp(0), "hidden_layers"),
        (lambda: lg.mlp(2, "thanh"), "Did you mean 'tanh'"),
        (lambda: lg.Dense(weight_std=-1.0), "weight_std"),
        (lambda: lg.Dense(weight_std=float("nan")), "weight_std"),
        (lambda: lg.Dense(bias_std=-0.1), "bias_std"),
        (lambda: lg.residual_mlp(3, layers_per_block=0), "layers_per_block"),
        (lambda: lg.serial(), "at least one layer"),
        (lambda: lg.repeat(lg.Dense(), 0), "times"),
        (lambda: weight_sites(Dense()), "at least two affine maps"),
        (lambda: weight_sites(Serial((Residual(Dense()), Dense()))), "is still data"),
        (lambda: weight_sites(lg.serial(Residual(Dense(), Dense()), Dense())), "first affine map"),
        (lambda: weight_sites(Serial((Dense(), Repeat(Dense(), 2)))), "last affine map"),
    ],
)
def test_wrong_architectures_are_refused_by_name(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
