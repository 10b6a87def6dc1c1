"""Networks drawn without weights: exact moments, dense networks, shifts, martingale differences."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

X = np.random.default_rng(3).normal(size=(2, 4))


@pytest.mark.slow
def test_moments_are_the_exact_ones_of_relu():
    net, widths, draws = lg.mlp(3, "relu", weight_std=2**0.5), (6, 9, 7), 40_000
    exact = lg.finite_width.homogeneous_moments(net, X[:1], width=widths)
    drawn = lg.finite_width.sample_tangent_kernels(net, X[:1], width=widths, draws=draws, key=0)
    tangent = drawn.ntk[:, 0, 0]
    for observed, wanted in (
        (tangent, exact.ntk),
        (tangent**2, exact.ntk_variance + exact.ntk**2),
        (drawn.outputs[:, 0] ** 2, exact.kernel),
    ):
        assert abs(observed.mean() - wanted) < 3.5 * observed.std() / np.sqrt(draws)
    mean, error = drawn.estimate(tangent)
    assert abs(mean - exact.ntk) < 3.5 * error
    assert error < 0.5 * tangent.std() / np.sqrt(draws)


@pytest.mark.slow
def test_moments_are_those_of_dense_networks():
    # Two hidden layers of tanh with biases, and their gradients, written out.
    rng, draws, n, std, bias = np.random.default_rng(0), 40_000, (3, 4), 1.3, 0.4
    first = rng.normal(size=(draws, n[0], 4)) * std / 2
    z1 = np.einsum("rni,pi->rnp", first, X) + bias * rng.normal(size=(draws, n[0], 1))
    second = rng.normal(size=(draws, n[1], n[0])) * std / np.sqrt(n[0])
    z2 = second @ np.tanh(z1) + bias * rng.normal(size=(draws, n[1], 1))
    last = rng.normal(size=(draws, n[1], 1)) * std / np.sqrt(n[1])
    g2 = last * (1 - np.tanh(z2) ** 2)
    g1 = np.einsum("rmn,rmp->rnp", second, g2) * (1 - np.tanh(z1) ** 2)
    outputs = np.einsum("rn,rnp->rp", last[..., 0], np.tanh(z2))
    outputs = outputs + bias * rng.normal(size=(draws, 1))

    def squares(G):
        return np.einsum("rna,rnb->rab", G, G)

    S = [bias**2 + std**2 * X @ X.T / 4]
    S += [bias**2 + std**2 / m * squares(np.tanh(z)) for m, z in zip(n, (z1, z2), strict=True)]
    tangent = S[2] + S[1] * squares(g2) + S[0] * squares(g1)
    net = lg.mlp(2, "tanh", weight_std=std, bias_std=bias)
    drawn = lg.finite_width.sample_tangent_kernels(net, X, width=n, draws=draws, key=1)

    def moments(outputs, S, tangent):
        i, j = np.triu_indices(2)
        products = outputs[:, i] * outputs[:, j]
        own, kernel = tangent[:, i, j], S[:, i, j]
        crossed = [a[:, :, None] * own[:, None] for a in (products, kernel, own)]
        return np.concatenate([own, products, *[c.reshape(len(own), -1) for c in crossed]], axis=1)

    dense = moments(outputs, S[2], tangent)
    seen = moments(drawn.outputs, drawn.kernel, drawn.ntk)
    error = np.hypot(dense.std(axis=0), seen.std(axis=0)) / np.sqrt(draws)
    assert np.all(np.abs(dense.mean(axis=0) - seen.mean(axis=0)) < 4 * error)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "std", "bias"), [("tanh", 1.2, 0.3), ("gelu", 1.4, 0.0)])
def test_shifts_at_order_one_over_width(name, std, bias):
    net, draws = lg.mlp(3, name, weight_std=std, bias_std=bias), 20_000
    distances = []
    for n in (40, 160):
        theory = lg.finite_width.width_corrections(net, X, width=n)
        drawn = lg.finite_width.sample_tangent_kernels(net, X, width=n, draws=draws, key=n)
        z = drawn.controls.mean(axis=0) / drawn.controls.std(axis=0) * np.sqrt(draws)
        assert np.abs(z).max() < 4.5  # of 60
        mean, error = drawn.estimate(drawn.ntk)
        plain = drawn.ntk.std(axis=0) / np.sqrt(draws)
        # Of products of two inputs, means of polynomials alone are known in closed form.
        assert np.all(error < 0.6 * plain)
        assert np.all(np.diagonal(error) < 0.3 * np.diagonal(plain))
        left = np.abs(theory.ntk_shift) * 3 * np.abs(theory.next_order).max()
        assert np.all(np.abs(mean - theory.ntk - theory.ntk_shift) < 4 * error + left)
        distances.append(np.abs(mean - theory.ntk - theory.ntk_shift).max() * n)
    assert distances[1] < max(distances[0] / 2, 8 * error.max() * n)


@pytest.mark.slow
def test_dead_and_repeated_inputs():
    same = lg.finite_width.sample_tangent_kernels(
        lg.mlp(2, "tanh"), X[[0, 0]], width=5, draws=100, key=0
    )
    assert np.allclose(same.ntk[:, 0, 0], same.ntk[:, 0, 1])
    net = lg.mlp(2, "relu", weight_std=2**0.5)
    dead = lg.finite_width.sample_tangent_kernels(net, X, width=2, draws=3000, key=0)
    assert np.isfinite(dead.ntk).all()
    assert np.isfinite(dead.controls).all()
    assert abs(np.mean(dead.kernel[:, 0, 0] == 0) - 7 / 16) < 0.04
    with pytest.raises(InvalidInput, match="too few"):
        same.estimate(same.ntk)
    with pytest.raises(InvalidInput, match="rows"):
        dead.estimate(np.ones(3))


@pytest.mark.slow
def test_heavy_tails_are_not_averaged():
    net = lg.mlp(8, "relu", weight_std=2**0.5)
    drawn = lg.finite_width.sample_tangent_kernels(net, X[:1], width=5, draws=20_000, key=0)
    # Its mean would come out as little more than half of E Θ², many standard errors away.
    with pytest.raises(NumericalFailure, match="heavy"):
        drawn.estimate(drawn.ntk**2)
    mean, error = drawn.estimate(np.log(drawn.kernel[:, 0, 0] + 1e-300))
    assert np.isfinite([mean, error]).all()
    assert repr(drawn).startswith("TangentSamples: 20000 networks")
    assert drawn.to_xarray()["ntk"].dims == ("draw", "input", "input_2")
