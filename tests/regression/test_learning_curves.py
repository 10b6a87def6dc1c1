"""Learning curves against exact cases, populations in closed form, and regression done in fact."""

import warnings
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import brentq
from sklearn.datasets import load_breast_cancer, load_digits

import largen as lg
from largen.errors import InvalidInput, RepeatedSamples
from largen.regression.learning_curves import blocks
from largen.regression.learning_curves.blocks import ratios
from largen.regression.learning_curves.extrapolation import power_law
from largen.regression.learning_curves.leave_one_out import generalised
from largen.regression.learning_curves.mean_squares import at_sizes, contour, mean_squares
from largen.regression.learning_curves.pool import pool_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5))
Y = np.stack([np.sin(X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3] ** 2], axis=1)
NET = lg.mlp(1, "relu", bias_std=0.5)
K = lg.ntk_kernel(NET, X)
MODES = 300
VALUES = np.arange(1, MODES + 1.0) ** -1.5
TARGET = np.arange(1, MODES + 1.0) ** -0.8  # v_i
SIGMA2 = 0.05


def population(n, ridge, values=VALUES, power=TARGET**2, noise=SIGMA2):
    """Bordelon, Canatar and Pehlevan (2020) as printed."""

    def left(log):
        return np.sum(values / (values + np.exp(log))) + ridge / np.exp(log) - n

    kappa = np.exp(brentq(left, -40, 20))
    unlearned = kappa / (values + kappa)
    return (np.sum(power * unlearned**2) + noise) / (1 - np.sum((1 - unlearned) ** 2) / n)


def gaussian_pool(seed, samples):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((samples, MODES))
    y = features @ TARGET + np.sqrt(SIGMA2) * rng.standard_normal(samples)
    return (features * VALUES) @ features.T, y


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_leave_one_out_is_that_of_refits(ridge):
    def without(i):
        rest = np.delete(np.arange(60), i)
        A = K[np.ix_(rest, rest)] + ridge * np.eye(59)
        return Y[i] - K[i, rest] @ np.linalg.solve(A, Y[rest])

    want = np.mean([without(i) ** 2 for i in range(60)], axis=0)
    found = lg.regression.learning_curve(K, y=Y, sizes=[59], ridge=ridge).data
    np.testing.assert_allclose(found["leave_one_out"], want, rtol=1e-10)
    A = np.linalg.inv(K + ridge * np.eye(60))
    of_mean = np.mean((A @ Y) ** 2, axis=0) / np.mean(np.diag(A)) ** 2
    np.testing.assert_allclose(found["cross_validation"], of_mean, rtol=1e-9)


@pytest.mark.parametrize("twin", [-1.0, 1.0, 2.0, 0.0])
def test_leave_one_out_of_samples_that_are_not_told_apart(twin):
    """Without a ridge it is the limit of small ones, as the others may be singular with twins."""
    x = np.random.default_rng(1).standard_normal((5, 3))
    x, y = np.concatenate([x, twin * x[:1]]), np.arange(6.0)
    kernel = lg.nngp_kernel(lg.mlp(1, "erf", bias_std=0.0 if twin < 1 else 0.3), x)
    want = []
    for i in range(6):
        rest = np.arange(6) != i
        small = np.linalg.inv(kernel[np.ix_(rest, rest)] + 1e-9 * np.eye(5))
        want.append((kernel[i, rest] @ small @ y[rest] - y[i]) ** 2)
    found = lg.regression.learning_curve(kernel, y=y, sizes=[2]).to_xarray()
    np.testing.assert_allclose(found["leave_one_out"], np.mean(want), rtol=1e-5)


def test_all_but_one_sample_is_leave_one_out():
    """With n = M the effective ridge is the ridge itself, and the curve goes there linearly."""
    M = 60
    found = lg.regression.learning_curve(K, y=Y, sizes=[M - 2, M - 1], ridge=0.2)
    at_all = 2 * found.mse_test[1] - found.mse_test[0]
    np.testing.assert_allclose(at_all, found.data["leave_one_out"], rtol=3e-3)
    assert not np.allclose(at_all, found.data["cross_validation"], rtol=3e-2)


