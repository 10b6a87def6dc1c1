"""Forecasts of losses that are known: weights, intervals, best rates, refusals."""

import csv
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import xarray
from torch import nn

import largen as lg
from largen.errors import InvalidInput, NumericalFailure
from largen.sweeps import Forecast, Grid, Pilots, Sweep, Task, forecast, sweep
from largen.sweeps.law import Ladder, weights
from largen.sweeps.trust import reasons
from largen.sweeps.valley import valleys
from largen.sweeps.windows import averaged, log_edges, watch_edges
from largen.transfer.torch import scale

SIZES = np.array([32.0, 64, 128])
RATES = 2.0 ** np.arange(-8, -3)
TARGET = 512.0


def made(law, noise, seeds=8, key=0, gap=None):
    """Return losses (rate, seed, time) of a law in x = m/n.

    The means of eight of the widest networks scatter by ``noise`` times what is left to gain.
    """
    draw = np.random.default_rng(key)
    gap = abs(law(1.0) - law(SIZES[-1] / TARGET)) if gap is None else gap
    found = []
    for n in SIZES:
        x = SIZES[-1] / n
        # Networks of one seed stay on one side, at all rates and times.
        own = draw.normal(size=(3, seeds, 4)) + draw.normal(size=(1, seeds, 1))
        found.append(2 + law(x) + noise * gap * math.sqrt(8 * x / 2) * own)
    return found


def covered(law, noise, trials, gap=None):
    """Return how often the 90 % interval holds the truth, and how often the law is refused."""
    truth = 2 + law(SIZES[-1] / TARGET)
    held = []
    for key in range(trials):
        ladder = Ladder(SIZES, made(law, noise, key=key, gap=gap))
        if not reasons(ladder):
            draws = ladder.draws(ladder.fit(TARGET), 200, np.random.default_rng(key))
            low, high = np.quantile(draws, [0.05, 0.95], axis=0)
            held.append(np.mean((low < truth) & (truth < high)))
    return np.mean(held) if held else np.nan, 1 - len(held) / trials


def power(p):
    return lambda x: 0.3 * x**p


# The least coverage, and how many may be refused.
LAWS = {
    "1/n": (power(1.0), 0.87, 0.05),
    "1/n + 0.2/n²": (lambda x: 0.3 * (x + 0.2 * x**2), 0.82, 0.05),
    "n^-1.25": (power(1.25), 0.82, 0.05),
    "n^-0.75": (power(0.75), 0.82, 0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.1, 0.5])
@pytest.mark.parametrize("name", LAWS)
def test_intervals_hold_the_truth(name, noise):
    law, least, most_refused = LAWS[name]
    held, refused = covered(law, noise, 400)
    assert least <= held
    assert refused <= most_refused
    if name == "1/n":
        assert held <= 0.98


@pytest.mark.slow
def test_slow_laws_are_refused_where_they_can_be_seen():
    gap = 0.3 * 0.75  # of 1/n with this slope, of which 7 % are the noise
    for law, least in ((power(0.5), 0.45), (lambda x: 0.3 * np.log(x), 0.6)):
        held, refused = covered(law, 0.07, 100, gap)
        assert refused + (1 - refused) * np.nan_to_num(held) >= least
    _, refused = covered(lambda x: 0.3 * (x - 2) ** 2, 0.1, 100)
    assert refused >= 0.95


def test_weights_are_those_of_least_squares_without_errors_of_the_law():
    x = 128 / SIZES
    w, law = weights(x, 0.25, np.full(3, 0.01), np.array(0.7), (0.0, 0.0))
    wanted = np.linalg.pinv(np.stack([np.ones(3), x], 1)).T @ [1.0, 0.25]
    np.testing.assert_allclose(w, wanted, atol=1e-9)
    np.testing.assert_allclose(law, 0.0)


def test_weights_of_least_variance():
    """Among all unbiased weights none has a smaller error: by a search in the free direction."""
    sizes = np.array([16.0, 32, 64, 128])
    x, target, slope = 128 / sizes, 0.2, 0.7
    noise = np.array([0.02, 0.01, 0.03, 0.05]) ** 2
    w, law = weights(x, target, noise, np.array(slope))
    terms = slope * np.stack([0.1 * x**2, 0.2 * x * np.log(x)])
    there = slope * np.array([0.1 * target**2, 0.2 * target * math.log(target)])

    def error(w):
        return ((there - terms @ w) ** 2).sum() + (w**2 * noise).sum()

    np.testing.assert_allclose([w.sum(), w @ x], [1.0, target])
    np.testing.assert_allclose((law**2).sum() + (w**2 * noise).sum(), error(w))
    for direction in np.linalg.svd(np.stack([np.ones(4), x]))[2][2:]:
        for step in (-0.01, 0.01):
            assert error(w + step * direction) > error(w)


