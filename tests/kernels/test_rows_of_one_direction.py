"""Rows of equal norms, on a grid, opposite to or multiples of one another: ordinary data."""

from itertools import combinations

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.kernels.references import _pair, quadrature_mlp_entry

import largen as lg

TIMES = np.linspace(0, 2 * np.pi, 7)
GAUSSIAN = np.random.default_rng(4).standard_normal((5, 3))
UNIT = GAUSSIAN / np.linalg.norm(GAUSSIAN, axis=1, keepdims=True)
ROWS = {
    "circle": np.stack([np.cos(TIMES), np.sin(TIMES)], 1),
    "norm 1": UNIT,
    "norm √d": UNIT * 3**0.5,
    "grid": np.linspace(-1, 1, 7)[:, None],
}


def relative(got, want):
    """The largest error over the roots of the diagonals."""
    root = np.sqrt(np.diagonal(want))
    return np.max(np.abs(got - want) / np.where(root > 0, np.outer(root, root), 1))


@pytest.mark.parametrize("name", ROWS)
def test_rows_whose_variances_coincide_in_some_layers(name):
    x, found = ROWS[name], lg.kernel(lg.mlp(3, "tanh"), ROWS[name])
    for i, j in [*combinations(range(0, len(x), 2), 2), (1, 1)]:
        if not (np.any(x[i]) and np.any(x[j])):
            continue
        want = quadrature_mlp_entry(np.tanh, lambda z: 1 / np.cosh(z) ** 2, x[i], x[j], 3, 1.0, 0.0)
        size = np.sqrt(found.nngp[i, i] * found.nngp[j, j])
        assert abs(found.nngp[i, j] - want[0]) < 1e-8 * size
        size = np.sqrt(found.ntk[i, i] * found.ntk[j, j])
        assert abs(found.ntk[i, j] - want[1]) < 1e-8 * size


@pytest.mark.slow
def test_two_normalisations():
    block = (lg.Dense(), lg.LayerNorm(), lg.Activation("tanh"))
    got = lg.nngp_kernel(lg.serial(*block, *block, lg.Dense()), GAUSSIAN)
    one = _pair(np.tanh, 1.0, 1.0, 1.0)
    for i, j in combinations(range(len(GAUSSIAN)), 2):
        a, b = GAUSSIAN[i], GAUSSIAN[j]
        c = a @ b / np.sqrt(a @ a * (b @ b))
        c = _pair(np.tanh, 1.0, c, 1.0) / one
        assert abs(got[i, j] - _pair(np.tanh, 1.0, c, 1.0)) < 1e-8 * got[i, i]


@pytest.mark.slow
@pytest.mark.parametrize("phi", ["sigmoid", "silu", "softplus"])
def test_every_entrance(phi):
    net, x = lg.mlp(2, phi, bias_std=0.3), ROWS["circle"][:-1]
    y = x[:, 0]
    posterior = lg.posterior(net, x, y, noise=1e-3)
    assert np.isfinite(posterior.predict(x)[0]).all()
    limit = lg.solve(lg.Run(net, lg.ntk(), lg.Dataset(x, y), optimizer=lg.gd(0.1), steps=4))
    assert np.isfinite(limit.f_train).all()
    assert np.isfinite(lg.NNGPRegressor(net, noise=1e-3).fit(x, y).predict(x)).all()


def exact(x, odd, even, hidden):
    """NNGP and NTK without biases of φ(x) = odd·x + even·|x| at 40 digits."""
    with mp.workdps(40):
        odd, even = mpf(odd), mpf(even)
        x = [[mpf(float(entry)) for entry in row] for row in x]
        covariance = np.array([[mp.fdot(a, b) / len(a) for a in x] for b in x])
        tangent = covariance
        for _ in range(hidden):
            root = [mp.sqrt(q) for q in np.diagonal(covariance)]
            size = np.outer(root, root)
            theta = np.vectorize(lambda c: mp.acos(max(min(c, mpf(1)), mpf(-1))))(covariance / size)
            np.fill_diagonal(theta, mpf(0))
            sizes = np.vectorize(lambda t: mp.sin(t) + (mp.pi / 2 - t) * mp.cos(t))(theta)
            slope = odd**2 + even**2 * (1 - 2 * theta / mp.pi)
            covariance = odd**2 * covariance + even**2 * 2 / mp.pi * size * sizes
            tangent = covariance + slope * tangent
        return covariance.astype(float), tangent.astype(float)


@pytest.mark.parametrize("hidden", [3, 10])
@pytest.mark.parametrize(
    ("phi", "odd", "even"),
    [("relu", "0.5", "0.5"), ("leaky_relu", "0.505", "0.495"), ("abs", "0", "1")],
)
def test_opposite_rows_and_multiples(phi, odd, even, hidden):
    some = np.random.default_rng(1).standard_normal((2, 40))
    for x in (np.concatenate([some, -some, 0.3 * some]), np.linspace(-1, 1, 6)[:, None]):
        found = lg.kernel(lg.mlp(hidden, phi), x)
        nngp, ntk = exact(x, odd, even, hidden)
        assert relative(found.nngp, nngp) < 1e-12
        assert relative(found.ntk, ntk) < 1e-12


def test_rows_that_are_nearly_opposite_keep_their_angle():
    x = np.array([[1.0, 0.0], [-1.0, 1e-6], [2.0, 1e-5], [-1.0, 3e-7]])
    found = lg.kernel(lg.mlp(3, "relu"), x)
    assert relative(found.ntk, exact(x, "0.5", "0.5", 3)[1]) < 1e-8


@pytest.mark.parametrize(
    "phi", ["relu", "tanh", pytest.param("elu", marks=pytest.mark.slow), "erf", "sin"]
)
def test_rows_of_zeros(phi):
    found = lg.kernel(lg.mlp(2, phi), np.zeros((3, 4)))
    assert not found.nngp.any()
    assert not found.ntk.any()


@pytest.mark.parametrize("norm", [lg.RMSNorm(), lg.LayerNorm()])
def test_a_row_of_zeros_behind_normalisation(norm):
    # Its factors 1/√ε must not meet what rounding leaves of its kernels with other rows.
    block = (lg.Dense(weight_std=2**0.5), norm, lg.Activation("relu"))
    x = np.concatenate([np.zeros((1, 3)), GAUSSIAN])
    net = lg.serial(*block * 3, lg.Dense())
    found, rest = lg.kernel(net, x), lg.kernel(net, GAUSSIAN)
    for K, L in zip(found, rest, strict=True):
        np.testing.assert_allclose(K[0], 0, atol=1e-15)
        np.testing.assert_allclose(K[1:, 1:], L, rtol=1e-12)


@pytest.mark.parametrize("columns", [1, 4])
def test_parallel_rows_behind_many_layers(columns):
    """Θ of rows r₁, r₂ of one direction is (L + 1) σ² r₁r₂, however their products are rounded."""
    rng = np.random.default_rng(0)
    net = lg.mlp(10, "relu", weight_std=np.sqrt(2))
    for _ in range(20):
        scale = 10 ** rng.uniform(-3, 3)
        x = scale * np.outer(np.abs(rng.standard_normal(6)), rng.standard_normal(columns))
        size = np.linalg.norm(x, axis=1) / np.sqrt(columns)
        np.testing.assert_allclose(lg.ntk_kernel(net, x), 22 * np.outer(size, size), rtol=1e-12)
