"""The marginal likelihood, its slopes, and what maximises it."""

import numpy as np
import pytest
from tests.kernels.references import numpy_mlp

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.kernels.hyperparameters import with_stds
from largen.regression import likelihood

RNG = np.random.default_rng(8)
X = RNG.standard_normal((30, 4))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * RNG.standard_normal((30, 2))
TRUTH = lg.mlp(1, "erf", weight_std=1.5, bias_std=0.4)
DRAWN = np.linalg.cholesky(lg.nngp_kernel(TRUTH, X) + 0.05 * np.eye(30)) @ RNG.standard_normal(
    (30, 40)
)
DEEP = lg.serial(
    lg.Dense(weight_std=1.3, bias_std=0.4),
    lg.Activation("erf"),
    lg.Dense(weight_std=0.9),
    lg.repeat(
        lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense(weight_std=0.7, bias_std=0.2))), 3
    ),
    lg.Activation("relu"),
    lg.Dense(weight_std=1.1, bias_std=0.1),
)
BRANCHES = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, branch="1/2")
NAMES = ["0.bias_std", "0.weight_std", "2.weight_std"]
NAMES += ["3.0.0.1.bias_std", "3.0.0.1.weight_std", "5.bias_std", "5.weight_std"]


def test_value_equals_plain_numpy():
    net = lg.mlp(1, "erf", weight_std=1.4, bias_std=0.3)
    a = numpy_mlp(X, "erf", 1, 1.4, 0.3)[0] + 0.05 * np.eye(30)
    wanted = -np.trace(Y.T @ np.linalg.solve(a, Y)) / 2
    wanted -= np.linalg.slogdet(2 * np.pi * a)[1]  # twice a half: two outputs
    assert lg.regression.log_likelihood(net, X, Y, noise=0.05).value == pytest.approx(
        wanted, rel=1e-12
    )


@pytest.mark.parametrize("param", [pytest.param(None, marks=pytest.mark.slow), BRANCHES])
def test_slopes_equal_finite_differences(param):
    value, gradient = lg.regression.log_likelihood(DEEP, X, Y, noise=0.05, param=param)
    given = lg.posterior(DEEP, X, Y, noise=0.05, param=param)
    assert value == pytest.approx(given.log_likelihood, rel=1e-12)
    assert sorted(gradient) == [*NAMES, "noise"]
    constants = {"0.bias_std": 0.4, "0.weight_std": 1.3, "2.weight_std": 0.9}
    constants |= {"3.0.0.1.bias_std": 0.2, "3.0.0.1.weight_std": 0.7}
    constants |= {"5.bias_std": 0.1, "5.weight_std": 1.1}
    assert with_stds(DEEP, constants) == DEEP
    for name, slope in gradient.items():
        around = []
        for step in (1e-5, -1e-5):
            moved = {n: v + step * (n == name) for n, v in constants.items()}
            noise = 0.05 + step * (name == "noise")
            net = with_stds(DEEP, moved)
            around.append(lg.regression.log_likelihood(net, X, Y, noise=noise, param=param).value)
        assert slope == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-6), name


@pytest.mark.slow
def test_the_tangent_kernel_as_a_prior():
    """Value by the posterior, slopes by differences, a fit where they vanish."""
    net = lg.mlp(1, "erf", weight_std=1.2, bias_std=0.5)
    value, gradient = lg.regression.log_likelihood(net, X, Y, noise=0.3, kind="ntk-gp")
    given = lg.posterior(net, X, Y, noise=0.3, kind="ntk-gp")
    assert value == pytest.approx(given.log_likelihood, rel=1e-12)
    around = []
    for step in (1e-5, -1e-5):
        moved = with_stds(net, {"2.weight_std": 1.2 + step})
        around.append(lg.regression.log_likelihood(moved, X, Y, noise=0.3, kind="ntk-gp").value)
    slope = (around[0] - around[1]) / 2e-5
    assert gradient["2.weight_std"] == pytest.approx(slope, rel=1e-6)
    fit = lg.regression.fit_likelihood(net, X, Y, noise=0.3, kind="ntk-gp")
    value, gradient = lg.regression.log_likelihood(fit.net, X, Y, noise=fit.noise, kind="ntk-gp")
    assert value == pytest.approx(fit.log_likelihood, rel=1e-10)
    assert abs(gradient["noise"] * fit.noise) < 1e-2
    with pytest.raises(InvalidInput, match="kind: 'ntk' is not known"):
        lg.regression.fit_likelihood(net, X, Y, kind="ntk")
    with pytest.raises(NoTheory, match="rates depend on σ_w"):
        lg.regression.log_likelihood(net, X, Y, noise=0.3, kind="ntk-gp", param=lg.standard())


def test_folded_layers_keep_their_own_constants():
    stds = [1.0, 1.2, 0.8, 1.1, 0.9]
    layers = [
        f for s in stds for f in (lg.Dense(weight_std=s, bias_std=s / 4), lg.Activation("erf"))
    ][:-1]
    net = lg.serial(*layers)
    value, gradient = lg.regression.log_likelihood(net, X, Y, noise=0.05)
    assert value == pytest.approx(lg.posterior(net, X, Y, noise=0.05).log_likelihood, rel=1e-12)
    around = []
    for step in (1e-5, -1e-5):
        moved = with_stds(net, {"4.weight_std": 0.8 + step})
        around.append(lg.regression.log_likelihood(moved, X, Y, noise=0.05).value)
    slope = (around[0] - around[1]) / 2e-5
    assert gradient["4.weight_std"] == pytest.approx(slope, rel=1e-6)


