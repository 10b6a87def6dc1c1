"""Response functions: closed equations, outputs that follow from them, wide networks."""

import numpy as np
import pytest
from tests.theories.mean_field.deep import closed_equations

import largen as lg
from largen.errors import InvalidInput, NoTheory

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
    np.testing.assert_allclose(found[0].A, found[1].A, atol=1e-12)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(lg.mlp(2, "relu")), "kink"),
        (run_of(lg.residual_mlp(2, "tanh")), "residual"),
        (run_of(lg.mlp(2, "tanh"), momentum=0.5), "plain gradient descent"),
    ],
)
def test_what_is_not_computed_is_named(run, words):
    with pytest.raises(NoTheory, match=words):
        lg.theories.response_functions(run)


def test_large_problems_are_refused():
    with pytest.raises(InvalidInput, match="at most 1024"):
        lg.theories.response_functions(run_of(lg.mlp(2, "tanh"), steps=600))
    with pytest.raises(InvalidInput, match="replicates: wanted an integer ≥ 2"):
        lg.theories.response_functions(run_of(lg.mlp(2, "tanh")), replicates=1)
