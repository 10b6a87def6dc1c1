"""Deep linear networks against the closed equations."""

from functools import partial

import numpy as np
import pytest
from tests.theories.mean_field.deep import closed_equations

import largen as lg

solve = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6))
Y = np.array([1.0, -1.0, 1.0, 0.5])
STEPS = 9


def limit(layers, solver=solve, **options):
    run = lg.Run(
        lg.mlp(layers, "linear"),
        lg.mean_field(1.2),
        lg.Dataset(X, Y),
        optimizer=lg.gd(0.6),
        steps=STEPS,
    )
    return solver(run, record_at=[0, 4, STEPS], **options)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_closed_equations(layers):
    f, h, g = closed_equations.solve(X @ X.T / 6, Y, layers, 1.2, 0.6, STEPS + 1)
    found = limit(layers)
    assert np.abs(Y - found.f_train[-1]).max() < 0.6 * np.abs(Y).max()
    np.testing.assert_allclose(found.f_train, f, atol=1e-11)
    np.testing.assert_allclose(found.feature_kernel, h[[0, 4, STEPS]], atol=1e-8)
    np.testing.assert_allclose(found.gradient_kernel, g[[0, 4, STEPS]], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3])
def test_kernels_between_two_times(layers):
    """H^l(t, s) and G^l(t, s) by the closed equations, which have all times at once."""
    _, (h, g, _, _) = closed_equations.matrices(X @ X.T / 6, Y, layers, 1.2, 0.6, STEPS + 1)
    pairs = [(STEPS, 0), (2, 7), (4, 4), (5, 2)]
    solver = lg.solve if layers == 1 else solve
    found = limit(layers, solver=solver, record_pairs=pairs)
    size = (STEPS + 1, 4, STEPS + 1, 4)
    for name, kernels in (("feature", h), ("gradient", g)):
        ours = getattr(found, f"{name}_kernel_pair")
        for l in range(layers):
            kernel = kernels[l + 1].reshape(size)
            exact = [kernel[t, :, s] for t, s in pairs]
            np.testing.assert_allclose(ours[:, l], exact, atol=1e-8)
    assert found.pair_step.tolist() == [t for t, _ in pairs]
    assert found.to_xarray().feature_kernel_pair.dims == ("pair", "layer", "sample", "sample_2")


def test_printed_base_case_is_refuted():
    """The notes' A^(1) = 0 is off by a tenth and more; A^(0) = 0 is right."""
    f, *_ = closed_equations.solve(X @ X.T / 6, Y, 3, 1.2, 0.6, STEPS + 1, drop_first_response=True)
    found = limit(3).f_train
    assert np.linalg.norm(f - found) > 0.1 * np.linalg.norm(Y - found)


@pytest.mark.slow
def test_outputs_move_by_the_deep_tangent_kernel():
    """df/dt = (η₀/P)KΔ with K of all layers; the notes' (65) has that of two layers in its place.

    Without Φᴸ, as Bordelon et al. print their (144), it is off by a third.
    """
    rate, at = 0.002, 250
    kernel = X @ X.T / 6
    found = lg.theories.solve_deep_linear(
        kernel, Y, hidden_layers=3, lr=rate, steps=at + 1, record_at=[at]
    )
    slope = (found.f_train[at + 1] - found.f_train[at - 1]) / (2 * rate)
    delta = (Y - found.f_train[at]) / len(Y)
    phi, g, k = found.feature_kernel[0], found.gradient_kernel[0], found.ntk[0]
    np.testing.assert_allclose(k @ delta, slope, rtol=2e-3, atol=1e-3 * np.abs(slope).max())
    for printed in (phi[-1] + g[-1] * phi[-2], k - phi[-1]):
        assert np.linalg.norm(printed @ delta - slope) > 0.15 * np.linalg.norm(slope)
