"""The regime of networks of one width: laws of its numbers, by hand and against the width."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.experiments.laziness import fixed_gamma

X = np.random.default_rng(0).normal(size=(10, 3))
DATA = lg.Dataset(X[:6], np.sign(X[:6, 0]), X[6:], np.sign(X[6:, 0]))
NET = lg.mlp(1, "erf")


def run(param, steps=10, **more):
    return lg.Run(NET, param, DATA, **{"optimizer": lg.gd(lr=0.5), "steps": steps, **more})


@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field(2.0), lg.mup()])
def test_a_fixed_gamma_is_the_same_network_at_this_width(param):
    """All entries of the rule tables agree at the width where γ is fixed, and only there."""
    own = run(param)
    fixed = fixed_gamma(own, 64)

    def table(which, width):
        found = which.param.table(NET, which.optimizer, width=width, inputs=3)
        return np.array([(r.rule.multiplier, r.rule.init_std, r.rule.lr) for r in found.rows])

    np.testing.assert_allclose(table(fixed, 64), table(own, 64))
    assert lg.scaling.classify(fixed.param, NET, own.optimizer).kind == "kernel"
    if lg.scaling.classify(param, NET, own.optimizer).kind != "kernel":
        assert not np.allclose(table(fixed, 128), table(own, 128))


@pytest.mark.slow
def test_numbers_by_hand():
    own = run(lg.ntk())
    found = lg.training.lazy_or_rich(own, 32, seeds=4, key=3, on="train")
    nets = lg.train(own, 32, 4, 3, record=["ntk", "feature_kernel"])
    ratios = [np.linalg.norm(k[-1] - k[0]) / np.linalg.norm(k[0]) for k in nets.ntk]
    assert found.ntk == pytest.approx(np.sqrt(np.mean(np.square(ratios))), rel=1e-6)
    report = lg.compare(lg.solve(own), nets, on="train").to_xarray()
    assert found.kernel_limit == pytest.approx(float(report["single_relative"][0]), rel=1e-6)
    assert found.richness == pytest.approx(32**-0.5)
    assert found.kind == "lazy"
    assert "of f" in str(found)
    assert str(found).count("\n") == 2


@pytest.mark.slow
def test_under_an_adaptive_optimizer_the_limit_is_that_of_its_updates():
    lazy, rich = (
        lg.training.lazy_or_rich(run(param, optimizer=lg.adam(0.1), steps=5), 128, seeds=4)
        for param in (lg.ntk(), lg.mean_field(3.0))
    )
    assert lazy.kind == "lazy"
    assert lazy.kernel_limit < 0.06
    assert rich.kind != "lazy"
    assert rich.ntk > 20 * lazy.ntk


@pytest.mark.slow
def test_features_that_learn_are_rich():
    found = lg.training.lazy_or_rich(run(lg.mean_field(4.0), steps=60), 64, seeds=4)
    assert found.kind == "rich"
    assert found.ntk - 3 * found.ntk_error > 0.5
    assert found.richness == pytest.approx(4.0)


@pytest.mark.slow
def test_powers_of_the_width():
    """The NTK moves as 1/N, and its distance at the start and that of outputs fall as N^(−1/2)."""
    small, large = (lg.training.lazy_or_rich(run(lg.ntk()), n, seeds=48) for n in (64, 1024))
    for name, power in (("ntk", -1.0), ("initial_ntk", -0.5), ("kernel_limit", -0.5)):
        a, b = getattr(small, name), getattr(large, name)
        error = np.hypot(getattr(small, f"{name}_error") / a, getattr(large, f"{name}_error") / b)
        slope, margin = np.log(b / a) / np.log(16), error / np.log(16)
        # Corrections of the next order, 1/64 at the smaller width, belong to the margin.
        assert abs(slope - power) < 3 * np.hypot(margin, 0.03), name


def test_what_is_not_covered_is_refused():
    decays = lg.adam(0.01, weight_decay=0.1)
    with pytest.raises(NoTheory, match="weight decay"):
        lg.training.lazy_or_rich(run(lg.ntk(), optimizer=decays), 16)
    with pytest.raises(InvalidInput, match="reference"):
        lg.training.lazy_or_rich(run(lg.scaling.from_reference(width=8, scaling="mean field")), 16)
    with pytest.raises(InvalidInput, match="seeds"):
        lg.training.lazy_or_rich(run(lg.ntk()), 16, seeds=2)


def test_nothing_to_compare_is_said():
    still = lg.Dataset(np.zeros((4, 3)), np.ones(4))
    x = np.random.default_rng(0).standard_normal((4, 3))
    at_zero = lg.Dataset(x, x[:, 0], np.zeros((2, 3)), np.ones(2))  # outputs of tanh are rounding
    for data, activation in ((still, "relu"), (at_zero, "tanh")):
        given = lg.Run(lg.mlp(1, activation), lg.ntk(), data, optimizer=lg.gd(lr=0.1), steps=2)
        with pytest.raises(NumericalFailure, match="which is 0 here"):
            lg.training.lazy_or_rich(given, width=8, seeds=4, progress=False)
