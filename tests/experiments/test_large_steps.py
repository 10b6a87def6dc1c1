"""Large steps: the exact recursion of one sample, and what networks do."""

import math

import jax
import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, OutOfMemory

RNG = np.random.default_rng(0)
NET = lg.mlp(1, "linear", weight_std=1.3)
SAMPLE = lg.Dataset(RNG.standard_normal((1, 3)), np.array([0.7]))
MINIMAL = lg.Dataset(np.ones((1, 1)), np.zeros(1))  # x = 1, y = 0
MANY = lg.Dataset(RNG.standard_normal((6, 8)), RNG.standard_normal(6))


def run_of(param, rate, data=SAMPLE, net=NET, steps=30, **options):
    return lg.Run(net, param, data, optimizer=lg.gd(rate, **options), steps=steps)


def minimal(rate, steps, param=None):
    return run_of(param or lg.ntk(), rate, MINIMAL, lg.mlp(1, "linear"), steps)


def start_of(run, width, seed=0):
    network = lg.networks.finite_network(run.net, run.param, width=width, inputs=run.data.inputs)
    return network.init(jax.random.fold_in(jax.random.key(0), seed), np.float64)


@pytest.mark.parametrize(
    "run",
    [
        run_of(lg.ntk(), 0.6, schedule=np.linspace(1, 5, 30)),
        run_of(lg.mean_field(gamma=0.5), 2.6),
        pytest.param(run_of(lg.mup(), 0.3), marks=pytest.mark.slow),
        pytest.param(run_of(lg.standard(), 0.01), marks=pytest.mark.slow),
        lg.Run(
            lg.serial(lg.Dense(weight_std=0.8, width_ratio=2), lg.Dense(weight_std=1.1)),
            lg.ntk(),
            lg.Dataset(SAMPLE.x_train, np.ones(1)),
            loss="logistic",
            optimizer=lg.gd(3.0),
            steps=30,
        ),
    ],
    ids=["ntk", "mean field", "mup", "standard", "logistic"],
)
def test_recursion_is_the_training_of_the_same_network(run):
    nets = lg.train(run, width=50, seeds=1, key=0, record=["ntk"], record_at=range(31))
    found = lg.training.catapult(run, start_of(run, 50))
    assert np.abs(found.outputs - nets.f_train[0, :, 0]).max() < 1e-13
    scale = max(1.0, np.abs(nets.ntk).max())
    assert np.abs(found.kernels - nets.ntk[0, :, 0, 0]).max() < 1e-13 * scale
    assert np.abs(found.losses - nets.loss_train[0]).max() < 1e-13


@pytest.mark.parametrize("param", [lg.mean_field(gamma=0.5), lg.ntk()], ids=str)
def test_limit_is_that_of_the_theory_of_infinite_width(param):
    run = run_of(param, 1.0)
    limit, found = lg.solve(run), lg.training.catapult(run)
    assert np.abs(limit.f_train[:, 0] - found.outputs).max() < 1e-13


def test_catapult_survives_infinite_width_in_mean_field_only():
    gamma = 0.05
    mean_field = lg.Run(
        lg.mlp(1, "linear"), lg.mean_field(gamma), lg.Dataset(np.ones((1, 1)), np.ones(1)),
        optimizer=lg.gd(1.5), steps=100,
    )  # fmt: skip
    found = lg.training.catapult(mean_field)
    assert found.coupling == pytest.approx(gamma**2, rel=1e-12)
    assert found.reduced_rate == pytest.approx(3.0)
    assert found.diverged is None
    assert found.end < 2
    assert found.losses.max() > 10 > 1e-10 > found.losses[-1]
    lazy = lg.Run(mean_field.net, lg.ntk(), mean_field.data, optimizer=lg.gd(1.5), steps=2000)
    found = lg.training.catapult(lazy)
    assert found.coupling == 0
    assert found.diverged is not None
    assert np.isfinite(found.outputs).all()


def printed(f, lam, eta, n, steps):
    """Equation (110) of the Les Houches lectures as it is printed."""
    path = [(f, lam)]
    for _ in range(steps):
        f, lam = f * (1 - eta * lam + eta**2 * f**2 / n), lam + eta**2 * f**2 / n * (eta * lam - 4)
        path.append((f, lam))
    return np.array(path)


def test_printed_110_is_not_the_training_of_a_network():
    run = minimal(0.6, 30)
    nets = lg.train(run, width=50, seeds=1, key=0, record=["ntk"], record_at=range(31))
    right = np.stack([nets.f_train[0, :, 0], nets.ntk[0, :, 0, 0]], 1)
    assert np.abs(printed(*right[0], 0.6, 50, 30) - right).max() > 1e-3
    found = lg.training.catapult(run, start_of(run, 50))
    assert np.abs(np.stack([found.outputs, found.kernels], 1) - right).max() < 1e-14


