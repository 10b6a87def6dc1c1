"""Shift and variance in training to order 1/width: closed forms, linear response, networks."""

import numpy as np
import pytest

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation.by_layers import Settings, corrections, replicate
from largen.theories.mean_field.deep.sweep.state import Kept
from largen.theories.mean_field.record_times import NOTHING

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((3, 5)), rng.standard_normal(3)


def run_of(layers, steps=16, x=X, y=Y, gamma=1.0, rate=0.5, **options):
    net = options.pop("net", None) or lg.mlp(layers, options.pop("activation", "tanh"))
    optimizer = options.pop("optimizer", lg.gd(rate))
    param = options.pop("param", lg.mean_field(gamma))
    return lg.Run(net, param, lg.Dataset(x, y, *options.pop("test", ())), optimizer=optimizer,
                  steps=steps)  # fmt: skip


def z_scores(found, name, expected):
    """Return z-scores of a variable after the first step."""
    value, error = found.data[name].values, found.data[f"{name}_error"].values
    return (value - expected)[1:] / error[1:]


@pytest.mark.slow
def test_one_step_of_a_linear_network():
    """With x = 1: E f(1) = 2ηy − 2η²y/N exactly, and Var f(1) by its linear fluctuations."""
    eta, y, gamma = 0.4, 1.3, 0.8
    one, target = np.ones((1, 1)), np.array([y])
    run = run_of(1, 1, one, target, gamma, eta, activation="linear")
    found = lg.training.width_corrections_in_training(run, width=256, replicates=300, key=1)
    shift = -2 * eta**2 * y
    start = 1 / gamma**2
    variance = (1 - 2 * eta + (eta * gamma * y) ** 2) ** 2 * start + (2 * eta * y) ** 2
    assert np.abs(z_scores(found, "f_train_shift", shift)).max() < 3
    assert np.abs(z_scores(found, "f_train_variance", variance)).max() < 3
    np.testing.assert_allclose(found.data["f_train_shift"][0], 0, atol=0.1)
    np.testing.assert_allclose(found.data["f_train_variance"][0], start, rtol=0.25)
    assert found.data["f_train_shift_error"][1, 0] < 0.3 * abs(shift)


@pytest.mark.slow
def test_one_hidden_layer_has_the_variance_of_linear_response():
    run = run_of(1, 8)
    found = lg.training.width_corrections_in_training(run, width=256, replicates=200, key=2)
    expected = lg.solve(run, fluctuations=True, rtol=1e-2).f_train_fluctuation ** 2
    assert np.abs(z_scores(found, "f_train_variance", expected)).max() < 4


@pytest.mark.slow
def test_read_out_s_layer_causes_the_variance_of_initial_outputs():
    run = run_of(3, 1, gamma=0.7)
    found = lg.training.width_corrections_in_training(run, width=128, replicates=80, key=3)
    kernel = lg.nngp_kernel(run.net, X)
    parts = found.data["f_train_variance_of_layers"][:, 0]
    error = found.data["f_train_variance_of_layers_error"][:, 0]
    expected = np.diag(kernel) / 0.7**2
    assert np.abs((parts[-1] - expected) / error[-1]).max() < 4
    assert parts[:-1].max() < 0.05 * expected.min()  # of order 1/N
    np.testing.assert_allclose(found.shares.sum(), 1)


@pytest.mark.slow
def test_what_two_layers_cause_together_is_counted_twice():
    """Σ V_l − I is N Var f of the same networks."""
    N, R = 16, 400
    x = np.random.default_rng(3).standard_normal((12, 12))
    run = run_of(2, 6, x, np.sign(x[:, 0]), rate=1.0)
    settings = Settings(N, np.float32, Kept(False), draws=True)
    given = posed_by(run).problem, run, NOTHING, settings, np.random.default_rng(1)
    found = corrections(*given, 0.1, R, R, lambda done, total: None)
    V = found.summed.sum(1)
    quadratic = (found.quadratic_at * found.variance["f"].total.sum((1, 2))).sum()
    joint = (found.next_order * V.mean() - quadratic) / 2
    f = found.drawn[1].reshape(R, -1)
    more = V - N * ((f - f.mean(0)) ** 2).sum(1) * R / (R - 1)
    error = more.std() / R**0.5
    assert abs(more.mean() - joint) < 3 * error
    assert more.mean() > 5 * error