@pytest.mark.slow
def test_one_dimension_in_closed_form():
    """k(x, x′) = xx′ with x = ±1: shrinkage w²δ²/(n + δ)², and the noise of a mean."""
    rng = np.random.default_rng(1)
    x = rng.choice([-1.0, 1.0], 600)
    noise = rng.standard_normal(len(x))
    noise -= x * np.mean(x * noise)
    variance = np.sum(noise**2) / (len(x) - 1)
    y = 1.5 * x + noise
    sizes = np.array([20, 60, 200])
    for ridge, next_order in ((0.0, 1.2), (10.0, 8.0)):
        pool = pool_of(np.outer(x, x), y[:, None])
        found = at_sizes(pool, sizes, [ridge] * 3).outside[:, 0]
        shrunk = ridge / (sizes + ridge)
        want = (1.5 * shrunk) ** 2
        want = want + variance * (1 + sizes / (sizes + ridge) ** 2 - shrunk**2 / 600)
        np.testing.assert_array_less(np.abs(found / want - 1), next_order / sizes**2)


def test_targets_in_the_span_of_few_modes_are_learned_without_noise():
    features = RNG.standard_normal((80, 4))
    y = features @ np.ones(4)
    found = lg.regression.learning_curve(features @ features.T, y=y, sizes=[8, 20, 60])
    np.testing.assert_allclose(found.mse_test, 0, atol=1e-20)
    assert lg.regression.learning_curve(features @ features.T, y=y, sizes=[2]).mse_test[0] > 1


def test_long_times_are_small_ridges_and_short_ones_leave_all():
    found = lg.regression.learning_curve(
        K, y=Y, sizes=[10, 30, 50], time=[1e-9, 1e12, np.inf], ridge=0.1
    )
    np.testing.assert_allclose(found.mse_test[1], found.mse_test[2], rtol=1e-9)
    np.testing.assert_allclose(found.mse_train[1], found.mse_train[2], rtol=1e-9)
    left = np.broadcast_to(np.mean(Y**2, axis=0), (3, 2))
    np.testing.assert_allclose(found.mse_test[0], left, rtol=3e-2)
    free = lg.regression.learning_curve(K, y=Y, sizes=[10, 30], time=1e11).mse_test
    small = lg.regression.learning_curve(K, y=Y, sizes=[10, 30], ridge=1e-11).mse_test
    np.testing.assert_allclose(free, small, rtol=1e-6)


