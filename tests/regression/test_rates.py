"""Learning rates and time scales against the dynamics that they are about."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NumericalFailure

RNG = np.random.default_rng(5)
X = RNG.standard_normal((12, 5))
DATA = lg.Dataset(X, RNG.standard_normal(12))
NET = lg.mlp(1, "erf", weight_std=1.4)
NTK = lg.ntk_kernel(NET, X)


def solve(**optimizer):
    run = lg.Run(NET, lg.ntk(), DATA, optimizer=lg.gd(**optimizer), steps=100)
    return lg.solve(run, std=False)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_descent_diverges_above_the_critical_rate_and_not_below(momentum):
    critical = lg.regression.critical_learning_rate(NTK, momentum=momentum)
    assert critical == pytest.approx(24 * (1 + momentum) / np.linalg.eigvalsh(NTK)[-1])
    assert solve(lr=0.99 * critical, momentum=momentum).status == "ok"
    with pytest.raises(NumericalFailure, match="critical learning rate"):
        solve(lr=1.01 * critical, momentum=momentum)


def test_optimal_rate_shrinks_the_worst_mode_fastest():
    optimal = lg.regression.optimal_learning_rate(NTK)
    values = np.linalg.eigvalsh(NTK)

    def worst(rate):
        return np.abs(1 - rate * values / 12).max()

    kappa = values[-1] / values[0]
    assert worst(optimal) == pytest.approx((kappa - 1) / (kappa + 1))
    assert worst(optimal) < min(worst(0.99 * optimal), worst(1.01 * optimal))
    assert optimal <= lg.regression.critical_learning_rate(NTK)


def test_residuals_fall_to_one_in_e_after_a_modes_time():
    times, modes = lg.regression.relaxation_times(NTK)
    assert (np.diff(times) > 0).all()
    run = lg.Run(NET, lg.ntk(), DATA, optimizer=lg.gradient_flow(), times=[0.0, *times])
    residual = (DATA.y_train - lg.solve(run, std=False).f_train) @ modes
    left = np.diagonal(residual[1:]) / residual[0]
    np.testing.assert_allclose(left, np.exp(-1), rtol=1e-9)


def test_equal_rows_give_a_mode_that_is_never_learned():
    x = np.concatenate([X, X[:1]])
    times, modes = lg.regression.relaxation_times(lg.ntk_kernel(NET, x))
    assert np.isinf(times).tolist() == 12 * [False] + [True]
    np.testing.assert_allclose(np.abs(modes[[0, 12], -1]), np.sqrt(0.5), rtol=1e-9)
    assert lg.regression.relaxation_times(NTK.astype(np.float32)).times.dtype == np.float32


@pytest.mark.parametrize(
    "function", ["critical_learning_rate", "optimal_learning_rate", "relaxation_times"]
)
def test_bad_kernels(function):
    function = getattr(lg.regression, function)
    for ntk, message in [
        (NTK[:5], "square"),
        (NTK + np.triu(NTK, 1), "symmetric"),
        (NTK * np.nan, "NaN"),
        (NTK[:0, :0], "empty"),
        (NTK * 1j, "floats"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            function(ntk)


def test_bad_momentum():
    for momentum in (-0.1, 1.0):
        with pytest.raises(InvalidInput, match="momentum"):
            lg.regression.critical_learning_rate(NTK, momentum=momentum)
