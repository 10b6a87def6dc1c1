"""Distances and exponents on trajectories whose law is known by construction."""

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput
from largen.experiments import fit_exponent

WIDTHS = (16, 32, 64, 128, 256)
X = np.random.default_rng(0).standard_normal((12, 3))
Y = np.sign(X[:, 0])
RUN = lg.Run(
    lg.mlp(1, "tanh"),
    lg.mean_field(),
    lg.Dataset(X[:6], Y[:6], X[6:], Y[6:]),
    optimizer=lg.gd(0.1),
    steps=20,
)
MEAN_FIELD = "mean field, one hidden layer"


def limit(**more):
    f = np.cumsum(np.random.default_rng(1).standard_normal((21, 6)), 0)
    return lg.Trajectory.of(RUN, f, f, theory=MEAN_FIELD, reason="made up", **more)


def networks(width, seeds, single=2.0, shift=5.0, power=1.0, seed=0):
    """f_limit + single·N^(−1/2)·noise + shift·N^(−power), with smooth noise in time."""
    rng = np.random.default_rng([width, seed])
    noise = rng.standard_normal((seeds, 1, 6))
    f = limit().f_test + single * width**-0.5 * noise + shift * width**-power
    return lg.Trajectory.of(RUN, f, f, theory="finite", reason="made up", seeds=seeds, width=width)


def test_distances_are_unbiased_and_their_errors_right():
    """Over repetitions: the mean of estimates against the truth, in units of their error."""
    width, seeds, repeats = 64, 30, 60
    square, error, single, single_error = [], [], [], []
    for r in range(repeats):
        d = lg.compare(limit(), networks(width, seeds, shift=1.0, seed=r + 1)).to_xarray()
        square.append(float(d["mean"][0]) ** 2)
        error.append(2 * float(d["mean"][0] * d["mean_error"][0]))
        single.append(float(d["single"][0]))
        single_error.append(float(d["single_error"][0]))
    # Truth: ⟨d²⟩ = 4/64 + 1/64² for one network; the shift alone, 1/64, for the mean. Shift and
    # noise of the mean, 2/8/√30, are comparable: without the correction the mean would be 0.048.
    truth = np.sqrt(4 / width + 1 / width**2)
    z = (np.mean(single) - truth) / (np.std(single) / np.sqrt(repeats))
    assert abs(z) < 3
    assert 0.7 < np.mean(single_error) / np.std(single) < 1.3
    # Estimates of the square that come out negative are shown as zero, so the clipped mean lies
    # a little above the truth; it must be far below the uncorrected one.
    assert np.mean(square) < 0.25 * 4 / width / seeds + 1 / width**2


def test_resolved_shift_is_recovered():
    d = lg.compare(limit(), networks(32, 2000)).to_xarray()
    value, error = float(d["mean"][0]), float(d["mean_error"][0])
    assert abs(value - 5 / 32) < 3 * error
    assert error < 0.1 * value


@pytest.mark.parametrize(("power", "expected"), [(1.0, -1.0), (0.5, -0.5)])
def test_exponents_of_known_laws(power, expected):
    report = lg.compare(limit(), [networks(n, 400, power=power) for n in WIDTHS])
    mean = report.exponents["mean"]
    assert abs(mean.value - expected) < 3 * mean.error
    assert mean.error < 0.15


def test_single_network_exponent():
    report = lg.compare(limit(), [networks(n, 400, shift=0.0) for n in WIDTHS])
    single = report.exponents["single"]
    assert abs(single.value + 0.5) < 3 * single.error
    assert single.error < 0.05
    assert not report.exponents["mean"].resolved


def test_order_of_widths_does_not_matter():
    nets = [networks(n, 50) for n in WIDTHS]
    a, b = lg.compare(limit(), nets), lg.compare(limit(), nets[::-1])
    assert a.exponents["single"].value == pytest.approx(b.exponents["single"].value, abs=0.01)
    np.testing.assert_array_equal(a.to_xarray()["width"], WIDTHS)


def test_report_says_what_is_below_its_error():
    text = str(lg.compare(limit(), [networks(n, 10, shift=0.0) for n in WIDTHS]))
    assert "below" in text
    assert "exponent" in text
    assert all(str(n) in text for n in WIDTHS)