def test_the_contour_inverts_known_transforms():
    at, weights = contour(1.7)
    assert 2 * np.sum(weights).real == pytest.approx(1, abs=1e-12)
    left = 2 * np.sum(weights * at / (at + 0.4)).real
    assert left == pytest.approx(np.exp(-0.4 * 1.7), abs=1e-11)
    pool = pool_of(K, Y)
    coarse, fine = (mean_squares(pool, 30, 0.0, 3.0, nodes).outside for nodes in (14, 20))
    np.testing.assert_allclose(coarse, fine, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("ridge", [0.02, 3.0])
def test_pools_of_a_population_agree_on_its_curve(ridge):
    sizes = [40, 80, 140]
    curves = np.array(
        [lg.regression.learning_curve(*_called(seed, 300), sizes=sizes, ridge=ridge).mse_test
         for seed in range(8)]
    )  # fmt: skip
    mean, error = curves.mean(0), curves.std(0, ddof=1) / np.sqrt(8)
    want = np.array([population(n, ridge) for n in sizes])
    assert (np.abs(mean / want - 1) < 0.015 + 2 * error / want).all()
    said = lg.regression.learning_curve(*_called(0, 300), sizes=sizes, ridge=ridge).data[
        "mse_test_error"
    ]
    assert (np.abs(np.log(said.values / curves.std(0, ddof=1))) < np.log(2.5)).all()


def _called(seed, samples):
    kernel, y = gaussian_pool(seed, samples)
    return kernel, None, y


@pytest.mark.slow
def test_against_regression_on_subsets_of_gaussian_samples():
    kernel, y = gaussian_pool(3, 250)
    options = {"sizes": [60, 160], "time": [3.0, 100.0, np.inf], "measure": 60, "noise": 0.1}
    for ridge in (0.0, 1.0):
        found = lg.regression.learning_curve(kernel, y=y, ridge=ridge, **options).data
        off = np.abs(found["mse_test"] - found["measured_test"])
        room = 0.015 * found["measured_test"] + 3 * found["measured_test_error"]
        assert bool((off < room).all())
        off = np.abs(found["mse_train"] - found["measured_train"])
        room = 0.03 * found["measured_train"] + 3 * found["measured_train_error"] + 1e-4
        assert bool((off < room).all())


def test_samples_that_differ_are_told_from_equal_ones():
    """In three dimensions kernels' leverages differ, where the equation for equal samples fails."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 3))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    kernel = lg.ntk_kernel(NET, x)
    found = lg.regression.learning_curve(kernel, y=y, sizes=[100], measure=100).data.isel(size=0)
    mean, error = float(found["measured_test"]), float(found["measured_test_error"])
    assert abs(float(found["mse_test"]) - mean) < 0.1 * mean + 2 * error
    pool = pool_of(kernel, y[:, None])
    printed = population(100, 0.0, pool.values / 200, pool.amplitudes[:, 0] ** 2 / 200, 0.0)
    assert mean - printed > 6 * error
    assert generalised(pool, 0.0)[0] < 0.3 * float(found["leave_one_out"])


@pytest.mark.parametrize(("ridge", "time"), [(0.0, np.inf), (0.2, np.inf), (0.1, 3.0), (0.0, 0.5)])
def test_blocks_have_the_mean_over_all_subsets(ridge, time):
    """Of all 120 choices of 3 samples out of 10, trained by the exponential of the kernel."""
    kernel, y, n = K[:10, :10] - 0.3 * np.diag(np.linspace(0, 1, 10)), Y[:10], 3
    kernel = kernel @ kernel
    outside, train = [], []
    for inside in map(list, combinations(range(10), n)):
        others = [i for i in range(10) if i not in inside]
        system = kernel[np.ix_(inside, inside)] + ridge * np.eye(n)
        learned = np.eye(n) - (0 if np.isinf(time) else expm(-system * time / n))
        weights = np.linalg.solve(system, learned) @ y[inside]
        outside.append(np.mean((y[others] - kernel[np.ix_(others, inside)] @ weights) ** 2, axis=0))
        train.append(np.mean((y[inside] - kernel[np.ix_(inside, inside)] @ weights) ** 2, axis=0))
    squares = blocks._squares(
        kernel, y, 0.0, (n, 200), np.array([time]), ridge, np.random.default_rng(0)
    )
    error = squares[:, 0, 0].std(0, ddof=1) / np.sqrt(len(squares))
    assert (np.abs(squares[:, 0, 0].mean(0) - np.mean(outside, axis=0)) < 3.5 * error).all()
    pool, rng = pool_of(kernel, y), np.random.default_rng(0)
    found = ratios(pool, kernel, y, [n], np.array([time]), ridge, rng)
    common = mean_squares(pool, n, ridge, time).outside
    off = np.abs(found.at([n], 0).outside[0] * common - np.mean(outside, axis=0))
    assert (off < 3.5 * error).all()
    assert (np.abs(np.log(found.errors([n])[0, 0] * np.mean(outside, axis=0) / error)) < 0.5).all()
    assert (found.at([9], 0).outside != 1).all()
    assert (found.at([10], 0).outside == 1).all()


def test_standardised_tables_have_samples_that_differ():
    """Breast cancer: a common effective ridge is 20 % low, in samples and in time."""
    x, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))[:300]
    x, y = (x[rows] - x.mean(0)) / x.std(0), 2.0 * y[rows] - 1
    kernel = lg.ntk_kernel(lg.mlp(1, "tanh", bias_std=0.3), x)
    times = np.array([3000, np.inf]) * 300 / np.linalg.eigvalsh(kernel)[-1]
    found = lg.regression.learning_curve(kernel, y=y, sizes=[50, 100], time=times, measure=150).data
    off = np.abs(found["mse_test"] / found["measured_test"] - 1)
    error = found["measured_test_error"] / found["measured_test"]
    assert bool((off < 0.05 + 2 * error).all())
    assert error.max() < 0.03
    pool = pool_of(kernel, y[:, None])
    common = [[mean_squares(pool, n, 0.0, t).outside[0] for n in (50, 100)] for t in times]
    assert bool((common / found["measured_test"] < 0.9).all())


def test_samples_with_a_twin_are_counted():
    """A sample whose twin is in the training set is known: errors of equal samples are too low."""
    x = np.random.default_rng(3).standard_normal((120, 4))
    kernel, y = lg.ntk_kernel(NET, x), np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    twice = np.tile(np.arange(120), 2)
    kernel, y = kernel[np.ix_(twice, twice)], y[twice]
    found = lg.regression.learning_curve(kernel, y=y, sizes=[40, 80], measure=100).data
    off = np.abs(found["mse_test"] / found["measured_test"] - 1)
    assert bool((off < 0.03 + 3 * found["measured_test_error"] / found["measured_test"]).all())
    pool = pool_of(kernel, y[:, None])
    common = mean_squares(pool, 80, 1e-9).outside[0]
    assert common < 0.85 * float(found["measured_test"][1])


@cache
def digits():
    x, labels = load_digits(return_X_y=True)
    x = x - x.mean(0)
    kernel = lg.ntk_kernel(lg.mlp(2, "relu", weight_std=2**0.5), x / np.sqrt(np.mean(x**2)))
    return kernel, np.where(labels > 4, 1.0, -1.0)


@pytest.mark.slow
def test_digits_within_five_percent_up_to_a_third_of_the_pool():
    kernel, y = digits()
    unit = len(y) / np.linalg.eigvalsh(kernel)[-1]
    for sizes, draws in (([50, 100], 80), ([200, 599], 10)):
        times = unit * np.array([10, 100, np.inf])
        found = lg.regression.learning_curve(
            kernel, y=y, sizes=sizes, time=times, measure=draws
        ).data
        ratio = found["mse_test"] / found["measured_test"]
        assert np.abs(ratio - 1).max() < 0.05


@pytest.mark.slow
def test_extrapolation_reaches_three_times_the_samples():
    kernel, y = digits()
    given = np.random.default_rng(0).permutation(len(y))[:400]
    found = lg.regression.learning_curve(
        kernel[np.ix_(given, given)], y=y[given], sizes=[399, 800, 1300]
    )
    assert found.extrapolated_from == 400
    known = lg.regression.learning_curve(kernel, y=y, sizes=[399, 800, 1300])
    error = np.hypot(found.data["mse_test_error"], known.data["mse_test_error"])
    assert (np.abs(found.mse_test - known.mse_test) < 2.5 * error.values).all()
    ratio = found.mse_test / known.mse_test  # at 399 already that of these 400 samples
    assert (np.abs(ratio / ratio[0] - 1) < 0.35).all()
    assert (error.values < 0.7 * known.mse_test).all()
    assert np.isnan(found.mse_train).tolist() == [False, True, True]
    assert "extrapolated" in str(found)


def test_power_laws_are_found():
    sizes = [20, 40, 80, 160]
    curve = 0.3 + 2 * np.array(sizes) ** -0.8
    law = power_law(sizes, np.stack([curve, 7 * curve], axis=1))
    np.testing.assert_allclose(law.floor, [0.3, 2.1], rtol=1e-6)
    np.testing.assert_allclose(law.decay, 0.8, rtol=1e-6)
    np.testing.assert_allclose(law.at(1000)[0], 0.3 + 2 * 1000**-0.8, rtol=1e-6)


def test_networks_and_their_kernels_are_the_same():
    for kind, of in (("ntk", lg.ntk_kernel), ("nngp", lg.nngp_kernel)):
        found = lg.regression.learning_curve(NET, X, Y, sizes=[20, 40], kernel=kind, ridge=0.1)
        given = lg.regression.learning_curve(of(NET, X), y=Y, sizes=[40, 20], ridge=0.1)
        np.testing.assert_allclose(found.mse_test, given.mse_test, rtol=1e-9)
    one = lg.regression.learning_curve(NET, X, Y[:, 1], sizes=[20, 40], kernel="nngp", ridge=0.1)
    np.testing.assert_allclose(one.mse_test, found.mse_test[:, 1], rtol=1e-9)
    data = found.data
    np.testing.assert_allclose(data["power"].sum("mode"), np.mean(Y**2, axis=0))
    np.testing.assert_allclose(data["alignment"].isel(mode=-1), 1)
    assert (np.diff(data["eigenvalue"]) <= 0).all()


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("y: wanted the targets", {"y": None}),
        ("x: wanted the samples", {"x": None}),
        ("sizes: wanted different", {"sizes": [3, 3]}),
        ("sizes: wanted at least one", {"sizes": []}),
        ("sizes: wanted an integer ≥ 1", {"sizes": [0]}),
        ("time: wanted", {"time": "auto"}),
        ("time: wanted", {"time": [1.0, -1.0]}),
        ("kernel: 'rbf' is not known", {"kernel": "rbf"}),
        ("ridge: wanted", {"ridge": -1.0}),
        ("net: wanted a network .* and no x", {"net": K}),
        ("positive semidefinite", {"net": -K, "x": None}),
        ("outputs are coupled", {"net": K[:, :, None, None], "x": None}),
    ],
)
def test_wrong_arguments(message, arguments):
    with pytest.raises(InvalidInput, match=message):
        lg.regression.learning_curve(**{"net": NET, "x": X, "y": Y, "sizes": [20], **arguments})


def test_targets_that_are_zero_have_no_error():
    assert not lg.regression.learning_curve(NET, X, np.zeros(60)).mse_test.any()


def test_names_of_classes_are_refused_with_what_to_pass():
    names = np.where(Y[:, 0] > 0, "cat", "dog")
    with pytest.raises(InvalidInput, match="y: wanted numbers, got names of classes") as raised:
        lg.regression.learning_curve(NET, X, names)
    advice = str(raised.value).split(" is ", 1)[1].rstrip(".")
    classes = eval(advice, {"np": np, "y": names})
    found = lg.regression.learning_curve(NET, X, classes, sizes=[30], ridge=0.1)
    assert found.mse_test.shape == (1, 2)


def test_repeated_samples_are_said():
    twice = np.concatenate([X[:30], X[:30]])
    with pytest.warns(RepeatedSamples, match="30 of 60 samples are repeated"):
        lg.regression.learning_curve(NET, twice, Y, sizes=[20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lg.regression.learning_curve(NET, X, Y, sizes=[20])


def test_few_samples_are_not_extrapolated():
    with pytest.raises(InvalidInput, match="sizes: wanted numbers below 10"):
        lg.regression.learning_curve(NET, X[:10], Y[:10], sizes=[5, 10])
    found = lg.regression.learning_curve(NET, X[:10], Y[:10])
    assert found.sizes[-1] == 9
    assert "mse_test_error" not in found.data
    assert (
        "measured_test_error" not in lg.regression.learning_curve(K, y=Y, sizes=[9], measure=1).data
    )


@pytest.mark.parametrize("time", [[1.0, [2.0, 3.0]], (1.0, [2.0])])
def test_ragged_times_are_refused_by_name(time):
    with pytest.raises(InvalidInput, match="time: "):
        lg.regression.flow_posterior_from_kernel(np.eye(3), np.ones(3), time=time)
    with pytest.raises(InvalidInput, match="time: "):
        lg.regression.learning_curve(np.eye(9) + 0.1, y=np.arange(9.0), sizes=[3], time=time)