def test_the_widest_pilots_foretell_themselves():
    losses = made(power(1.0), 0.0)
    fit = Ladder(SIZES, losses).fit(SIZES[-1])
    np.testing.assert_allclose(fit.weights[:, 0, 0], [0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(fit.law, 0.0, atol=1e-8)
    found = forecast(SIZES, made(power(1.0), 0.3), RATES[:3], TARGET)
    own = found.monitor(found.data["watch"].values[1], RATES[1], found.data["window"].values)
    np.testing.assert_array_equal(own.z, 0.0)
    assert own.alarm is None


def test_errors_are_those_of_the_draws_and_of_repetitions():
    """The forecast scatters over pilots by its seeds' error; draws scatter by all of its error."""
    found = [Ladder(SIZES, made(power(1.0), 0.3, key=key)).fit(TARGET) for key in range(300)]
    scatter = np.std([f.mean[0, 0] for f in found])
    claimed = np.sqrt(np.mean([f.seeds[0, 0] for f in found]))
    assert scatter == pytest.approx(claimed, rel=4 / math.sqrt(2 * 300))
    ladder = Ladder(SIZES, made(power(1.0), 0.3))
    fit = ladder.fit(TARGET)
    draws = ladder.draws(fit, 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.std(0) / fit.error, 1.0, atol=0.04)
    # u, v and the factors of seeds are shared by rates and times, which are the same here.
    ladder = Ladder(SIZES, [np.repeat(a[:1, :, :1], 2, 0) for a in ladder.losses])
    draws = ladder.draws(ladder.fit(TARGET), 10, np.random.default_rng(0))
    np.testing.assert_allclose(draws[:, 0], draws[:, 1])


def test_best_rates_are_those_of_parabolas():
    x = np.log2(RATES)
    curves = 2 + 0.3 * (x - np.array([[-6.2], [-5.5], [-9.0]])) ** 2
    found = valleys(x, curves)
    np.testing.assert_allclose(found.at, [-6.2, -5.5, -8.0], atol=1e-9)
    np.testing.assert_allclose(found.loss[:2], 2.0, atol=1e-9)
    np.testing.assert_allclose(found.at_rate(-6.0), curves[:, 2], atol=1e-9)
    assert found.edge.tolist() == [False, False, True]
    assert valleys(x[:1], curves[:, :1]).at.tolist() == [-8.0] * 3


def test_the_best_rate_of_the_wide_network_is_extrapolated():
    """log₂ η* = −6 + x/10: the pilots' own is −5.9 and the target's −5.975."""
    x, draw = np.log2(RATES), np.random.default_rng(0)
    losses = []
    for n in SIZES:
        valley = 0.1 * (x - (-6 + 0.1 * SIZES[-1] / n)) ** 2
        e = 0.002 * (128 / n) ** 0.5 * draw.normal(size=(5, 8, 1))
        losses.append((2 + valley + 3 / n)[:, None, None] + e)
    found = forecast(SIZES, losses, RATES, TARGET)
    best = found.best()
    assert np.log2(best.lr.low) < -5.975 < np.log2(best.lr.high)
    assert np.log2(best.lr.high / best.lr.low) < 0.1
    assert np.log2(best.pilot_lr) == pytest.approx(-5.9, abs=0.03)
    assert best.excess.at == pytest.approx(0.1 * 0.075**2, rel=0.7)
    assert best.gain.at == pytest.approx(3 / TARGET / 2, rel=0.5)
    assert best.edge == 0.0
    assert f"{best.lr.at:.3g}" in str(found)
    np.testing.assert_array_equal(found.interval(0.5).sizes["end"], 2)


def test_windows():
    np.testing.assert_array_equal(log_edges(16, 8), np.arange(17))
    edges = log_edges(300, 8)
    assert edges[0] == 3
    assert edges[-1] == 300
    losses = np.arange(300.0)[None]
    wanted = [[losses[0, a:b].mean() for a, b in pairwise(edges)]]
    np.testing.assert_allclose(averaged(losses, edges), wanted)
    assert np.diff(watch_edges(np.arange(1, 1001))).tolist()[:3] == [10, 10, 10]
    np.testing.assert_array_equal(watch_edges(np.array([5, 10, 50])), [0, 1, 2, 3])


# ------------------------------------------------------------------ refusals
def refusal(losses, sizes=SIZES, **options):
    with pytest.raises(NumericalFailure, match="not to be trusted") as found:
        forecast(sizes, losses, RATES[: losses[0].shape[0]], TARGET, **options)
    result = found.value.result
    assert isinstance(result, Forecast)
    assert all(reason in str(result) for reason in result.reasons)
    return " ".join(result.reasons)


def test_every_rule_refuses_what_it_is_for():
    right = made(power(1.0), 0.1)
    assert not forecast(SIZES, right, RATES[:3], TARGET).reasons
    assert "rule 2: fewer than 4 seeds of 128" in refusal([*right[:2], right[2][:, :3]])
    centre = right[0].mean(1, keepdims=True)
    assert "rule 3" in refusal([centre + 0.01 * (right[0] - centre), *right[1:]])
    assert "rule 4" in refusal([a.mean(1, keepdims=True) + 9 * a - 9 * a.mean() for a in right])
    assert "rule 5" in refusal(made(lambda x: 0.3 * x**0.25, 0.005))
    assert "rule 6" in refusal(made(lambda x: 0.3 * (x - 2) ** 2, 0.005))
    assert "rule 7" in refusal(made(lambda x: -0.3 * np.log(x), 0.005))
    assert "rule 1: of two sizes" in refusal(right[1:], SIZES[1:])


def test_rates_at_which_pilots_diverge_are_left_out():
    losses = made(power(1.0), 0.3)
    losses[0][2, 1, -1] = np.inf
    found = forecast(SIZES, losses, RATES[:3], TARGET)
    assert found.data.sizes["lr"] == 2
    assert f"pilots diverge at {RATES[2]:.3g}" in found.notes[0]
    for a in losses:
        a[:, 0, 0] = np.nan
    with pytest.raises(InvalidInput, match="diverge at every rate"):
        forecast(SIZES, losses, RATES[:3], TARGET)


@pytest.mark.slow
def test_plans_that_are_not_verified_have_no_forecast():
    def mlp(width):
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def plan(**options):
        return scale(mlp, {"width": 8}, {"width": 16}, **options)

    losses = made(power(1.0), 0.3)
    right = plan(scheme="mup")
    found = forecast(SIZES[1:], losses[1:], RATES[:3], TARGET, plan=right)
    assert "two sizes cannot check" in found.notes[0]
    assert "not verified" in refusal(losses, plan=plan(scheme="mup", verify=False))
    assert "'standard'" in refusal(losses, plan=plan(scheme="standard", verify=False))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"sizes": [32, 64]}, "losses: wanted 2 arrays"),
        ({"sizes": [64, 64, 128]}, "sizes: wanted two sizes"),
        ({"rates": [0.1]}, "losses: wanted 1 rates"),
        ({"size": 64}, "size: wanted at least the widest"),
        ({"steps": [1, 2]}, "steps: wanted 4"),
        ({"losses": [np.ones((3, 1, 4))] * 3}, "of one seed"),
        ({"losses": [np.ones((3, 2, 4)), *[np.ones((3, 2, 5))] * 2]}, "the same steps"),
        ({"plan": "mup"}, "plan: wanted a plan"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    right = {"sizes": SIZES, "losses": made(power(1), 0.3), "rates": RATES[:3], "size": TARGET}
    with pytest.raises(InvalidInput, match=words):
        forecast(**(right | wrong))


# ------------------------------------------------------------------ tables and sweeps
def rows_of(losses, rates=RATES):
    for n, a in zip(SIZES, losses, strict=True):
        for i, j, t in np.ndindex(a.shape):
            yield {"d_model": n, "lr": rates[i], "seed": j, "step": t + 1, "loss": a[i, j, t]}


def test_tables_and_files_are_arrays(tmp_path):
    losses = made(power(1.0), 0.1)
    wanted = forecast(SIZES, losses, RATES[:3], TARGET)
    rows = list(rows_of(losses))
    frame = {name: np.array([row[name] for row in rows])[::-1] for name in rows[0]}
    with (tmp_path / "pilots.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([*rows, {"step": 7}])  # a row without a loss, as of an evaluation
    frames = frame, xarray.Dataset({k: ("row", v) for k, v in frame.items()}).to_dataframe()
    for table in (*frames, tmp_path / "pilots.csv"):
        pilots = Pilots.from_table(table, {"size": "d_model"})
        xarray.testing.assert_allclose(pilots.forecast(TARGET).data, wanted.data)
        assert pilots.cost(TARGET) == pytest.approx(24 * (16 + 4 + 1) / 16 / 16)
    with pytest.raises(InvalidInput, match=r"no column 'size' or 'width'.*columns="):
        Pilots.from_table(frame)
    with pytest.raises(InvalidInput, match="different steps"):
        Pilots.from_table({k: np.delete(v, 3) for k, v in frame.items()}, {"size": "d_model"})


@pytest.fixture(scope="module")
def swept():
    def mlp(width):
        hidden = nn.Linear(width, width)
        return nn.Sequential(nn.Linear(8, width), nn.ReLU(), hidden, nn.ReLU(), nn.Linear(width, 2))

    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(960, 8)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    task = Task(x, y, batch_size=16, steps=60, x_final=x[:320], y_final=y[:320])
    grid = Grid(
        lrs=[2.0**-k for k in (8, 7, 6, 5)], base=16, widths=[16, 32, 64], schemes=["mup"],
        seeds={16: 8, 32: 6, 64: 4},
    )  # fmt: skip
    return sweep(mlp, task, grid, optimizer="adam"), grid


def test_sweeps_of_several_widths_and_seeds_have_a_forecast(swept, tmp_path):
    losses, grid = swept
    counts = losses.data["loss"].notnull().sum("seed").squeeze()
    assert counts.isel(lr=0).values.tolist() == [8, 6, 4]
    assert np.isfinite(losses.best()["loss"]).all()
    assert losses.best()["trains"].any()
    wide = losses.forecast(width=256)
    assert wide.cost == pytest.approx(grid.cost(256))
    assert wide.data["time"].values[-1] == 60
    assert losses.forecast(256, of="loss").data.sizes["time"] == 1
    arrays = [
        losses.data["loss_train"].sel(width=n).squeeze().dropna("seed").transpose("lr", "seed", ...)
        for n in (16, 32, 64)
    ]
    same = forecast([16, 32, 64], [a.values for a in arrays], grid.lrs, 256)
    np.testing.assert_allclose(same.data["loss"], wide.data["loss"])
    assert str(lg.load(wide.save(tmp_path / "wide.nc"))) == str(wide)
    assert "bordelon2023dynamics" in lg.cite(wide)
    named = {str(k): v.attrs["long_name"] for k, v in wide.to_xarray().variables.items()}
    assert named["size"] == "size of the pilots"
    for found in (wide, losses.forecast(256, of="loss"), wide.monitor(np.ones(60), 2.0**-6)):
        assert len(found.plot(tmp_path / "picture.png").axes) == 2
    assert len(wide.plot(what="rates").axes) == 1


def test_sweeps_without_a_verified_plan_have_none(swept):
    losses, _ = swept
    bare = losses.data.copy()
    del bare.attrs["verified"]
    with pytest.raises(NumericalFailure, match="rule 1: the plan was not verified"):
        Sweep(bare).forecast(256)
    standard = Sweep(losses.data.assign_coords(scheme=["standard"]))
    with pytest.raises(NumericalFailure, match="rule 1: under the scheme 'standard'"):
        standard.forecast(256)
    with pytest.raises(InvalidInput, match="fewer than two widths"):
        Sweep(losses.data.sel(width=[16])).forecast(256)
    with pytest.raises(InvalidInput, match="depth: wanted one of"):
        losses.forecast(256, depth=3)


def test_models_that_need_it_are_shown_the_inputs_of_the_task():
    """A learnt embedding of places has one length, which inputs that are generated have not."""

    class Words(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.token, self.place = nn.Embedding(5, width), nn.Embedding(7, width)
            self.head = nn.Linear(width, 5)

        def forward(self, ids):
            return self.head(torch.tanh(self.token(ids) + self.place.weight))

    ids = np.random.default_rng(0).integers(0, 5, (16, 8))
    task = Task(ids[:, :-1], ids[:, 1:], batch_size=4, steps=2)
    found = sweep(Words, task, Grid(lrs=[0.1], base=8, widths=[8, 16], schemes=["mup"]))
    assert np.isfinite(found.data["loss"]).all()
    assert found.data["depth"].values.tolist() == [1]
