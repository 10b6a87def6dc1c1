"""The law of networks of a width, against networks, the theory's fluctuations, and the limit."""

from functools import cache

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.experiments.digits import digits
from largen.experiments.predicted_networks.pilots import (
    Draws,
    Pilots,
    Samples,
    changes,
    distance,
    growth,
    moments,
)

DATA = digits(16, 24)
SMALL = lg.Dataset(DATA.x_train[:4], DATA.y_train[:4], DATA.x_test[:3], DATA.y_test[:3])


def digits_run(param, lr=1.0, steps=20, data=DATA):
    return lg.Run(lg.mlp(1, "tanh"), param, data, optimizer=lg.gd(lr), steps=steps)


def small_run(param=None, data=SMALL, **options):
    net = options.pop("net", lg.mlp(1, "tanh"))
    return lg.Run(net, param or lg.ntk(), data, optimizer=lg.gd(0.5), steps=3, **options)


@cache
def small(param):
    return lg.training.predict_networks(small_run(param), 32, pilots=40, throw=False)


def synthetic(random, count=60):
    """Pilots of width 8 with correlated deviations, at 2 times and 3 samples."""
    rng = np.random.default_rng(0)
    limit = rng.standard_normal((count if random else 1, 2, 3))
    f = limit * 1.2 + rng.standard_normal((count, 2, 6)) @ rng.standard_normal((6, 3)) + 0.5
    law = rng.standard_normal((500, 2, 3)) if random else limit
    y, loss = np.zeros(3), lg.losses.as_loss("mse")
    losses = np.square(law).sum(-1) / 6
    one = Samples(f, limit, losses, law.mean(0), law.var(0), np.zeros((2, 3)), y)
    return Pilots(8, {"train": one}, loss, ())


def test_variances_change_by_chance_and_are_not_refused():
    """Deviations in the kernel limit are a fluctuation of the kernel times an initial output."""
    rng = np.random.default_rng(0)

    def found(factor):
        narrow, wide = np.prod(rng.standard_normal((2, 2, 300, 1, 1)), axis=1)
        ratio, error = growth([narrow], [factor * wide / 2**0.5])
        return bool(changes(ratio, error, 300)[0])

    assert np.mean([found(1.0) for _ in range(400)]) < 0.02
    assert np.mean([found(4.0) for _ in range(100)]) == 1.0


@pytest.mark.parametrize("random", [False, True])
def test_draws_have_the_moments_of_order_one_over_n(random):
    pilots, draws = synthetic(random), 60_000
    one, rho = pilots.samples["train"], 0.25
    f = Draws(pilots, 32, draws, np.arange(2))
    both = np.concatenate([f.outputs("train", t) for t in (0, 1)], 1)
    F = np.concatenate([one.limit[:, t] for t in (0, 1)], 1)
    d = np.concatenate([one.f[:, t] for t in (0, 1)], 1) - F
    # E f = F + ρd̄; Cov f = Cov F + 2ρ Cov(F, d) + ρ Cov d, between all samples and times. Sums over
    # pilots are divided by their number, and the Gaussian part by one less.
    mean = F.mean(0) + rho * d.mean(0)
    F0, d0 = F - F.mean(0), d - d.mean(0)
    cov = (F0 + rho * d0).T @ (F0 + rho * d0) / len(d) if random else rho**2 * d0.T @ d0 / len(d)
    cov = cov + (rho - rho**2) * d0.T @ d0 / (len(d) - 1)
    z = (both.mean(0) - mean) / np.sqrt(np.diag(cov) / draws)
    assert np.abs(z).max() < 4
    size = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert np.abs((np.cov(both.T) - cov) / size).max() < 4 * np.sqrt(2 / draws)
    # The moments that are reported are linear in 1/n between limit and pilots.
    ends = [moments(one, r)[:2] for r in (0.0, rho, 1.0)]
    np.testing.assert_allclose(ends[0][0], one.mean)
    np.testing.assert_allclose(ends[2][1] ** 2, one.f.var(0, ddof=1))
    np.testing.assert_allclose(ends[1][1] ** 2, 0.75 * ends[0][1] ** 2 + 0.25 * ends[2][1] ** 2)


@pytest.mark.parametrize("random", [False, True])
def test_at_their_own_width_the_draws_are_the_pilots(random):
    pilots = synthetic(random)
    found = Draws(pilots, 8, pilots.number, np.arange(2)).losses("train")
    np.testing.assert_allclose(found, pilots.losses("train"))


