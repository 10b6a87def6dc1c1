"""Figures of the lecture notes: their equations in NumPy against theories, and claims."""

from dataclasses import replace

import numpy as np
import pytest

import largen as lg
from papers import figure, produce
from papers.lectures import equations, section_5, section_6

TIMES = np.linspace(0.0, 2.0, 9)


def test_deep_linear_equations_are_those_of_the_theory():
    """With A⁰ = 0 outputs are those of the closed equations, and with A¹ = 0 they are not."""
    kernel, y = np.array([[1.0, 0.3], [0.3, 0.8]]), np.array([1.0, -0.5])
    settings = {"gamma": 1.5, "lr": 0.1, "steps": 8}
    right = equations.deep_linear(kernel, y, layers=3, **settings)
    limit = lg.theories.solve_deep_linear(kernel, y, hidden_layers=3, **settings)
    np.testing.assert_allclose(right, limit.f_train, atol=1e-9)
    printed = equations.deep_linear(kernel, y, layers=3, without_first=True, **settings)
    assert np.abs(printed - right).max() > 0.05
    # One hidden layer has no A¹ in its equations, only in the output.
    shallow = equations.deep_linear(kernel, y, layers=1, **settings)
    limit = lg.theories.solve_deep_linear(kernel, y, hidden_layers=1, **settings)
    np.testing.assert_allclose(shallow, limit.f_train, atol=1e-9)


def test_equations_of_linear_networks_are_the_whitened_flow():
    y = np.array([1.2, -0.9, 0.0])
    exact = lg.theories.whitened_linear_flow(TIMES, y=1.5, gamma=2.0, samples=3)
    H, G, f = equations.linear_kernels(np.eye(3), y, 2.0, TIMES)
    np.testing.assert_allclose(f @ y / 1.5, exact.f, atol=1e-7)
    np.testing.assert_allclose(np.einsum("tij,i,j->t", H, y, y) / 2.25, G, atol=1e-7)
    np.testing.assert_allclose(G, exact.feature_kernel, atol=1e-7)
    right, printed = (
        equations.along_targets(1.5, 3, 2.0, TIMES, printed=each) for each in (False, True)
    )
    np.testing.assert_allclose(right, exact.f, atol=1e-7)
    assert np.abs(printed - right).max() > 0.05


def test_neurons_of_tanh_follow_the_mean_field():
    fine = np.linspace(0.0, 2.0, 161)
    found = equations.tanh_neurons(section_5.KERNEL, section_5.Y, 2.0, fine, 20_000)
    limit = lg.solve(section_5._shallow(), rtol=1e-2)
    np.testing.assert_allclose(found[::40], limit.f_train, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "printed"),
    [
        ("000-5", section_5.Settings(128, 48, 20_000), 3),
        ("000-6", section_6.Settings(128, 48), 2),
    ],
)
def test_what_is_printed_fails(name, settings, printed, tmp_path):
    done = produce(replace(figure(name), fast=settings), {}, tmp_path, fast=True)
    verdicts = {"as printed" in claim.says: [] for claim in done.claims}
    for claim in done.claims:
        verdicts["as printed" in claim.says].append(claim.agrees)
    assert verdicts[True] == [False] * printed
    assert False not in verdicts[False]
    assert all(path.stat().st_size for path in done.files)