@pytest.mark.parametrize("x", [3.0, 3.9])
def test_printed_112_diverges_where_networks_converge(x):
    n, eta = 1000, x / 2
    found = lg.training.catapult(minimal(eta, 400), width=n, start=(0.7, 2.0))
    assert found.diverged is None
    assert found.losses[-1] < 1e-6
    assert found.end < 2
    with np.errstate(over="ignore", invalid="ignore"):
        there = printed(np.float64(0.7), np.float64(2.0), eta, n, 400)
    assert not (np.abs(there[-1, 0]) < 1e3)


def test_phases_of_the_minimal_model():
    ends = {
        x: lg.training.catapult(minimal(x / 2, 400), width=10**7, start=(1.0, 2.0))
        for x in (1.5, 3, 5)
    }
    assert ends[1.5].peak == 0
    assert ends[3].end == pytest.approx(0.228, abs=1e-3)
    assert ends[3].outputs[ends[3].peak] ** 2 > 1e6
    assert ends[5].diverged is not None
    bound = 2 * np.abs(ends[3].outputs) / 10**3.5
    assert (ends[3].kernels >= bound * (1 - 1e-12)).all()  # by Cauchy and Schwarz


def test_near_the_threshold():
    # ηλ at the end is 2 − e − (2/3)e², and the largest η²f²/n is e²/2.
    ends, tops = [], []
    for e in (0.02, 0.01):
        eta = (2 + e) / 2
        found = lg.training.catapult(minimal(eta, 12_000), width=10**9, start=(1.0, 2.0))
        ends.append((2 - e - found.end) / e**2)
        tops.append(eta**2 * (found.outputs**2).max() / 10**9 / (e**2 / 2))
    assert 2 * ends[1] - ends[0] == pytest.approx(2 / 3, abs=0.01)
    assert 2 * tops[1] - tops[0] == pytest.approx(1, abs=0.01)


def test_printed_113_lacks_a_logarithm_above_the_threshold():
    n, level, times = 1e8, 1e-6, {}
    for e in (0.02, 0.04):
        for sign in (-1, 1):
            eta = (2 + sign * e) / 2
            run = minimal(eta, 4000)
            times[sign * e] = lg.training.catapult(run, width=int(n), start=(1.0, 2.0)).steps_to(
                level
            )
    below = math.log2(times[-0.02] / times[-0.04])
    above = math.log2(times[0.02] / times[0.04])
    assert below == pytest.approx(1, abs=0.02)
    assert above < 0.97
    for e in (0.02, 0.04):
        eta = (2 + e) / 2
        rise, fall = 2 * e**2 * n / eta**2, 2 * e**2 * n / (2 * level * eta**2)
        # To relative order e.
        assert times[e] == pytest.approx((math.log(rise) + math.log(fall)) / (2 * e), rel=e)
        assert times[-e] == pytest.approx(math.log(1 / (2 * level)) / (2 * e), rel=e)


def test_catapult_says_what_it_found(tmp_path):
    found = lg.training.catapult(run_of(lg.ntk(), 3.0), start_of(run_of(lg.ntk(), 3.0), 50))
    assert "ηλ" in repr(found)
    assert "width 50" in repr(found)
    data = found.to_xarray()
    assert data["output"].dims == ("step",)
    assert data.sizes["step"] == 31
    found.plot(tmp_path / "catapult.png")
    assert (tmp_path / "catapult.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"net": lg.mlp(2, "linear")}, NoTheory, "one hidden layer"),
        ({"net": lg.mlp(1, "tanh")}, NoTheory, "linear"),
        ({"net": lg.mlp(1, "linear", bias_std=1.0)}, NoTheory, "biases"),
        ({"optimizer": lg.gd(0.1, momentum=0.5)}, NoTheory, "momentum"),
        ({"optimizer": lg.adam(0.1)}, NoTheory, "gradient descent"),
        ({"data": MANY}, InvalidInput, "one training sample"),
    ],
)
def test_catapult_refuses_what_does_not_close(change, error, words):
    given = {"net": NET, "param": lg.ntk(), "data": SAMPLE, "optimizer": lg.gd(0.1), "steps": 2}
    with pytest.raises(error, match=words):
        lg.training.catapult(lg.Run(**{**given, **change}))


def test_catapult_refuses_arguments_that_do_not_go_together():
    run = run_of(lg.ntk(), 0.1)
    with pytest.raises(InvalidInput, match="params"):
        lg.training.catapult(run, start_of(run, 8), width=8)
    with pytest.raises(InvalidInput, match="start"):
        lg.training.catapult(run, width=8, start=(1.0, -1.0))
    with pytest.raises(NoTheory, match="no limit"):
        lg.training.catapult(run_of(lg.standard(), 0.1))


