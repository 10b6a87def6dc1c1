"""Deep mean-field limits of layers of unequal widths."""

from functools import partial

import numpy as np
import pytest
from tests.theories.mean_field.deep import closed_equations

import largen as lg
from largen.errors import InvalidInput, NoTheory

solve = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6))
Y = np.array([1.0, -1.0, 1.0, 0.5])
STEPS = 9
RATIOS = (2, 1 / 2, 3 / 2)


def posed(activation, ratios, gamma=1.2, bias_std=0.0):
    net = lg.mlp(3, activation, bias_std=bias_std, width_ratios=ratios)
    data = lg.Dataset(X, Y)
    return lg.Run(net, lg.mean_field(gamma), data, optimizer=lg.gd(0.6), steps=STEPS)


@pytest.mark.slow
def test_closed_equations():
    """With means over a layer's own neurons, which the library takes over the unit of width."""
    at = [0, 4, STEPS]
    found = solve(posed("linear", RATIOS), record_at=at, record_pairs=[(STEPS, 4)])
    of = X @ X.T / 6, Y, 3, 1.2, 0.6, STEPS + 1
    f, h, g = closed_equations.solve(*of, ratios=RATIOS)
    np.testing.assert_allclose(found.f_train, f, atol=1e-11)
    np.testing.assert_allclose(found.feature_kernel, h[at], atol=1e-8)
    # Gˡ is N times the sum of squares of γ∂f/∂h over the layer.
    owned = g[at] * np.array(RATIOS)[:, None, None]
    np.testing.assert_allclose(found.gradient_kernel, owned, atol=1e-8)
    _, (full, _, _, _) = closed_equations.matrices(*of, ratios=RATIOS)
    pair = [h.reshape(STEPS + 1, 4, STEPS + 1, 4)[STEPS, :, 4] for h in full[1:4]]
    np.testing.assert_allclose(found.feature_kernel_pair[0], pair, atol=1e-8)
    equal, *_ = closed_equations.solve(*of)
    assert np.linalg.norm(f - equal) > 0.1 * np.linalg.norm(Y - f)


def test_one_ratio_for_all_is_another_unit_of_width():
    """rN neurons in all layers are the network of width rN, whose γ₀ is smaller by √r."""
    want = solve(posed("linear", (1, 1, 1), 1.2 / 3**0.5))
    got = solve(posed("linear", (3, 3, 3)))
    for name in ("f_train", "feature_kernel", "gradient_kernel", "ntk"):
        np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_kernels_at_initialisation():
    """Exact with any number of neurons; activations of neurons that are not there count nothing."""
    run = posed("cos", RATIOS, bias_std=0.3)
    limit = solve(run, record_at=[0], particles=128, replicates=2, rtol=1.0)
    np.testing.assert_allclose(limit.ntk[0], lg.ntk_kernel(run.net, X), rtol=1e-5)
    last = lg.nngp_kernel(run.net, X) - 0.3**2
    np.testing.assert_allclose(limit.feature_kernel[0, -1], last, rtol=0.05)


def test_wrong_input():
    run = posed("tanh", (1, 1 / 3, 1))
    with pytest.raises(InvalidInput, match="multiple of 3"):
        solve(run, particles=1024)
    with pytest.raises(InvalidInput, match="multiple of 6"):
        solve(run, particles=1023, method="dense")
    with pytest.raises(InvalidInput, match="at least 192 "):
        solve(run, particles=96)
    with pytest.raises(InvalidInput, match="at most the 100 "):
        solve(run, particles=300, sample_neurons=101)
    images = lg.Dataset(np.ones((2, 3, 1)), np.ones(2))
    net = lg.serial(lg.Conv((3,), width_ratio=2), lg.Dense(), lg.Flatten(), lg.Dense())
    with pytest.raises(NoTheory, match="convolutions has one width"):
        solve(lg.Run(net, lg.mean_field(), images, optimizer=lg.gd(0.1), steps=1))
    with pytest.raises(NoTheory, match="unequal widths"):
        lg.theories.response_functions(run)
