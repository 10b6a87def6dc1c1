"""What the mean-field theory of one hidden layer accepts, refuses and returns."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.theories import MeanField, whitened_linear_flow

RNG = np.random.default_rng(5)
X = RNG.normal(size=(6, 4))
DATA = lg.Dataset(X, np.sin(X[:, 0]), X[:2] + 0.1, np.zeros(2))
CLASSES = lg.Dataset(X, np.array([0, 1, 2, 0, 1, 2]))
solve = partial(lg.solve, theory="mean field, one hidden layer")


def run_of(net=None, param=None, data=DATA, steps=5, optimizer=None, **options):
    return lg.Run(
        net or lg.mlp(1, "tanh"),
        param or lg.mean_field(),
        data,
        optimizer=optimizer or lg.gd(0.2),
        steps=steps,
        **options,
    )


@pytest.mark.slow
def test_activations_after_one_another_are_one_function():
    twice = lg.serial(lg.Dense(), *2 * [lg.Activation("tanh")], lg.Dense())
    one = lg.mlp(1, lambda h: jnp.tanh(jnp.tanh(h)))
    got, want = (solve(run_of(net)).f_train for net in (twice, one))
    # Neurons are followed in single precision, whose roundings differ between the two.
    np.testing.assert_allclose(got, want, atol=1e-7)


@pytest.mark.parametrize(
    ("run", "missing"),
    [
        (run_of(lg.mlp(2, "tanh")), "theory of one hidden layer"),
        (run_of(lg.residual_mlp(2, "tanh")), "residual branches"),
        (run_of(param=lg.ntk()), "kernel limit"),
        (run_of(param=lg.standard()), "no infinite-width limit"),
        (run_of(param=lg.ntk(), optimizer=lg.adam(0.1)), "Adam has no implemented limit"),
        (
            run_of(param=lg.scaling.plane_scheme(-1, 1, 0), optimizer=lg.optimizers.rmsprop(0.1)),
            "update over its initial",
        ),
    ],
)
def test_what_is_not_covered_is_said(run, missing):
    with pytest.raises(NoTheory, match=missing):
        MeanField.covers(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "closed"}, "linear activation"),
        ({"method": "quadrature"}, "at most 3 Gaussian variables"),
        ({"rtol": 0}, "rtol"),
        ({"max_particles": 0}, "max_particles"),
        ({"particles": 64, "method": "quadrature"}, "method='particles'"),
        ({"particles": 48, "method": "particles"}, "power of two"),
        ({"record_at": [6]}, "record_at"),
        ({"key": "seed"}, "key"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(InvalidInput, match=message):
        solve(run_of(), **options)


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_divergence_is_raised_or_returned(activation):
    run = run_of(lg.mlp(1, activation), optimizer=lg.gd(50.0), steps=60)
    with pytest.raises(NumericalFailure, match="Lower the learning rate") as failure:
        solve(run)
    assert failure.value.result.status == "diverged"
    assert solve(run, throw=False).status == "diverged"


def test_finite_outputs_beyond_all_targets_have_diverged():
    def run(steps):
        return run_of(lg.mlp(1, "linear"), optimizer=lg.gd(50.0), steps=steps)

    found = solve(run(60), throw=False).f_train
    grown = np.abs(found).max(1) > 1e6 * (1 + np.abs(DATA.y_train).max())
    steps = int(np.argmax(grown))
    assert np.isfinite(found[: steps + 1]).all()
    assert solve(run(steps), throw=False).status == "diverged"
    assert solve(run(steps - 1)).status == "ok"


@pytest.mark.slow
def test_axes_names_and_precision():
    limit = solve(run_of(data=CLASSES, loss="cross_entropy"), rtol=2e-2, record_at=[0, 3, 5])
    sizes = limit.to_xarray().sizes
    assert limit.f_train.shape == limit.f_train_error.shape == (6, 6, 3)
    assert limit.f_test.shape == (6, 0, 3)
    assert limit.feature_kernel.shape == (3, 1, 6, 6)
    assert limit.gradient_kernel.shape == (3, 1, 6, 6, 3, 3)
    assert limit.ntk.shape == (3, 6, 6, 3, 3)
    assert limit.record_step.tolist() == [0, 3, 5]
    assert (sizes["output"], sizes["layer"]) == (3, 1)
    assert limit.f_train.dtype == np.float64
    single = lg.Dataset(X.astype(np.float32), np.sin(X[:, 0]).astype(np.float32))
    assert solve(run_of(data=single), rtol=2e-2, record_at=()).f_train.dtype == np.float32


def test_kernels_satisfy_the_definition_of_the_ntk():
    net = lg.mlp(1, "tanh", weight_std=1.2, bias_std=0.6)
    limit = solve(run_of(net, lg.mean_field(2.0)), rtol=2e-2)
    inputs = 1.44 * X @ X.T / 4 + 0.36
    expected = 1.44 * limit.feature_kernel + limit.gradient_kernel * inputs + 0.36
    np.testing.assert_allclose(limit.ntk, expected[:, 0], rtol=1e-5)


def test_the_budget_is_kept_and_said():
    limit = solve(run_of(), rtol=1e-5, max_particles=2**15)
    assert "more than rtol=1e-05" in limit.notes[0]
    assert "8 replicates of 4096" in limit.notes[0]


def test_results_repeat_and_keys_differ():
    a, b, c = (solve(run_of(), rtol=2e-2, key=key).f_train for key in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_inputs_that_vanish_leave_the_output_at_zero():
    data = lg.Dataset(np.zeros((3, 2)), np.ones(3))
    assert np.all(solve(run_of(data=data)).f_train == 0)


def test_whitened_flow_checks_its_times():
    with pytest.raises(InvalidInput, match="times"):
        whitened_linear_flow(np.array([-1.0]), 1.0)


@pytest.mark.parametrize("options", [{"record_at": [1]}, {"record_pairs": [(0, 1)]}])
def test_times_without_a_kernel_to_record_are_refused(options):
    with pytest.raises(InvalidInput, match=f"{next(iter(options))}: nothing to record"):
        solve(run_of(), record=[], **options)
    with pytest.raises(InvalidInput, match="record_at: nothing to record"):
        lg.training.width_corrections_in_training(run_of(), width=8, record_at=[1])


def test_samples_that_are_twice_in_a_batch_count_twice():
    """A batch of one sample, three times, is that sample alone."""
    thrice = lg.sgd(0.3, 3, order=[1, 1, 1], momentum=0.5)
    alone = lg.Dataset(X[1:2], DATA.y_train[1:2], X, DATA.y_train)
    net = lg.mlp(1, "linear")
    got = solve(run_of(net, optimizer=thrice)).f_train
    want = solve(run_of(net, data=alone, optimizer=lg.gd(0.3, momentum=0.5))).f_test
    np.testing.assert_allclose(got, want, atol=1e-12)
    assert np.abs(want[-1]).max() > 0.1
