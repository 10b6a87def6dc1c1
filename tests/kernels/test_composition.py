"""Networks whose signals are not Gaussian between two affine maps."""

import numpy as np
import pytest
from scipy import special
from tests.kernels.joint_reference import Joint
from tests.kernels.references import _NODES, _WEIGHTS

import largen as lg
from largen.errors import NoTheory
from largen.kernels.accuracy import with_activations
from largen.programs import program_of

RNG = np.random.default_rng(6)
X = RNG.standard_normal((4, 6))
RELU, ERF = lg.Activation("relu"), lg.Activation("erf")


def agree(net, x, joint, rtol=1e-11):
    nngp, ntk = lg.kernel(net, x)
    np.testing.assert_allclose(nngp, joint.K, rtol=rtol)
    np.testing.assert_allclose(ntk, joint.T, rtol=rtol)


def elementwise(joint, f, slope):
    """Return the reference behind any function of Gaussians, by the trapezoidal rule."""
    K, D = np.empty_like(joint.K), np.empty_like(joint.K)
    for i, j in np.ndindex(K.shape):
        a, b, c = joint.K[i, i], joint.K[j, j], joint.K[i, j]
        v = c / np.sqrt(a) * _NODES[:, None] + np.sqrt(max(b - c**2 / a, 0)) * _NODES
        for out, g in ((K, f), (D, slope)):
            out[i, j] = (_WEIGHTS * g(np.sqrt(a) * _NODES)) @ g(v) @ _WEIGHTS
    return Joint(joint.n, K, D * joint.T, np.array([0.0]))


def data():
    return Joint.of(X[:, None]).dense(1.3**2, 0.2**2)


FIRST = lg.Dense(weight_std=1.3, bias_std=0.2)


def sech2(x):
    return 1 / np.cosh(x) ** 2


@pytest.mark.slow
def test_elementwise_runs_are_one_function_of_the_gaussian():
    # Once the moments of tanh of a Gaussian with the variance of the erf were returned here.
    tanh, linear = lg.Activation("tanh"), lg.Activation("linear")
    run = (ERF, tanh, lg.Residual(tanh), lg.layers.Product(linear, tanh))
    net = lg.serial(FIRST, *run, lg.Dense())

    def f(x):
        y = np.tanh(special.erf(x))
        z = y + np.tanh(y)
        return z * np.tanh(z)

    def slope(x):
        y = np.tanh(special.erf(x))
        z = y + np.tanh(y)
        dy = sech2(special.erf(x)) * 2 / np.sqrt(np.pi) * np.exp(-(x**2))
        return (np.tanh(z) + z * sech2(z)) * (1 + sech2(y)) * dy

    agree(net, X, elementwise(data(), f, slope).dense(), rtol=1e-9)


def test_piecewise_linear_runs_stay_exact():
    run = (RELU, lg.Residual(RELU), lg.repeat(lg.Residual(lg.Activation("abs"), RELU), 2))
    net = lg.serial(FIRST, *run, lg.Dense(weight_std=1.5))
    agree(net, X, data().relu().dense((2 * 4) ** 2 * 1.5**2))


def test_branches_that_read_an_activation():
    # relu(relu(u)) = relu(u): the branch's activation sees the same Gaussian.
    block = lg.Residual(lg.serial(RELU, lg.Dense(weight_std=1.1)))
    net = lg.serial(FIRST, RELU, block, lg.Dense())
    h = data().relu()
    agree(net, X, h.plus(h.dense(1.1**2)).dense())


def test_independent_parts_with_means():
    block = lg.Residual(
        lg.serial(lg.Dense(weight_std=1.2, bias_std=0.1), RELU),
        lg.serial(lg.Dense(weight_std=0.7), RELU),
    )
    net = lg.serial(FIRST, RELU, block, lg.LayerNorm(), lg.Dense())
    h = data().relu()
    joint = h.dense(0.49).relu().plus(h.dense(1.44, 0.01).relu(), 1.0)
    agree(net, X, joint.norm(centre=True).dense())
    after = lg.serial(FIRST, RELU, lg.Residual(block.branch), lg.Dense())
    agree(after, X, h.plus(h.dense(1.44, 0.01).relu()).dense())


def test_a_repetition_that_begins_and_ends_with_activations():
    leaky = lg.Activation("leaky_relu")
    net = lg.serial(
        FIRST, lg.repeat(lg.serial(RELU, lg.Dense(weight_std=1.4), leaky), 3), lg.Dense()
    )
    got = lg.kernel(net, X)
    want = lg.kernel(lg.serial(FIRST, *[RELU, lg.Dense(weight_std=1.4)] * 3, leaky, lg.Dense()), X)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_concatenation_is_a_mean():
    branches = lg.layers.Concatenate(
        lg.serial(lg.Dense(weight_std=1.2), RELU), lg.Dense(weight_std=0.5), lg.Activation("erf")
    )
    net = lg.serial(FIRST, branches, lg.RMSNorm(), lg.Dense())
    h, parts = data(), []
    parts = [h.dense(1.44).relu(), h.dense(0.25), h.erf()]
    mean = Joint(h.n, *(sum(getattr(p, a) for p in parts) / 3 for a in ("K", "T", "m")))
    agree(net, X, mean.norm().dense())
    # An activation behind acts on each branch.
    two = lg.serial(
        FIRST,
        lg.layers.Concatenate(lg.Dense(weight_std=1.2), lg.Dense(weight_std=0.5)),
        RELU,
        lg.Dense(),
    )
    parts = [h.dense(1.44).relu(), h.dense(0.25).relu()]
    agree(two, X, Joint(h.n, *(sum(getattr(p, a) for p in parts) / 2 for a in "KTm")).dense())