@pytest.mark.slow
def test_kernels_of_dense_networks_have_this_shift_and_variance():
    """c = 2N(E K_N − E K_2N) and V = N Var K of dense networks of two hidden layers."""
    run = run_of(2, 4, X[:2], 1.5 * Y[:2], activation="linear")
    record = {"record": ["feature_kernel", "gradient_kernel", "ntk"], "record_at": [4]}
    found = lg.training.width_corrections_in_training(
        run, width=64, replicates=100, key=3, **record
    ).data
    nets = {n: lg.train(run, width=n, seeds=8000, key=n, **record) for n in (32, 64)}

    def mean_and_error(x):
        return x.mean(0), x.std(0, ddof=1) / len(x) ** 0.5

    def z(what, expected, error):
        total = np.hypot(found[f"{what}_error"], error)
        return np.abs((found[what].values - expected) / total.values).max()

    for name in ("feature_kernel", "gradient_kernel", "ntk"):
        narrow, wide = (getattr(nets[n], name) for n in (32, 64))
        (one, one_error), (two, two_error) = map(mean_and_error, (narrow, wide))
        assert z(f"{name}_shift", 64 * (one - two), 64 * np.hypot(one_error, two_error)) < 3
        assert z(f"{name}_variance", *mean_and_error(64 * (wide - two) ** 2)) < 3
    # What is asked for is seen well enough to tell it from none, and from half of it.
    assert np.abs(found["ntk_shift"] / found["ntk_shift_error"]).max() > 8


def variance_of_one_step(ratios, eta, y, gamma):
    """V of the two layers of a linear network with x = 1, y after one step, per unit of width.

    With N_l = n_l N, q₁ = |h₁|²/N₁, q₂ = |h₂|²/N₂, s = |w|²/N₂, p = |Wᵀw|²/(N₁N₂) and g = ηγy,

        γ f(1) = (1 + 2g²(1/n₁ + 1/n₂) − 3η) γ f(0) + g (q₂ + q₁ s + p) + g² e + O(1/N).

    The neurons of the first layer cause the fluctuations of q₁, of p/s, and e, whose variances are
    2/N₁, 2/N₁ and 1/(N₁n₂); those of the second cause those of q₂/q₁, s and γ f(0), whose variances
    are 2/N₂, 2/N₂ and 1/N.
    """
    first, second = ratios
    g = eta * gamma * y
    slope = 1 + 2 * g**2 * (1 / first + 1 / second) - 3 * eta
    step = 10 * (eta * y) ** 2
    of_first = (step + (g**2 / gamma) ** 2 / second) / first
    return np.array([of_first, slope**2 / gamma**2 + step / second])


@pytest.mark.long_loops
@pytest.mark.slow
def test_layers_of_unequal_widths_cause_their_parts_of_the_variance():
    eta, y, gamma, ratios = 0.3, 1.3, 0.8, (1, 3)
    net = lg.mlp(2, "linear", width_ratios=list(ratios))
    run = run_of(2, 1, np.ones((1, 1)), np.array([y]), gamma, eta, net=net)
    found = lg.training.width_corrections_in_training(run, width=128, replicates=120, key=2).data
    parts, error = (
        found[f"f_train_variance_of_layers{tail}"].values[:, 1, 0] for tail in ("", "_error")
    )
    expected = variance_of_one_step(ratios, eta, y, gamma)
    assert np.abs((parts - expected) / error).max() < 3
    exchanged = variance_of_one_step(ratios[::-1], eta, y, gamma)
    assert np.abs((parts - exchanged) / error).min() > 4
    # Dense networks of these widths have the sum.
    outputs = lg.train(run, width=128, seeds=4000, key=1).f_train[:, 1, 0]
    measured = 128 * outputs.var(ddof=1)
    noise = measured * (2 / len(outputs)) ** 0.5
    assert abs(measured - expected.sum()) < 3 * noise
    assert abs(measured - parts.sum()) < 3 * np.hypot(noise, np.linalg.norm(error))


