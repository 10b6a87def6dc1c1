"""What layers of a user's own are in every room: right, or refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.own_layers import (
    FullSum,
    Half,
    HiddenTanh,
    Mean,
    Scale,
    SilentHalf,
    Standardise,
    Swish,
    Twice,
    Unknown,
)

import largen as lg
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal(4)
IMAGES = RNG.standard_normal((3, 4, 2))
TANH, DENSE = lg.Activation("tanh"), lg.Dense()
SCALED = lg.serial(DENSE, Scale(40), TANH, DENSE)


def same(one, two, rtol=1e-12):
    for got, want in zip(one, two, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol)


def run(net, param=None, **options):
    data = lg.Dataset(X, Y)
    return lg.Run(net, param or lg.ntk(), data, optimizer=lg.gd(lr=0.1), steps=3, **options)


@pytest.mark.long_loops
@pytest.mark.slow
def test_a_wide_scale_before_tanh_is_right_to_1e_minus_8():
    # E[sech⁴] at variance 1600 q, by the trapezoidal rule with steps far below 1/40.
    nngp, ntk = lg.kernel(SCALED, X)
    same((nngp, ntk), lg.kernel(lg.serial(lg.Dense(weight_std=40), TANH, DENSE), X), 1e-8)
    q = 1600 * np.mean(X**2, axis=1)
    z = np.arange(-9, 9, 2e-4)
    weights = 2e-4 * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    value, slope = (
        f(np.sqrt(q)[:, None] * z) @ weights
        for f in (lambda u: np.tanh(u) ** 2, lambda u: (1 - np.tanh(u) ** 2) ** 2)
    )
    np.testing.assert_allclose(nngp.diagonal(), value, rtol=1e-8)
    np.testing.assert_allclose(ntk.diagonal(), value + slope * q, rtol=1e-8)
    hidden = lg.serial(DENSE, HiddenTanh(), DENSE)
    same(lg.kernel(hidden, X), lg.kernel(SCALED, X), 1e-12)
    with pytest.raises(NumericalFailure, match="variances"):
        lg.kernel(lg.serial(DENSE, Scale(1e9), TANH, DENSE), X)


@pytest.mark.slow
def test_kernels_are_those_of_networks_that_compute_the_same():
    half = lg.Dense(weight_std=0.5**0.5)
    cases = {
        lg.serial(DENSE, Scale(2.0), TANH, DENSE): lg.serial(lg.Dense(weight_std=2), TANH, DENSE),
        lg.serial(DENSE, Swish(1.0), DENSE): lg.mlp(1, "silu"),
        lg.serial(DENSE, Twice(lg.serial(TANH, DENSE)), DENSE): lg.serial(
            DENSE, lg.repeat(lg.serial(TANH, DENSE), 2), DENSE
        ),
        lg.serial(DENSE, TANH, Mean(DENSE, DENSE), TANH, DENSE): lg.serial(
            DENSE, TANH, half, TANH, DENSE
        ),
        lg.serial(DENSE, TANH, Standardise(1.0), DENSE): lg.serial(
            DENSE, TANH, lg.RMSNorm(eps=0), DENSE
        ),
        lg.serial(DENSE, Standardise(1.0), TANH, DENSE): lg.serial(
            DENSE, lg.RMSNorm(eps=0), TANH, DENSE
        ),
        lg.serial(DENSE, Half(), TANH, DENSE): lg.mlp(1, "tanh"),
    }
    for own, known in cases.items():
        same(lg.kernel(own, X), lg.kernel(known, X), 1e-10)
        same(lg.kernels.kernel_of_stds(own, X)(), lg.kernel(known, X), 1e-10)
        assert lg.nngp_kernel(own, X).shape == (4, 4)
    summed = lg.serial(lg.Conv((3,)), TANH, FullSum(), TANH, DENSE)
    pooled = lg.serial(lg.Conv((3,)), TANH, lg.layers.GlobalSumPool(), DENSE, TANH, DENSE)
    same(lg.kernel(summed, IMAGES), lg.kernel(pooled, IMAGES), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers",
    [
        (Scale(1.5), TANH),
        (Swish(2.0),),
        (TANH, Standardise(1.5)),
        (TANH, Twice(lg.serial(DENSE, TANH))),
        (TANH, Mean(DENSE, DENSE), TANH),
        (TANH, Half()),
    ],
    ids=lambda layers: type(layers[-1]).__name__,
)
def test_networks_train_as_their_limit_says(layers):
    net = lg.serial(DENSE, *layers, DENSE)
    estimate = lg.networks.monte_carlo_kernel(net, X, width=256, draws=48, key=1)
    limit = lg.kernel(net, X)
    for name in ("nngp", "ntk"):
        error = getattr(estimate, f"{name}_error")
        z = np.abs(getattr(estimate, name) - getattr(limit, name)) / (error + 0.02)
        assert z.max() < 5, name
    assert np.isfinite(lg.train(run(net), width=8, seeds=1, key=0).f_train).all()
    assert np.isfinite(lg.solve(run(net)).f_train).all()
    assert "0.weight" in str(lg.ntk().table(net))


def test_what_rooms_cannot_know_is_refused_by_name():
    unknown = lg.serial(DENSE, Unknown(), DENSE)
    for ask in (
        lambda: lg.kernel(unknown, X),
        lambda: lg.nngp_kernel(unknown, X),
        lambda: lg.kernels.kernel_of_stds(unknown, X),
        lambda: lg.networks.monte_carlo_kernel(unknown, X, width=4, key=0),
        lambda: lg.train(run(unknown), width=4, seeds=1, key=0),
        lambda: lg.solve(run(unknown)),
        lambda: lg.scaling.classify(lg.ntk(), unknown),
        lambda: lg.solve(run(unknown, lg.mean_field())),
    ):
        with pytest.raises((NoRule, NoTheory), match="Unknown"):
            ask()
    for layer in (Scale(2.0), Standardise(1.0), Mean(DENSE, DENSE)):
        deep = lg.serial(DENSE, TANH, layer, DENSE, TANH, DENSE)
        with pytest.raises((NoRule, NoTheory), match=type(layer).__name__):
            lg.solve(run(deep, lg.mean_field()), theory="mean field, deep")
    with pytest.raises(NoRule, match="Dropout"):
        lg.scaling.classify(lg.ntk(), lg.serial(DENSE, lg.layers.Dropout(0.5), DENSE))


@pytest.mark.slow
def test_traits_are_enough_for_the_classification_the_mean_field_and_weight_decay():
    for layer in (Scale(2.0), Swish(1.0), Standardise(1.0), Mean(DENSE, DENSE)):
        assert lg.scaling.classify(lg.mup(), lg.serial(DENSE, layer, DENSE)).kind == "maximal"
    limit = lg.solve(run(lg.serial(DENSE, Swish(1.0), DENSE), lg.mean_field()))
    known = lg.solve(run(lg.mlp(1, "silu"), lg.mean_field()))
    np.testing.assert_allclose(limit.f_train, known.f_train, rtol=1e-6, atol=1e-9)
    net = lg.serial(DENSE, Scale(2.0), lg.Activation("relu"), DENSE)
    decaying = lg.Run(
        net, lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(lr=0.1, weight_decay=0.1), steps=3
    )
    wide = lg.serial(lg.Dense(weight_std=2.0), lg.Activation("relu"), DENSE)
    same(
        [lg.solve(decaying).f_train],
        [
            lg.solve(
                lg.Run(wide, lg.ntk(), decaying.data, optimizer=decaying.optimizer, steps=3)
            ).f_train
        ],
        1e-10,
    )


def test_the_mean_field_follows_operations_of_layers_that_it_has_not_met():
    half, linear = lg.Dense(weight_std=0.5**0.5), lg.Activation("linear")
    for layers, known in (
        ((Scale(2.0), DENSE), (lg.Dense(weight_std=2.0),)),
        ((Standardise(2.0), DENSE), (lg.RMSNorm(eps=0), lg.Dense(weight_std=2.0))),
        ((linear, Mean(DENSE, DENSE), linear), (half,)),
    ):
        limit = lg.solve(run(lg.serial(DENSE, *layers, DENSE), lg.mean_field()))
        assert limit.theory == lg.theories.AttentionMeanField.name
        other = run(lg.serial(DENSE, *known, DENSE), lg.mean_field())
        want = lg.solve(other, theory=lg.theories.AttentionMeanField()).f_train
        np.testing.assert_allclose(limit.f_train, want, rtol=1e-9, atol=1e-12)


def test_layers_that_change_the_shape_have_to_say_so():
    with pytest.raises(InvalidInput, match=r"SilentHalf.*signal_behind"):
        lg.train(run(lg.serial(DENSE, SilentHalf(), DENSE)), width=8, seeds=1, key=0)
    with pytest.raises(InvalidInput, match="take a multiple of 2"):
        lg.train(run(lg.serial(DENSE, Half(), DENSE)), width=7, seeds=1, key=0)


@pytest.mark.slow
def test_kernels_of_known_inputs_within_compiled_functions():
    net = lg.serial(lg.Conv((3,)), TANH, lg.GlobalAvgPool(), DENSE)
    with jax.enable_x64(True):
        inside = jax.jit(lambda factor: factor * lg.nngp_kernel(net, jnp.asarray(IMAGES)))(2.0)
    np.testing.assert_allclose(inside, 2 * lg.nngp_kernel(net, IMAGES), rtol=1e-12)


def test_layers_that_are_no_records_are_not_taken_for_each_other():
    """Programs and compiled functions are kept by equality."""

    class Shift(lg.layers.Layer):
        def __init__(self, by):
            object.__setattr__(self, "by", by)

    assert Shift(1.0) != Shift(2.0)
    assert lg.serial(lg.Dense(), Shift(1.0)) != lg.serial(lg.Dense(), Shift(2.0))
    assert lg.Flatten() == lg.Flatten()
