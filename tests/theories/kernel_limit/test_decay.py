"""Weight decay in the kernel limit, against wide networks and against exact cases."""

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import NoTheory
from largen.parameterizations import canonical_form
from largen.programs import program_of
from largen.theories import KernelLimit
from largen.theories.chains.decay import degree

X = np.random.default_rng(5).normal(size=(4, 3))
Y = np.array([1.0, -1.0, 0.5, 0.3])
DATA = lg.Dataset(X, Y, X[:2] + 0.3, Y[:2])
RELU = lg.mlp(2, "relu", weight_std=2**0.5)


def run(optimizer, net=RELU, steps=None, times=None, loss="mse", param=None):
    return lg.Run(net, param or lg.ntk(), DATA, loss, optimizer, steps=steps, times=times)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [lg.gd(0.3, momentum=0.6, weight_decay=0.1), lg.sgd(0.3, 2, weight_decay=0.15)],
)
def test_against_wide_networks(optimizer):
    """Given their own initial outputs, networks end where the limit says, up to 1/√N."""
    here = run(optimizer, steps=12)
    limit = lg.solve(here)
    off = []
    for width in (128, 1024):
        nets = lg.train(here, width=width, seeds=8, key=1)
        train, test = KernelLimit().condition(limit, nets.f_train[:, 0], nets.f_test[:, 0])
        gaps = nets.f_train[:, -1] - train[:, -1], nets.f_test[:, -1] - test[:, -1]
        off.append(np.sqrt(np.mean(np.concatenate(gaps, axis=1) ** 2)))
    without = lg.solve(run(lg.gd(0.3, momentum=0.6), steps=12))
    assert off[1] < 0.06
    assert off[1] < off[0] / 1.6  # 1/√N: 1/2.8
    assert np.abs(without.f_train[-1] - limit.f_train[-1]).max() > 0.1


@pytest.mark.slow
def test_standard_deviations_over_initialisations():
    here = run(lg.gd(0.1, weight_decay=0.2), steps=4)
    limit, nets = lg.solve(here), lg.train(here, width=512, seeds=200, key=2)
    ratio = nets.f_train[:, -1].std(0) / limit.f_train_std[-1]
    assert np.all(np.abs(ratio - 1) < 4 / np.sqrt(2 * 200) + 0.02)
    z = (nets.f_train[:, -1].mean(0) - limit.f_train[-1]) / (limit.f_train_std[-1] / 200**0.5)
    assert np.abs(z).max() < 4


@pytest.mark.slow
def test_small_steps_tend_to_the_flow():
    """Gradient flow is the limit of small steps, with an error of first order."""
    flow = lg.solve(run(lg.gradient_flow(1.0, weight_decay=0.1), times=np.array([0.0, 2.0])))
    steps = [lg.solve(run(lg.gd(2.0 / n, weight_decay=0.1), steps=n)) for n in (100, 200)]
    off = [np.abs(s.f_train[-1] - flow.f_train[-1]).max() for s in steps]
    assert off[1] < 0.55 * off[0] < 0.01


def test_frozen_weights_do_not_decay():
    """With one trained map, degree 1, decay is that of ridge regression on fixed features."""
    param = lg.ntk().with_rates({"input": 0, "hidden": 0})
    limit = lg.solve(run(lg.gd(0.5, weight_decay=0.2), steps=600, param=param))
    kernel = lg.nngp_kernel(RELU, X)
    want = kernel @ np.linalg.solve(kernel + 4 * 0.2 * np.eye(4), Y)
    np.testing.assert_allclose(limit.f_train[-1], want, rtol=1e-9)
    np.testing.assert_allclose(limit.f_train_std[-1], 0, atol=1e-6)


def test_decay_without_data_shrinks_the_output():
    """A loss without slope: f = a^Λ f₀ with a = (1 − ηλ)^steps."""
    zero = lg.Dataset(X, np.zeros(4))
    here = lg.Run(RELU, lg.ntk(), zero, optimizer=lg.gd(1e-9, weight_decay=1e7), steps=10)
    limit = lg.solve(here)
    np.testing.assert_allclose(
        limit.f_train_std[-1] / limit.f_train_std[0], (1 - 1e-2) ** 30, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (lg.mlp(1, "tanh"), "tanh is not of degree one"),
        (lg.mlp(1, "relu", bias_std=0.1), "it has the bias 0.bias"),
        (lg.residual_mlp(2, "relu"), r"Residual.* joins values of degrees 1 and 2"),
    ],
)
def test_others_are_refused(net, words):
    with pytest.raises(NoTheory, match=words):
        lg.solve(run(lg.gd(0.1, weight_decay=0.1), net, steps=2))


def test_sums_and_orders_of_axes_are_linear():
    net = lg.serial(
        lg.layers.Axes("CT"),
        lg.Conv((2,)),
        lg.Activation("relu"),
        lg.layers.GlobalSumPool(),
        lg.Dense(),
    )
    form = canonical_form(lg.ntk(), net, lg.gd(0.1), (2, 5))
    assert degree(program_of(net, (2, 5)), form) == 2


RELU_DENSE = lg.serial(lg.Activation("relu"), lg.Dense())


@pytest.mark.parametrize(
    ("middle", "want"),
    [
        (lg.Residual(RELU_DENSE, shortcut=lg.Dense()), 3),
        (lg.layers.Concatenate(lg.Dense(), RELU_DENSE), 3),
        (lg.layers.Product(lg.Dense(), RELU_DENSE), 5),
        (lg.layers.Product(lg.Activation("relu"), lg.serial(RELU_DENSE, RELU_DENSE)), 5),
        (lg.repeat(RELU_DENSE, 3), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_degrees_of_networks_with_branches_are_those_of_networks(middle, want):
    """f(aθ) = a^Λ f(θ), weight by weight, in a network of width 8."""
    net = lg.serial(lg.Dense(), middle, lg.Dense())
    form = canonical_form(lg.ntk(), net, lg.gd(0.1), 3)
    assert degree(program_of(net, 3), form) == want
    network = lg.networks.finite_network(net, lg.ntk(), width=8, inputs=3)
    params = network.init(0, np.float64)
    with jax.enable_x64(True):
        once, twice = (
            network.apply(jax.tree.map(factor.__mul__, params), X)
            for factor in np.float64([1.0, 2.0])
        )
    np.testing.assert_allclose(twice, 2.0**want * once, rtol=1e-9)