@pytest.mark.slow
@pytest.mark.parametrize("param", [lg.ntk(), lg.mean_field()])
def test_at_infinite_width_the_law_is_the_limit(param):
    found = small(param).at_width(10**9)
    limit = lg.solve(small_run(param))
    np.testing.assert_allclose(found.f_test, limit.f_test, atol=1e-6)
    if param == lg.ntk():
        np.testing.assert_allclose(found.f_test_std, limit.f_test_std, atol=1e-6)
        # E ½(f − y)² = ½(Ef − y)² + ½Var f
        exact = limit.loss_test + np.square(limit.f_test_std).mean(1) / 2
        error = found.loss_test.std(0) / np.sqrt(len(found.loss_test))
        assert np.abs((found.loss_test.mean(0) - exact) / error).max() < 4
    else:
        np.testing.assert_allclose(found.loss_test, limit.loss_test[None] + 0 * found.loss_test,
                                   atol=1e-4)  # fmt: skip


def test_initial_outputs_are_those_of_the_prior():
    run, draws = small_run(), 20_000
    train, test = lg.theories.KernelLimit().initial_outputs(run, draws, 3)
    both = np.concatenate([train, test], 1)
    want = lg.nngp_kernel(run.net, SMALL.x)
    size = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    # Draws come in pairs of opposite sign.
    assert np.abs((both.T @ both / draws - want) / size).max() < 4 * np.sqrt(2 / (draws / 2))
    with pytest.raises(NotImplementedError, match="deterministic"):
        lg.theories.MeanField().initial_outputs(small_run(lg.mean_field()), 8, 0)


def test_limits_that_are_solved_from_each_initial_output_are_refused():
    with pytest.raises(NoTheory, match="a solution for each of them"):
        lg.training.predict_networks(small_run().with_changes(optimizer=lg.adam(0.1)), 64)


def z_scores(found, nets, on):
    """Return z-scores of mean outputs (step, sample) and of the mean loss (step,)."""
    f, loss = getattr(nets, f"f_{on}"), getattr(nets, f"loss_{on}")
    error = np.hypot(f.std(0) / len(f) ** 0.5, found.data[f"f_{on}_error"].values)
    mean = (f.mean(0) - getattr(found, f"f_{on}")) / error
    error = np.hypot(loss.std(0) / len(f) ** 0.5, found.data[f"loss_{on}_error"].values)
    return mean[1:], (loss.mean(0) - getattr(found, f"loss_{on}").mean(0)) / error


@pytest.mark.slow
@pytest.mark.parametrize(
    # W1 of the limit's law of the test loss over that of the predicted one, and the largest error
    # of the variance of training outputs. In lg.ntk the limit is as near as the noise of 600
    # networks; in lg.mup N Var of fitted samples falls by 30 % between the widths 16 and 64.
    ("param", "gain", "next_order"),
    [(lg.mean_field(), 4.0, 0.15), (lg.mup(), 4.0, 0.35), (lg.ntk(), 0.5, 0.15)],
)
def test_digits_against_networks(param, gain, next_order):
    run, width = digits_run(param), 64
    found = lg.training.predict_networks(run, width)
    assert found.status == "ok"
    nets = lg.train(run, width=width, seeds=600, key=7)
    pilots = found._pilots.samples
    for on, allowed in (("train", next_order), ("test", 0.12)):
        mean, loss = z_scores(found, nets, on)
        assert np.sqrt(np.mean(mean**2)) < 1.5
        assert np.abs(mean).max() < 4.5
        assert np.abs(loss).max() < 4
        f, losses = getattr(nets, f"f_{on}"), getattr(nets, f"loss_{on}")
        predicted = np.square(getattr(found, f"f_{on}_std")).sum(1)
        assert np.abs(f.var(0, ddof=1).sum(1) / predicted - 1).max() < allowed
        low, high = found.interval(0.9, on=on)
        assert np.abs(((low <= losses) & (losses <= high)).mean(0) - 0.9).max() < 0.1
        low, high = found.output_interval(0.9, on=on)
        assert abs(((low <= f) & (f <= high)).mean() - 0.9) < 0.04
    missed = distance(found.loss_test, nets.loss_test)[1:]
    assert (distance(pilots["test"].losses, nets.loss_test)[1:] / missed).mean() > gain
    if param != lg.ntk():  # the limit alone is refuted
        gap = nets.loss_train.mean(0) - pilots["train"].losses.mean(0)
        assert (gap / nets.loss_train.std(0))[-1] * 600**0.5 > 4.5


