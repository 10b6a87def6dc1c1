"""Which method solves which network of infinite depth, and that they agree."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.theories.mean_field.infinite_depth.estimates import beyond_chance
from largen.theories.mean_field.infinite_depth.exact import sets_for

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((5, 4))
DATA = lg.Dataset(INPUTS[:3], np.array([1.0, -1.0, 0.5]), INPUTS[3:], np.ones(2))


def run_of(activation, param, *, layers=1, lr=0.1, steps=4, data=DATA, **options):
    net = lg.residual_mlp(math.inf, activation, layers_per_block=layers, bias_std=0.2)
    return lg.Run(net, param, data, optimizer=lg.gd(lr, **options), steps=steps)


def between(power):
    """Branches L^(−power), with rates that make them move the stream at order one."""
    return replace(lg.complete_p(), branch=power, branch_rate=2 * power - 1)


SLOW = ("linear, 1", "tanh, 1")
CASES = {
    "linear, 1/2": ("linear", lg.depth_mup(), 1, "closed equations"),
    "linear, 1": ("linear", lg.complete_p(), 1, "closed equations"),
    "linear, 1, two matrices": ("linear", lg.complete_p(), 2, "closed equations"),
    "tanh, 1": ("tanh", lg.complete_p(), 1, "quasi-random neurons"),
}


@pytest.mark.parametrize(
    ("activation", "param", "layers", "how"),
    [
        pytest.param(
            *case, id=name, marks=[pytest.mark.slow] if name in ("linear, 1", "tanh, 1") else []
        )
        for name, case in CASES.items()
    ],
)
def test_kernels_at_initialisation_are_the_recursions(activation, param, layers, how):
    run = run_of(activation, param, layers=layers, steps=1)
    options = {"particles": 512, "rtol": 1e-2, "replicates": 2}
    limit = lg.solve(run, record=["feature_kernel", "gradient_kernel", "ntk"], **options)
    assert how in limit.notes[0]
    exact = lg.ntk_kernel(run.net, INPUTS[:3], param=param)
    close = 1e-6 if how == "closed equations" else 1e-2
    np.testing.assert_allclose(limit.ntk[0], exact, rtol=close, atol=close)
    beside = lg.ntk_kernel(run.net, INPUTS[3:], INPUTS[:3], param=param)
    np.testing.assert_allclose(limit.ntk_test[0], beside, rtol=close, atol=close)
    assert limit.layer[0] == 0
    assert limit.layer[-1] == 1
    assert limit.feature_kernel.shape == (2, len(limit.layer), 3, 3)


@pytest.mark.slow
def test_neurons_and_closed_equations_agree():
    run = run_of("linear", lg.complete_p(), momentum=0.5, weight_decay=0.1)
    exact = lg.solve(run)
    found = lg.solve(run, method="deterministic", rtol=1e-4, particles=1024)
    error = np.sqrt(np.mean((found.f_train - exact.f_train) ** 2))
    assert error < 3e-4 * np.sqrt(np.mean(exact.f_train**2))
    np.testing.assert_allclose(found.ntk, exact.ntk, rtol=1e-3)


@pytest.mark.slow
def test_depths_lie_within_their_error_of_neurons():
    run = run_of("tanh", lg.complete_p())
    exact = lg.solve(run, rtol=1e-3)
    found = lg.solve(run, method="sweep", particles=512, rtol=5e-3, replicates=4)
    off = np.sqrt(np.mean((found.f_test - exact.f_test) ** 2))
    assert off < 3 * np.sqrt(np.mean(found.f_test_error**2))
    assert off < 0.01 * np.sqrt(np.mean(exact.f_test**2))


@pytest.mark.slow
def test_every_power_above_one_half_has_one_limit():
    one = lg.solve(run_of("tanh", lg.complete_p()), particles=512)
    other = lg.solve(run_of("tanh", between(Fraction(3, 4))), particles=512)
    np.testing.assert_allclose(other.f_train, one.f_train, rtol=1e-6)
    assert "L^-1/2" in other.reason


@pytest.mark.slow
def test_gradient_flow_between_one_half_and_one():
    options = {"particles": 128, "depths": (1, 2), "replicates": 2, "rtol": 0.2}
    net = lg.residual_mlp(math.inf, "tanh")
    found = [
        lg.solve(
            lg.Run(net, param, DATA, optimizer=lg.gradient_flow(), times=[0.0, 0.2, 0.4]), **options
        )
        for param in (lg.complete_p(), between(Fraction(3, 4)))
    ]
    np.testing.assert_array_equal(found[0].f_train, found[1].f_train)
    steps = lg.Run(net, lg.complete_p(), DATA, optimizer=lg.gd(0.01), steps=40)
    beside = lg.solve(steps, particles=1024).f_train[[0, 20, 40]]
    off = np.sqrt(np.mean((found[1].f_train - beside) ** 2) / np.mean(beside**2))
    assert off < 0.1


def test_chance_is_no_error_of_depth():
    rng = np.random.default_rng(0)
    noise, error = 0.01 * rng.standard_normal((2, 6, 4, 1)), np.full((6, 4, 1), 0.01)
    assert beyond_chance(noise[0], error).max() < 0.03
    found = beyond_chance(0.1 + noise[1], error)
    np.testing.assert_allclose(np.sqrt(np.mean(found**2)), 0.1, rtol=0.1)


def test_sets_are_added_for_the_error_that_falls_with_them():
    assert sets_for(1e-2, 4, depth=1e-3, whole=6e-3, most=64) == 4
    assert sets_for(1e-2, 4, depth=1e-3, whole=9e-3, most=64) == 7
    assert sets_for(1e-2, 4, depth=1e-3, whole=1.5e-2, most=64) == 13
    assert sets_for(1e-2, 4, depth=1e-3, whole=1.5e-2, most=8) == 8
    assert sets_for(1e-2, 4, depth=1.1e-2, whole=2e-2, most=64) == 8  # it may be chance
    assert sets_for(1e-2, 4, depth=1.1e-2, whole=1.2e-2, most=64) == 4  # it is not


@pytest.mark.slow
def test_several_outputs_batches_and_losses():
    labels = np.array([0, 2, 1])
    data = lg.Dataset(INPUTS[:3], labels, INPUTS[3:], labels[:2])
    net = lg.residual_mlp(math.inf, "tanh")
    for optimizer in (lg.gd(0.2), lg.sgd(0.2, batch_size=2)):
        run = lg.Run(net, lg.complete_p(), data, loss="cross_entropy", optimizer=optimizer, steps=3)
        neurons = lg.solve(run, particles=1024, record="ntk")
        depths = lg.solve(run, method="sweep", particles=512, rtol=2e-2, replicates=2)
        assert neurons.f_train.shape == (4, 3, 3)
        off, size = (
            np.sqrt(np.mean(part**2))
            for part in (neurons.f_train - depths.f_train, neurons.f_train)
        )
        assert off < 2 * np.sqrt(np.mean(depths.f_train_error**2))
        assert off < 0.1 * size


def test_what_does_not_apply_is_refused():
    for run, method in (
        (run_of("tanh", lg.depth_mup()), "closed"),
        (run_of("tanh", lg.depth_mup()), "deterministic"),
        (run_of("tanh", between(Fraction(3, 4)), layers=2), "deterministic"),
    ):
        with pytest.raises(InvalidInput, match=r"method: .* does not apply"):
            lg.solve(run, method=method)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_divergence_is_raised_or_returned(activation):
    run = run_of(activation, lg.complete_p(), lr=1e3, steps=60)
    with pytest.raises(NumericalFailure, match="diverges"):
        lg.solve(run, particles=256)
    found = lg.solve(run, particles=256, throw=False)
    assert found.status != "ok"


@pytest.mark.slow
def test_sample_neurons_have_the_kernels():
    """All neurons of one set are sampled; of networks of several depths those of the deepest."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((3, 2))
    options = {"sample_neurons": 256, "particles": 256, "replicates": 1, "progress": False}
    for param, tolerance in ((lg.complete_p(), 1e-5), (lg.depth_mup(), 0.35)):
        net = lg.residual_mlp(math.inf, "tanh")
        run = lg.Run(net, param, lg.Dataset(x, y), optimizer=lg.gd(0.3), steps=3)
        found = lg.solve(run, **options)
        phi, g = np.tanh(found.neuron_h), found.neuron_g
        kernels = {
            "feature_kernel": np.einsum("rlnp,rlnq->rlpq", phi, phi) / 256,
            "gradient_kernel": np.einsum("rlnpa,rlnqb->rlpqab", g, g) / 256,
        }
        for name, kernel in kernels.items():
            size = np.abs(kernel).max()
            np.testing.assert_allclose(getattr(found, name), kernel, atol=tolerance * size)
        assert "neuron_z" not in found