def test_other_constants_compile_nothing_anew():
    from largen.regression.likelihood import _value_and_slopes

    compiled = _value_and_slopes._cache_size
    lg.regression.log_likelihood(lg.mlp(1, "erf", bias_std=0.5), X, Y, noise=0.1)
    before = compiled()
    for std in (0.7, 1.7):
        lg.regression.log_likelihood(
            lg.mlp(1, "erf", bias_std=std, weight_std=std), X, Y, noise=std
        )
    assert compiled() == before


def test_fit_finds_where_the_slopes_vanish_and_the_constants_of_the_targets():
    net, y = lg.mlp(1, "erf", weight_std=1.0, bias_std=1.0), DRAWN
    fit = lg.regression.fit_likelihood(net, X, y, noise=0.5)
    assert fit.status == "ok"
    value, gradient = lg.regression.log_likelihood(fit.net, X, y, noise=fit.noise)
    assert value == pytest.approx(fit.log_likelihood, rel=1e-10)
    assert value > fit.start + 5
    assert fit.start == lg.regression.log_likelihood(net, X, y, noise=0.5).value
    first, _, last = fit.net.layers
    assert first == last
    # 1200 numbers drawn from the prior tell its constants to several percent.
    assert first.weight_std == pytest.approx(1.5, rel=0.15)
    assert first.bias_std == pytest.approx(0.4, rel=0.25)
    assert fit.noise == pytest.approx(0.05, rel=0.15)
    for kind in ("weight_std", "bias_std"):
        slope = (gradient[f"0.{kind}"] + gradient[f"2.{kind}"]) * getattr(first, kind)
        assert abs(slope) < 1e-3
    assert abs(gradient["noise"] * fit.noise) < 1e-3
    own = lg.regression.fit_likelihood(net, X, y, noise=0.5, shared=False)
    assert own.log_likelihood >= fit.log_likelihood - 1e-6
    fixed = lg.regression.fit_likelihood(net, X, y, noise=0.5, fit_noise=False)
    assert fixed.noise == 0.5
    assert fixed.log_likelihood < fit.log_likelihood


def test_fit_says_what_ran_away_and_what_did_not_converge():
    net = lg.mlp(1, "erf", bias_std=0.5)
    fit = lg.regression.fit_likelihood(net, X, np.zeros(30), noise=0.1)
    assert fit.status == "at bound"
    assert "noise" in fit.at_bound
    with pytest.raises(NumericalFailure, match="no maximum within 1 steps") as caught:
        lg.regression.fit_likelihood(net, X, Y, noise=0.1, max_steps=1)
    assert caught.value.result.status == "not converged"
    assert (
        lg.regression.fit_likelihood(net, X, Y, max_steps=1, throw=False).status == "not converged"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": 0.0}, "noise: wanted a finite number > 0"),
        ({"noise": -1.0}, "noise: wanted a finite number > 0"),
        ({"x": X[:0], "y": Y[:0]}, "x: is empty"),
        ({"y": Y[:3]}, "y: has 3 rows"),
        ({"y": Y * np.nan}, "y: .*NaN"),
    ],
)
def test_bad_input(change, message):
    for function in (lg.regression.log_likelihood, lg.regression.fit_likelihood):
        arguments = {"net": DEEP, "x": X, "y": Y, "noise": 0.1, **change}
        with pytest.raises(InvalidInput, match=message):
            function(arguments.pop("net"), arguments.pop("x"), arguments.pop("y"), **arguments)


def test_a_kernel_that_is_not_positive():
    x = np.repeat(X, 2, axis=0)
    for function in (lg.regression.log_likelihood, lg.regression.fit_likelihood):
        with pytest.raises(NumericalFailure, match="larger noise"):
            function(lg.mlp(1, "erf"), x, np.repeat(Y, 2, axis=0), noise=1e-25)


def test_an_inaccurate_kernel_is_said_to_be_so(monkeypatch):
    # What counts as inaccurate is tested with the kernels; here, that it is checked.
    net = lg.mlp(1, "erf", bias_std=0.5)
    wanted = lg.regression.log_likelihood(net, X, Y, noise=0.1)
    monkeypatch.setattr(likelihood, "inaccuracy", lambda *_, **__: "kernels: too rough")
    with pytest.raises(NumericalFailure, match="kernels: too rough") as caught:
        lg.regression.log_likelihood(net, X, Y, noise=0.1)
    assert caught.value.result == wanted
    with pytest.raises(NumericalFailure, match="kernels: too rough"):
        lg.regression.fit_likelihood(net, X, Y, noise=0.1)
    assert lg.regression.fit_likelihood(net, X, Y, noise=0.1, throw=False).status == "inaccurate"


@pytest.mark.slow
def test_large_variances_are_integrated_by_the_angle():
    """tanh at variance 400, where its series fails: the likelihood is that of the kernel."""
    net = lg.mlp(1, "tanh", weight_std=20.0)
    x, y = np.random.default_rng(0).normal(size=(6, 3)), np.arange(6.0)
    noisy = lg.nngp_kernel(net, x) + np.eye(6)
    _, determinant = np.linalg.slogdet(noisy)
    want = -(y @ np.linalg.solve(noisy, y) + determinant + 6 * np.log(2 * np.pi)) / 2
    np.testing.assert_allclose(
        lg.regression.log_likelihood(net, x, y, noise=1.0).value, want, rtol=1e-8
    )