@pytest.mark.slow
def test_pilots_agree_with_the_theory_of_fluctuations():
    # N Var of the limit, from the neurons' linear response, and V of the pilots.
    run = digits_run(lg.mean_field(), steps=10)
    limit = lg.solve(run, fluctuations=True)
    found = lg.training.predict_networks(run, 1024, pilots=600, pilot_width=128, limit=limit)
    want = limit.f_test_fluctuation[1:] / np.sqrt(1024)
    ratio = found.f_test_std[1:] / want
    assert np.abs(ratio - 1).max() < 4.5 * np.sqrt(0.5 / 600) + 0.02
    assert abs(ratio.mean() - 1) < 0.05
    # Covariances between samples, at the last time.
    drawn = found.outputs(on="train") * np.sqrt(1024)
    want, got = limit.f_train_fluctuation_covariance[-1], np.cov(drawn.T)
    size = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    assert np.abs((got - want) / size).max() < 4.5 * np.sqrt(2 / 600 + 2 / 2000) + 0.05


@pytest.mark.slow
def test_unstable_runs_are_refused():
    run = digits_run(lg.mean_field(gamma=4.0), lr=4.5, steps=12, data=digits(32, 64))
    with pytest.raises(NumericalFailure, match=r"from time index .* edge of stability") as early:
        lg.training.predict_networks(run, 128)
    assert early.value.result is None  # the limit was not solved
    limit = lg.solve(run, rtol=0.05)
    found = lg.training.predict_networks(run, 128, limit=limit, throw=False)
    assert found.status == "inaccurate"
    assert 0 < (found.unstable_from or 0) < 12
    assert f"failed from time index {found.unstable_from}" in repr(found)
    with pytest.raises(NumericalFailure, match="diverge"):
        lg.training.predict_networks(digits_run(lg.mean_field(), lr=30.0), 64, pilots=16)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "cross_entropy", "mse"])
def test_losses_and_several_outputs(loss):
    y = {"logistic": SMALL.y_train, "cross_entropy": (SMALL.y_train > 0).astype(int)}
    rows = y.get(loss, np.stack([SMALL.y_train, 1 - SMALL.y_train], 1))
    data = lg.Dataset(SMALL.x_train, rows)
    for param in (lg.ntk(), lg.mean_field()):
        run = small_run(param, data, loss=loss)
        found = lg.training.predict_networks(run, 64, pilots=40, draws=400, throw=False)
        assert found.outputs(2).shape == (400, 4, *run.output_shape)
        assert "f_test" not in found.data
        with pytest.raises(InvalidInput, match="no test samples"):
            print(found.loss_test)
        nets = lg.train(run, width=64, seeds=60)
        mean, z = z_scores(found, nets, "train")
        assert np.abs(z).max() < 4.5
        assert np.sqrt(np.mean(mean**2)) < 2


def test_another_width_costs_nothing_and_is_the_same():
    run, limit = small_run(lg.mean_field()), lg.solve(small_run(lg.mean_field()))
    options = {"pilots": 40, "pilot_width": 8, "limit": limit, "throw": False}
    found, other = (lg.training.predict_networks(run, n, **options) for n in (64, 16))
    again = found.at_width(16)
    np.testing.assert_array_equal(again.loss_train, other.loss_train)
    assert again.data.identical(other.data)
    with pytest.raises(InvalidInput, match="width: wanted an integer ≥ 8"):
        found.at_width(4)


@pytest.mark.slow
def test_wrong_input():
    predict, run = lg.training.predict_networks, small_run()
    with pytest.raises(InvalidInput, match="wanted an even number from 2 to"):
        predict(run, 8, pilot_width=5)
    with pytest.raises(InvalidInput, match="to the width 1, got 0"):
        predict(run, 1)
    with pytest.raises(InvalidInput, match="got trained networks"):
        predict(run, 8, limit=lg.train(run, width=8, seeds=2))
    with pytest.raises(InvalidInput, match="not the limit's are"):
        predict(run, 8, pilots=8, limit=lg.solve(run.with_changes(steps=2)))
    flow = run.with_changes(optimizer=lg.gradient_flow(1.0), steps=None, times=[1.0])
    mean = lg.solve(flow, theory=lg.theories.FiniteWidth(width=32, particles=64, replicates=2))
    with pytest.raises(InvalidInput, match="got a mean to order 1/width"):
        predict(flow, 8, limit=mean)
    between = lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4")
    with pytest.raises(NoTheory, match="outputs of networks vanish, but not as N"):
        predict(small_run(between), 8)
    with pytest.raises(InvalidInput, match="levels: wanted probabilities"):
        small(lg.ntk()).quantiles([0.5, 1.5])
