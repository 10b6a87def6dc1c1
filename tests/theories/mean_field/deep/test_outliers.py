"""Outliers of trained hidden weights: closed forms, closed equations, and wide networks."""

import numpy as np
import pytest
from scipy import stats

import largen as lg
from largen.errors import InvalidInput
from largen.theories.mean_field.deep.sweep.outliers import Small, outliers

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 6)), np.array([1.0, -1.0, 1.0, -1.0])
AT = (0, 5, 15)


def of(change, response=None, back=None, rows=1.0, columns=1.0):
    none = np.zeros_like(change)
    one = np.eye(len(change))[:, :1], np.eye(change.shape[1])[:, :1]
    response, back = (none if each is None else each for each in (response, back))
    return outliers(Small(response, back, change, one[1], one[0], rows, columns))


@pytest.mark.parametrize("rows", [1.0, 0.4, 2.5])
def test_a_change_that_does_not_know_the_matrix(rows):
    """Benaych-Georges and Nadakuditi: σ² = (1 + θ²)(r + θ²)/θ² if θ⁴ > r, and its overlaps."""
    theta = np.array([2.2, 1.7, 0.9 * rows**0.25])
    found, edge = of(np.diag(theta), rows=rows)
    theta = theta[:2]
    assert edge == 1 + rows**0.5
    np.testing.assert_allclose(found[:, 0] ** 2, (1 + theta**2) * (rows + theta**2) / theta**2)
    right = 1 - (rows + theta[0] ** 2) / (theta[0] ** 2 * (theta[0] ** 2 + 1))
    left = 1 - rows * (1 + theta[0] ** 2) / (theta[0] ** 2 * (theta[0] ** 2 + rows))
    np.testing.assert_allclose(found[0, 1:] ** 2, [right, left], rtol=1e-7)


def test_matrices_whose_change_knows_them():
    """X + uvᵀ with v = .9 e + .8 Xᵀu: uᵀXXᵀu = 1, against Gaussian matrices of width 1500."""
    n, theta, draws = 1500, 1.1, 4
    rng, found = np.random.default_rng(1), []
    for _ in range(draws):
        x = rng.standard_normal((n, n)) / n**0.5
        u, e = (v / np.linalg.norm(v) for v in rng.standard_normal((2, n)))
        x += theta * np.outer(u, 0.9 * e + 0.8 * x.T @ u)
        v = rng.standard_normal(n)
        for _ in range(60):
            v = x.T @ (x @ v)
            v /= np.linalg.norm(v)
        found.append(np.linalg.norm(x @ v))
    # u is a left direction with the image Xᵀu, which is a right direction: B̂ = 0, Â = (0, 1).
    values, _ = of(theta * np.array([[0.9, 0.8]]), response=np.array([[0.0, 1.0]]))
    error = np.std(found, ddof=1) / draws**0.5
    assert abs(stats.t.cdf((np.mean(found) - values[0, 0]) / error, draws - 1) - 0.5) < 0.499
    assert abs(np.mean(found) - of(theta * np.array([[0.9, 0.8]]))[0][0, 0]) > 10 * error


@pytest.mark.slow
def test_no_outliers_without_training_or_feature_learning():
    run = run_of(lg.mlp(2, "linear"), lg.gd(0.1), gamma=0.02)
    limit = lg.solve(run, record=["singular_values"])
    assert limit.weight_outliers(2).sizes["outlier"] == 0
    np.testing.assert_array_equal(limit.singular_values, 2.0)


def run_of(net, optimizer, gamma=2.0, y=Y, loss="mse"):
    data = lg.Dataset(X.astype(np.float32), y if y.dtype.kind == "i" else y.astype(np.float32))
    return lg.Run(net, lg.mean_field(gamma=gamma), data, loss, optimizer, AT[-1])


@pytest.mark.slow
def test_closed_equations_and_sweep_agree():
    run = run_of(lg.mlp(2, "linear"), lg.gd(0.1), gamma=4.0)
    exact, sampled = (
        lg.solve(
            run,
            theory=lg.theories.DeepMeanField(
                method=method, record=["singular_values"], record_at=AT, rtol=1e-3
            ),
        )
        for method in ("closed", "sweep")
    )
    assert exact.singular_values[-1, :, 0].min() > 2.03
    off = np.abs(sampled.singular_values - exact.singular_values)
    assert (off <= 5 * sampled.singular_values_error + 1e-6).all()
    np.testing.assert_allclose(sampled.right_overlap, exact.right_overlap, atol=2e-3)


@pytest.mark.slow
def test_relu_is_followed_in_directions_also_where_stored_matrices_are_quicker():
    run = run_of(lg.mlp(2, "relu", weight_std=2**0.5), lg.gd(0.2), gamma=3.0)
    limit = lg.solve(run, record=["singular_values"], record_at=AT, particles=64, replicates=2)
    assert limit.weight_outliers(2)["value"].values[-1, 0] > 1.02 * 2 * 2**0.5


CASES = {
    "tanh": (lg.mlp(2, "tanh"), lg.gd(0.3), 4.0, Y, "mse"),
    "ratios, decay, momentum, classes": (
        lg.mlp(3, "erf", width_ratios=(1 / 2, 2, 1), weight_std=1.4, bias_std=0.3),
        lg.gd(0.3, momentum=0.5, weight_decay=0.02),
        3.0,
        np.array([0, 1, 2, 1]),
        "softmax",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_wide_networks_have_them(name):
    net, optimizer, gamma, y, loss = CASES[name]
    run, seeds = run_of(net, optimizer, gamma, y, loss), 8
    limit = lg.solve(run, record=["singular_values"], record_at=AT, particles=1024, replicates=4)
    nets = lg.train(run, 384, seeds, key=1, record=["singular_values"], record_at=AT)
    clear = limit.singular_values > 1.05 * limit.bulk_edge[:, :, None]
    assert clear.sum() >= 2
    theirs = nets.singular_values.astype(float)
    error = np.hypot(theirs.std(0, ddof=1) / seeds**0.5, limit.singular_values_error)
    z = ((theirs.mean(0) - limit.singular_values) / error)[clear]
    assert np.abs(z).max() < 4.5
    change = np.abs(limit.singular_values / limit.bulk_edge[:, :, None] - 1)[clear]
    assert (error / limit.singular_values)[clear].max() < 0.2 * change.min()


def test_refusals():
    run = run_of(lg.mlp(2, "relu"), lg.gd(0.1))
    with pytest.raises(InvalidInput, match="method='dense'"):
        lg.solve(run, theory=lg.theories.DeepMeanField(method="dense", record="singular_values"))
    with pytest.raises(InvalidInput, match="no closed equation of the whole Hessian"):
        lg.solve(run, record="sharpness")
    one = run_of(lg.mlp(1, "erf"), lg.gd(0.1))
    with pytest.raises(InvalidInput, match="hidden weights"):
        lg.solve(one, record="singular_values")
    with pytest.raises(InvalidInput, match="no singular values of a limit"):
        lg.solve(one).weight_outliers(2)
