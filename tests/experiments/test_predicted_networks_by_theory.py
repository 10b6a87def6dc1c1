"""The law of networks by theory at order 1/width: its moments, networks, and refusals."""

from functools import partial

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.experiments.digits import digits
from largen.experiments.predicted_networks.pilots import NextOrder, distance
from largen.experiments.training_corrections import drawn_corrections

DATA = digits(16, 24)
SMALL = lg.Dataset(DATA.x_train[:4], DATA.y_train[:4], DATA.x_test[:3], DATA.y_test[:3])
predict = partial(lg.training.predict_networks, anchor="theory")


def run_of(net=None, param=None, data=SMALL, lr=0.5, steps=3, **options):
    options = {"optimizer": lg.gd(lr), "steps": steps} | options
    return lg.Run(net or lg.mlp(1, "tanh"), param or lg.mean_field(), data, **options)


@pytest.mark.slow
def test_mean_field_has_shift_and_covariance_of_the_replicates():
    run, n = run_of(), 64
    limit = lg.solve(run)
    found = predict(run, n, limit=limit, pilots=40, pilot_width=16, key=3, draws=40_000)
    assert found.status == "ok"
    key = jax.random.split(jax.random.key(3), 4)[0]
    shifts, outputs = drawn_corrections(run, 16, 40, key, False, "here").drawn or ()
    c, f = shifts[..., 0].mean(0), outputs[..., 0]
    both = np.concatenate([found.f_train, found.f_test], 1)
    want = np.concatenate([limit.f_train, limit.f_test], 1) + c / n
    np.testing.assert_allclose(both, want, atol=1e-6)
    std = np.concatenate([found.f_train_std, found.f_test_std], 1)
    np.testing.assert_allclose(std, (16 / n) ** 0.5 * f.std(0, ddof=1), rtol=1e-5)
    error = np.concatenate([found.data["f_train_error"], found.data["f_test_error"]], 1)
    least = shifts[..., 0].std(0, ddof=1) / 40**0.5 / n
    assert np.all(error >= 0.99 * least)
    np.testing.assert_allclose(found.at_width(4 * n).f_train_std, found.f_train_std / 2, rtol=1e-5)
    # Outputs of a draw are correlated between times and samples as those of the replicates.
    drawn = np.concatenate([found.outputs(t, on=on) for t in (1, 3) for on in ("train", "test")], 1)
    got, want = np.cov(drawn.T), 16 / n * np.cov(np.concatenate([f[:, 1], f[:, 3]], 1).T)
    size = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    assert np.abs((got - want) / size).max() < 4.5 * np.sqrt(2 / 40_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    # Hidden layers, and by how much the law of the test loss is nearer to that of networks than
    # the limit; in lg.ntk() the limit is as near as the noise of 600 networks.
    ("depth", "param", "steps", "gain"),
    [(1, lg.mean_field(), 20, 5.0), (2, lg.mean_field(), 6, 4.0), (1, lg.ntk(), 20, 0.5)],
)
def test_digits_against_networks(depth, param, steps, gain):
    run = run_of(lg.mlp(depth, "tanh"), param, digits(16, 24), 1.0, steps)
    limit = lg.solve(run, **({"rtol": 0.05} if depth == 2 else {}))
    first = predict(run, 64, limit=limit)
    assert first.status == "ok"
    for width in (64, 128):
        found = first.at_width(width)
        nets = lg.train(run, width=width, seeds=600, key=7)
        losses = nets.loss_test
        error = np.hypot(
            losses.std(0) / 600**0.5,
            np.hypot(found.data["loss_test_error"].values, found.loss_test.std(0) / 2000**0.5),
        )
        assert np.abs((losses.mean(0) - found.loss_test.mean(0)) / error)[1:].max() < 4.5
        missed = distance(found.loss_test, losses)[1:].mean()
        alone = distance(first.at_width(10**9).loss_test, losses)[1:].mean()
        assert alone / missed > gain
        low, high = found.interval(0.9)
        assert np.abs(((low <= losses) & (losses <= high)).mean(0) - 0.9)[1:].max() < 0.07
        for on in ("train", "test"):
            spread = getattr(nets, f"f_{on}").var(0, ddof=1).sum(1)
            ratio = np.square(getattr(found, f"f_{on}_std")).sum(1) / spread
            assert np.abs(ratio - 1)[1:].max() < 0.2


@pytest.mark.slow
def test_unstable_runs_are_refused():
    run = run_of(param=lg.mean_field(gamma=4.0), data=digits(32, 64), lr=4.5, steps=12)
    with pytest.raises(NumericalFailure, match=r"next order in 1/n .* edge of stability") as failed:
        predict(run, 128, limit=lg.solve(run, rtol=0.05), pilots=64)
    found = failed.value.result
    assert 0 < found.unstable_from < 12
    assert found.at_width(10**7).status == "ok"


@pytest.mark.slow
def test_residual_networks_in_the_kernel_limit():
    run = run_of(lg.residual_mlp(1, "tanh"), lg.ntk(), lr=0.3)
    found = predict(run, 128, pilots=600, throw=False)
    nets = lg.train(run, width=128, seeds=800, key=5)
    for on in ("train", "test"):
        f = getattr(nets, f"f_{on}")
        ratio = np.square(getattr(found, f"f_{on}_std")).sum(1) / f.var(0, ddof=1).sum(1)
        assert np.abs(ratio - 1).max() < 0.15
        error = np.hypot(f.std(0) / 800**0.5, found.data[f"f_{on}_error"].values)
        assert np.abs((f.mean(0) - getattr(found, f"f_{on}")) / error).max() < 4


def test_the_share_of_the_next_order_falls_with_the_width():
    share = NextOrder(32, np.array([0.0, 0.4, 0.8, np.nan])).at(64)
    np.testing.assert_allclose(share.share[:3], [0, 0.2, 0.4])
    assert share.failed.tolist() == [False, False, False, True]
    assert share.at(16).failed.tolist() == [False, True, True, True]


def test_what_is_refused():
    kernels = partial(run_of, param=lg.ntk())
    for run, message in (
        (kernels(lg.mlp(1, "relu")), "without kinks"),
        (kernels(loss="logistic"), "other losses"),
        (kernels(param=lg.abc(a=(0, "1/2", "1/2"), b=0, c=0)), "fully connected"),
        (run_of(optimizer=lg.gradient_flow(1.0), steps=None, times=[1.0]), "step by step"),
        (run_of(optimizer=lg.optimizers.langevin(0.1, 0.1)), "adds noise"),
    ):
        with pytest.raises(NoTheory, match=message):
            predict(run, 64)
    with pytest.raises(InvalidInput, match="pilot_width: wanted an integer ≤ 8"):
        predict(kernels(), 8, pilot_width=16)
    other = lg.solve(run_of(param=lg.ntk(), steps=2))
    with pytest.raises(InvalidInput, match="not the limit's are"):
        predict(kernels(), 64, limit=other)