@pytest.mark.slow
def test_error_of_the_shift_does_not_grow_with_the_width():
    run, deviations = run_of(2, 6), []
    problem = posed_by(run).problem
    for width in (32, 128):
        settings = Settings(width, np.float32, Kept())
        some = [replicate(problem, run, NOTHING, settings, i, lambda x: None) for i in range(24)]
        shift = np.stack([one.shift["f"].sum(0) for one in some])[:, 1:]
        deviations.append(np.sqrt(shift.var(0, ddof=1).mean()))
        variance = np.stack([one.variance["f"].sum(0) for one in some])[:, 1:].mean()
    assert deviations[1] < 1.4 * deviations[0]
    assert deviations[1] < 0.35 * np.sqrt(128 * variance)  # that of N (f − f_∞)


@pytest.mark.slow
def test_names_axes_and_picture(tmp_path):
    run = run_of(2, 3, test=(X[:2], Y[:2]))
    found = lg.training.width_corrections_in_training(
        run, width=8, replicates=4, record=["feature_kernel", "ntk"], record_at=[0, 3]
    )
    data = found.to_xarray()
    assert data["f_test_shift"].dims == ("step", "test_sample")
    assert data["feature_kernel_variance_of_layers"].dims == (
        "group", "record", "layer", "sample", "sample_2",
    )  # fmt: skip
    assert "gradient_kernel_shift" not in data
    assert data["ntk_test_variance"].shape == (2, 2, 3)
    assert all(np.isfinite(values).all() for values in data.data_vars.values())
    total = data["ntk_shift_of_layers"].sum("group")
    np.testing.assert_allclose(total, data["ntk_shift"], rtol=1e-9, atol=1e-9)
    assert "share of N Var f" in repr(found)
    found.plot(tmp_path / "corrections.png")
    assert (tmp_path / "corrections.png").stat().st_size > 1000


@pytest.mark.slow
def test_residual_streams_are_one_group():
    run = run_of(3, 2, net=lg.residual_mlp(2, "tanh"), param=lg.depth_mup(1.0))
    found = lg.training.width_corrections_in_training(run, width=16, replicates=4)
    assert list(found.data["group"].values) == ["1, 2, 3"]


@pytest.mark.slow
def test_number_of_replicates_follows_from_the_target():
    run, calls = run_of(1, 2), []
    found = lg.training.width_corrections_in_training(
        run, width=16, rtol=0.3, max_replicates=200, progress=lambda *done: calls.append(done)
    )
    count = found.data.attrs["replicates"]
    assert count == 200 or max(found.relative_errors.values()) <= 0.31
    assert calls[-1] == (100 * count, 100 * count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"optimizer": lg.optimizers.langevin(0.1, temperature=0.1)}, lg.errors.NoTheory, "noise"),
        ({"param": lg.ntk()}, lg.errors.NoTheory, "features"),
        ({"net": lg.mlp(2, "tanh", width_ratios=[1, 1.5])}, lg.errors.InvalidInput, "width: 5"),
        ({"rate": 1e4}, lg.errors.NumericalFailure, "diverge"),
    ],
)
def test_refusals(options, error, words):
    with pytest.raises(error, match=words):
        lg.training.width_corrections_in_training(run_of(2, 4, **options), width=5, replicates=2)


def test_gradient_flow_and_small_budgets_are_refused():
    flow = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), lg.Dataset(X, Y),
                  optimizer=lg.gradient_flow(1.0), times=[1.0])  # fmt: skip
    with pytest.raises(lg.errors.NoTheory, match="small steps"):
        lg.training.width_corrections_in_training(flow)
    with pytest.raises(lg.errors.OutOfMemory, match="memory_budget"):
        lg.training.width_corrections_in_training(run_of(2), memory_budget=1e3)