def test_products_of_independent_branches():
    gate = lg.layers.Product(
        lg.Dense(), lg.serial(lg.Dense(weight_std=1.2, bias_std=0.3), RELU), RELU
    )
    net = lg.serial(FIRST, gate, lg.Dense(weight_std=1.5))
    h = data()
    joint = h.dense().times(h.dense(1.44, 0.09).relu()).times(h.relu())
    agree(net, X, joint.dense(2.25))
    # Factors of the same Gaussian are one function of it: |u| sign(u) is u.
    same = lg.layers.Product(lg.Activation("abs"), lg.Dense(), lg.Activation("sign"))
    linear = lg.layers.Product(lg.Activation("linear"), lg.Dense())
    one, two = (lg.kernel(lg.serial(FIRST, p, lg.Dense()), X) for p in (same, linear))
    np.testing.assert_allclose(one.ntk, two.ntk, rtol=1e-12)


@pytest.mark.parametrize("over_space", [pytest.param(False, marks=pytest.mark.slow), True])
def test_normalisation(over_space):
    x = RNG.standard_normal((3, 5, 2))
    layers = [
        lg.LayerNorm(over_space=over_space, eps=0.1),
        RELU,
        lg.LayerNorm(over_space=over_space),
        lg.Dense(),
    ]
    net = lg.serial(
        lg.Dense(), *layers, lg.RMSNorm(over_space=over_space), ERF, lg.GlobalAvgPool(), lg.Dense()
    )
    joint = Joint.of(x).dense().norm(True, over_space, 0.1).relu().norm(True, over_space).dense()
    joint = joint.norm(False, over_space).erf().linear(np.full((1, 5), 0.2)).dense()
    agree(net, x, joint)


def test_means_of_products_are_subtracted_behind_them():
    gate = lg.layers.Product(lg.serial(lg.Dense(), RELU), lg.serial(lg.Dense(), RELU))
    net = lg.serial(FIRST, gate, lg.LayerNorm(), lg.Dense())
    h = data()
    one = h.dense().relu()
    joint = one.times(h.dense().relu())
    agree(net, X, Joint(h.n, joint.K, joint.T, one.m**2).norm(True, False, 0.0).dense())


@pytest.mark.slow
def test_normalised_samples_of_unequal_lengths():
    net = lg.serial(lg.Conv((1,)), lg.LayerNorm(), RELU, lg.GlobalAvgPool(), lg.Dense())
    x, mask = RNG.standard_normal((2, 5, 3)), np.arange(5) < np.array([[3], [3]])
    masked, short = lg.kernel(net, x, mask1=mask), lg.kernel(net, x[:, :3])
    np.testing.assert_allclose(np.stack(masked), np.stack(short), rtol=1e-11)


def test_dropout_scales_a_sample_with_itself():
    net = lg.serial(FIRST, RELU, lg.layers.Dropout(0.2), lg.Dense())
    h = data().relu()
    h.K += np.diag(np.diag(h.K)) / 4
    h.T += np.diag(np.diag(h.T)) / 4
    agree(net, X, h.dense())


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((RELU, lg.Residual(lg.serial(lg.Dense(), RELU)), RELU), "acts on the sum"),
        ((RELU, lg.layers.Dropout(0.5), RELU), "acts on the output of Dropout"),
        ((lg.layers.Product(lg.RMSNorm(), RELU),), "are correlated"),
        (
            (lg.layers.Concatenate(lg.Dense(), lg.Dense(weight_std=2.0)), lg.RMSNorm(), RELU),
            "different variances",
        ),
    ],
)
def test_what_is_refused(layers, words):
    net = lg.serial(lg.Dense(), *layers, lg.Dense())
    with pytest.raises(NoTheory, match=words):
        lg.kernel(net, X)


@pytest.mark.parametrize(
    "layers",
    [
        (RELU, lg.layers.Dropout(0.5), RELU),
        (RELU, lg.layers.Dropout(0.5), lg.Dense(), RELU, lg.RMSNorm(), RELU),  # and further behind
        (lg.layers.Product(lg.layers.Dropout(0.5), RELU),),
    ],
)
def test_networks_without_masks_are_no_way_out_of_dropout(layers):
    net = lg.serial(lg.Dense(), *layers, lg.Dense())
    with pytest.raises(NoTheory, match="draw no masks of dropout"):
        lg.kernel(net, X)


def test_an_average_of_activations_is_not_gaussian():
    net = lg.serial(lg.Conv((3,)), RELU, lg.layers.AvgPool((2,)), RELU, lg.Flatten(), lg.Dense())
    with pytest.raises(NoTheory, match="Monte Carlo"):
        lg.kernel(net, RNG.standard_normal((2, 6, 1)))
    norm = lg.serial(lg.LayerNorm(), RELU, lg.Dense(), lg.Dense())
    with pytest.raises(NoTheory, match="inputs are data"):
        lg.kernel(norm, X)


def test_activations_in_every_place_can_be_exchanged():
    tanh, relu = lg.Activation("tanh"), lg.Activation("relu")

    def net(phi):
        branches = lg.layers.Product(phi, lg.serial(lg.Dense(), phi))
        blocks = lg.repeat(lg.Residual(branches, lg.serial(lg.Dense(), phi)), 2)
        return lg.serial(phi, lg.Dense(), blocks, lg.layers.Concatenate(phi, phi))

    exchanged = with_activations(program_of(net(tanh)), {tanh.function: relu.function})
    assert exchanged == program_of(net(relu))