def diagram(net, widths, rates, steps=150, **options):
    run = lg.Run(net, lg.ntk(), MANY, optimizer=lg.gd(1.0), steps=steps)
    return lg.training.catapult_diagram(run, widths, rates, progress=False, **options)


def test_diagram_of_linear_networks():
    found = diagram(lg.mlp(1, "linear"), [128], [1.0, 2.5, 6.0], seeds=2)
    alive = found.survival.sel(width=128)
    assert alive.sel(model="network").values.tolist() == [1, 1, 0]
    assert found.thresholds() == {128: (2.5, 6.0)}
    # The output is of second order in the parameters: the quadratic model is the network.
    one, other = found.data.sel(model="network"), found.data.sel(model="quadratic")
    for name in ("curvature", "largest_loss", "loss", "alive"):
        np.testing.assert_allclose(
            one[name].isel(rate=[0, 1]), other[name].isel(rate=[0, 1]), rtol=1e-6, atol=1e-12
        )
    data = found.to_xarray()
    end = 2.5 * data["curvature"] / data["initial_curvature"]
    assert (end.sel(rate=2.5) < 2).all()
    assert (data["largest_loss"] > data["initial_loss"]).sel(rate=2.5).all()
    assert (data["steps"].sel(rate=1.0) < 150).all()
    assert np.isnan(data["steps"].sel(rate=6.0)).all()
    assert np.isfinite(data["curvature"]).all()


def test_diagram_is_that_of_trained_networks():
    run = lg.Run(lg.mlp(2, "tanh"), lg.mean_field(0.5), MANY, optimizer=lg.gd(1.0), steps=20)
    found = lg.training.catapult_diagram(
        run, [32], [0.3, 1.0], seeds=2, key=3, quadratic=False
    ).data
    for seed in range(2):
        lam = found["initial_curvature"].values[0, seed]
        for x in (0.3, 1.0):
            own = lg.Run(run.net, run.param, MANY, optimizer=lg.gd(x / lam), steps=20)
            nets = lg.train(own, width=32, seeds=2, key=3, record=["ntk"], throw=False)
            at = found.sel(model="network", width=32, seed=seed, rate=x)
            ends = np.linalg.eigvalsh(nets.ntk[seed])[:, -1] / 6
            assert ends[0] == pytest.approx(lam, rel=1e-10)
            assert float(at["curvature"]) == pytest.approx(ends[1], rel=1e-8)
            assert float(at["loss"]) == pytest.approx(nets.loss_train[seed, -1], rel=1e-8)
            assert float(at["largest_loss"]) == pytest.approx(nets.loss_train[seed].max(), rel=1e-8)


def test_diagram_does_not_depend_on_the_memory_budget_and_reports(tmp_path):
    seen, rates = [], [1.0, 2.5, 3.0]
    run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), MANY, optimizer=lg.gd(1.0), steps=20)
    options = {"seeds": 2, "quadratic": False}
    one = lg.training.catapult_diagram(
        run, [16], rates, progress=lambda *n: seen.append(n), **options
    )
    other = lg.training.catapult_diagram(run, [16], rates, memory_budget=20_000, **options)
    np.testing.assert_allclose(one.data["curvature"], other.data["curvature"], rtol=1e-6)
    assert seen == [(1, 2), (2, 2)]
    assert "x = 2.5" in repr(one)
    one.plot(tmp_path / "diagram.png")
    assert (tmp_path / "diagram.png").stat().st_size > 5000
    with pytest.raises(OutOfMemory, match="memory_budget"):
        lg.training.catapult_diagram(run, [16], rates, memory_budget=10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "logistic"}, "mse"),
        ({"optimizer": lg.sgd(0.1, batch_size=2)}, "full-batch"),
        ({"optimizer": lg.gd(0.1, momentum=0.9)}, "momentum"),
        ({"optimizer": lg.adam(0.1)}, "gradient descent"),
    ],
)
def test_diagram_refuses_other_thresholds(options, words):
    data = lg.Dataset(MANY.x_train, np.sign(MANY.y_train))
    given = {"optimizer": lg.gd(0.1), "steps": 2, **options}
    with pytest.raises(NoTheory, match=words):
        lg.training.catapult_diagram(lg.Run(NET, lg.ntk(), data, **given), [8], [1.0])


@pytest.mark.slow
def test_quadratic_model_diverges_earlier_than_tanh_networks():
    found = diagram(lg.mlp(1, "tanh"), [256], [1.0, 2.5, 3.0, 3.9, 5.5], steps=300, seeds=6)
    alive = found.survival.sel(width=256)
    assert (alive.sel(rate=2.5) == 1).all()
    assert (alive.sel(model="network") >= alive.sel(model="quadratic")).all()
    assert float(alive.sel(model="network", rate=3.9)) > float(
        alive.sel(model="quadratic", rate=3.9)
    )
    assert float(alive.sel(model="network", rate=5.5)) < 0.5
