"""Response functions: closed equations, outputs that follow from them, wide networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.theories.mean_field.deep import closed_equations
from tests.theories.mean_field.deep.response_networks import Setting, network_responses

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.expectations import with_kinks
from largen.theories.chains.problem import posed_by

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((2, 6)), np.array([1.0, -0.7])


def run_of(net, steps=4, lr=0.6, **options):
    optimizer = lg.gd(lr, **options)
    return lg.Run(net, lg.mean_field(1.2), lg.Dataset(X, Y), optimizer=optimizer, steps=steps)


@pytest.mark.slow
def test_linear_networks():
    """A = (1 − CD)⁻¹C and B = (1 − DC)⁻¹D; what is left falls with the number of particles."""
    _, (_, _, a, b) = closed_equations.matrices(X @ X.T / 6, Y, 3, 1.2, 0.6, 5)
    off = []
    for particles in (256, 1024):
        found = lg.theories.response_functions(
            run_of(lg.mlp(3, "linear")), particles=particles, replicates=2
        )
        pairs = [*zip(found.A, a[1:], strict=False), *zip(found.B, b[1:3], strict=True)]
        assert all(np.abs(right).max() > 0.2 for _, right in pairs)
        off.append(max(np.abs(ours.reshape(10, 10) - right).max() for ours, right in pairs))
    assert off[1] < min(2e-3, 0.6 * off[0])


def test_progress_is_told_in_passes():
    told = []
    lg.theories.response_functions(
        run_of(lg.mlp(2, "tanh"), steps=1),
        particles=64,
        replicates=2,
        progress=lambda done, total: told.append((done, total)),
    )
    done, total = np.array(told).T
    assert (np.diff(done) >= 0).all()
    assert len(set(done)) > 4
    assert (total == done[-1]).all()


def test_classes_have_responses():
    data = lg.Dataset(X, np.array([2, 0]))
    run = lg.Run(
        lg.mlp(1, "tanh"), lg.mean_field(1.2), data, loss="cross_entropy", optimizer=lg.gd(1.0),
        steps=1,
    )  # fmt: skip
    found = lg.theories.response_functions(run, particles=512, replicates=4)
    limit = lg.solve(run, rtol=0.05)
    error = np.hypot(found.f_train_error, limit.f_train_error)[1:]
    assert np.abs((found.f_train - limit.f_train)[1:] / error).max() < 5
    assert np.abs(limit.f_train).max() > 10 * error.max()


@pytest.mark.slow
def test_outputs_follow_from_the_responses():
    """f = (κ/γ₀)ΣΔΦ + (1/γ₀)ΣA, with other constants than one and a schedule of rates."""
    net = lg.mlp(3, "tanh", weight_std=1.3, bias_std=0.4)
    run = run_of(net, steps=5, schedule=[1, 1, 0.5, 0.5, 0.25])
    limit = lg.solve(run, rtol=1e-3)
    found = lg.theories.response_functions(run, particles=1024, replicates=6)
    error = np.hypot(found.f_train_error, limit.f_train_error)[1:]
    z = ((found.f_train - limit.f_train)[1:]) / error
    assert np.abs(limit.f_train[-1]).max() > 0.5
    assert error.max() < 1e-2  # of outputs of order one
    assert np.abs(z).max() < 4.5
    # What the responses add is no small part of it.
    responses = found.A[-1].sum((2, 3)) * 1.3**2 / 1.2
    assert np.abs(responses).max() > 20 * error.max()
    data = found.to_xarray()
    assert data["A"].dims == ("layer", "step", "sample", "step_2", "sample_2")
    assert (found.A[:, 0] == 0).all()
    np.testing.assert_array_equal(np.triu(np.abs(found.B).sum((0, 2, 4)), 1), 0)


@pytest.mark.slow
def test_one_hidden_layer_and_targets_with_an_axis():
    """One output may come as a column; of one hidden layer there is no B."""
    found = []
    for y in (Y, Y[:, None]):
        run = lg.Run(
            lg.mlp(1, "tanh"), lg.mean_field(), lg.Dataset(X, y), optimizer=lg.gd(0.6), steps=2
        )
        found.append(lg.theories.response_functions(run, particles=64, replicates=2))
    assert found[0].B.shape == (0, 3, 2, 3, 2)
    np.testing.assert_allclose(found[0].A, found[1].A[..., 0], atol=1e-12)
    assert found[1].to_xarray()["f_train"].dims == ("step", "sample", "output")


def assert_responses_of_networks(run, phi, slope, *, size=0.0, **options):
    """Compare with networks of width 300 by the root mean square of z.

    Of six networks it is 1.3 in the mean, as for Student's t: 0.85 to 1.5 in four groups of six of
    the networks with wide blocks, and 0.7 for A and 0.9 for B with 24 of them.
    """
    problem, how = posed_by(run).problem, run.optimizer
    found = lg.theories.response_functions(run, replicates=4, **options)
    with jax.enable_x64(True):
        net = Setting(
            phi,
            slope,
            X,
            np.reshape(run.data.y_train, (2, -1)),
            problem.skips,
            (1.0, *(affine.std for affine in problem.maps)),
            problem.gamma,
            how.lr,
            run.steps,
            how.momentum,
            how.weight_decay,
            run.batches,
        )
        nets = network_responses(net, 300, 6, size)
    for name, networks in zip("AB", nets, strict=True):
        ours, spread = getattr(found, name), getattr(found, f"{name}_error")
        ours, spread = (x.reshape(networks.shape[1:]) for x in (ours, spread))
        mean, error = networks.mean(0), networks.std(0, ddof=1) / len(networks) ** 0.5
        error = np.hypot(error, spread)
        there = error > 1e-9
        np.testing.assert_allclose(ours[~there], mean[~there], atol=1e-9)
        z = ((ours - mean)[there]) / error[there]
        assert np.sqrt(np.mean(z**2)) < 2
        assert np.linalg.norm(error) < 0.2 * np.linalg.norm(mean)
        assert np.linalg.norm(ours - mean) < 0.15 * np.linalg.norm(mean)
    return found


def tanh_slope(h):
    return 1 - jnp.tanh(h) ** 2


BOTH = np.stack([Y, Y[::-1] + 0.3], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "y", "optimizer"),
    [
        pytest.param(
            lg.mlp(2, "tanh"),
            BOTH,
            lg.gd(0.6, momentum=0.5, weight_decay=0.2),
            id="two outputs, momentum and decay",
        ),
        pytest.param(lg.residual_mlp(2, "tanh"), Y, lg.sgd(0.6, 1, seed=0), id="residual, batches"),
        pytest.param(
            lg.residual_mlp(1, "tanh", layers_per_block=2), BOTH, lg.gd(0.6), id="wide blocks"
        ),
    ],
)
def test_networks_with_sources_respond_alike(net, y, optimizer):
    run = lg.Run(net, lg.depth_mup(1.4), lg.Dataset(X, y), optimizer=optimizer, steps=2)
    assert_responses_of_networks(run, jnp.tanh, tanh_slope, particles=1024)


@pytest.mark.slow
def test_rounded_kinks_respond_like_relu():
    """By central differences, which see the neurons that cross the kink; f follows from A."""
    run = lg.Run(
        lg.mlp(2, "relu"), lg.mean_field(1.4), lg.Dataset(X, Y), optimizer=lg.gd(0.4), steps=2
    )
    found = assert_responses_of_networks(
        run, lambda h: jnp.maximum(h, 0), lambda h: 1.0 * (h > 0), size=0.1, particles=2048
    )
    limit = lg.solve(run, rtol=3e-3)
    error = np.hypot(found.f_train_error, limit.f_train_error)
    off = np.abs(found.f_train - limit.f_train)
    assert off.max() < 0.03 * np.abs(limit.f_train).max()
    assert (off[1:] < 4 * error[1:] + 0.01).all()


@pytest.mark.slow
def test_responses_of_linear_streams():
    """One step of one sample, with q = κ = y = 1: A^l = A^(l−1)(1 + 1/L) + Φ^(l−1)/L exactly.

    For many blocks this is A(τ) = e^τ(τ + 1), the response at infinite depth.
    """
    blocks, data = 8, lg.Dataset(np.ones((1, 1)), np.ones(1))
    run = lg.Run(
        lg.residual_mlp(blocks, "linear"), lg.depth_mup(), data, optimizer=lg.gd(1.0), steps=1
    )
    found = lg.theories.response_functions(run, particles=256, replicates=2)
    expected = [1.0]
    for l in range(blocks):
        expected.append(expected[-1] * (1 + 1 / blocks) + (1 + 1 / blocks) ** l / blocks)
    np.testing.assert_allclose(found.A[:, 1, 0, 0, 0], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(lg.mlp(2, with_kinks(jnp.sign, [0.0], jumps=True))), "jumps"),
        (run_of(lg.residual_mlp(math.inf, "tanh")), "infinitely deep"),
    ],
)
def test_what_is_not_computed_is_named(run, words):
    with pytest.raises(NoTheory, match=words):
        lg.theories.response_functions(run)


def test_large_problems_are_refused():
    with pytest.raises(InvalidInput, match="at most 1024"):
        lg.theories.response_functions(run_of(lg.mlp(2, "tanh"), steps=600))
    with pytest.raises(InvalidInput, match="layers of a residual stream"):
        lg.theories.response_functions(run_of(lg.residual_mlp(40, "tanh"), steps=15))
    with pytest.raises(InvalidInput, match="replicates: wanted an integer ≥ 2"):
        lg.theories.response_functions(run_of(lg.mlp(2, "tanh")), replicates=1)