def test_error_of_the_limit_bounds_what_is_resolved():
    error = np.full((21, 6), 0.1)
    blurred = limit(extra={"f_test_error": (("step", "test_sample"), error)})
    report = lg.compare(blurred, [networks(n, 400) for n in (64, 128, 256)])
    assert report.to_xarray().attrs["limit_error"] == pytest.approx(0.1)
    assert not report.exponents["mean"].resolved


def test_picture(tmp_path):
    report = lg.compare(limit(), [networks(n, 20) for n in WIDTHS])
    figure = report.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    assert len(figure.axes) == 3


def test_power_law_fit():
    sizes = np.array([10.0, 20, 40, 80])
    fit = fit_exponent(sizes, (3 * sizes**-0.75) ** 2, 1e-6 * sizes**-1.5)
    assert fit.value == pytest.approx(-0.75, abs=1e-9)
    assert not fit_exponent(sizes, np.array([1.0, 0.1, 0.1, 0.1]), np.full(4, 0.2)).resolved


def test_power_law_fit_is_unbiased_by_unresolved_points():
    """Over repetitions with most points in the noise: mean and spread against truth and error."""
    sizes = np.array([32.0, 64, 128, 256, 512, 1024])
    truth, noise = (0.6 / sizes) ** 2, np.full(6, 1e-5)
    rng = np.random.default_rng(0)
    fits = [fit_exponent(sizes, truth + noise * rng.standard_normal(6), noise) for _ in range(300)]
    values = np.array([f.value for f in fits])
    z = np.array([(f.value + 1) / f.error for f in fits])
    assert np.isfinite(values).all()
    assert abs(values.mean() + 1) < 0.05
    assert 0.5 < np.std(z) < 1.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda: (networks(16, 2), [networks(16, 2)]), "limit"),
        (lambda: (limit(), []), "at least one"),
        (lambda: (limit(), [limit()]), "wanted results of lg.train"),
    ],
)
def test_wrong_input_is_refused_by_name(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        lg.compare(*arguments())


def test_networks_of_another_run_are_refused():
    other = lg.Run(RUN.net, lg.mean_field(2.0), RUN.data, optimizer=RUN.optimizer, steps=20)
    f = np.zeros((2, 21, 6))
    nets = lg.Trajectory.of(other, f, f, theory="finite", reason="", seeds=2, width=8)
    with pytest.raises(InvalidInput, match="parameterization at width 8 is mean_field"):
        lg.compare(limit(), nets)


def test_a_limit_of_infinite_depth_from_a_file(tmp_path):
    data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    limit, one, two = (
        lg.Run(
            lg.residual_mlp(blocks, "linear"), lg.depth_mup(), data, optimizer=lg.gd(0.1), steps=1
        )
        for blocks in (float("inf"), 1, 3)  # one block is no repetition
    )
    nets = [lg.train(run, width=8, seeds=3, key=0) for run in (one, two)]
    found = [
        lg.Trajectory.load(each.save(tmp_path / f"{i}.nc"))
        for i, each in enumerate((lg.solve(limit), *nets))
    ]
    assert [type(each.depth) for each in found] == [float, int, int]
    assert [type(each.width) for each in found] == [type(None), int, int]
    report = lg.compare(found[0], found[1:])
    assert report.to_xarray()["depth"].values.tolist() == [1, 3]
    assert report.depth_exponents is not None


@pytest.mark.parametrize("loss", ["mse", pytest.param("cross_entropy", marks=pytest.mark.slow)])
def test_the_loss_of_the_kernel_limit_is_the_mean_over_random_starts(loss):
    """Of very wide networks the mean loss is that; the loss of their mean output is below."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 3))
    y = np.sign(x[:, 0]) if loss == "mse" else (x[:, 0] > 0).astype(int)
    data = lg.Dataset(x[:5], y[:5], x[5:], y[5:])
    run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, loss=loss, optimizer=lg.gd(1.0), steps=6)
    limit, nets = lg.solve(run), lg.train(run, width=512, seeds=400, key=1)
    for on in ("train", "test"):
        found = lg.compare(limit, nets, on=on).to_xarray()["loss_limit"].values
        losses = getattr(nets, f"loss_{on}")
        error = losses.std(0) / 20 + (0.01 if loss == "mse" else 0.03) * found
        assert (np.abs(losses.mean(0) - found) < 3.5 * error).all()
        of_mean = getattr(limit, f"loss_{on}")
        assert losses.mean(0)[0] - of_mean[0] > 3 * losses.std(0)[0] / 20
