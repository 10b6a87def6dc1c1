"""What the user sees: agreement with simpler theories, errors that are honest, refusals."""

from functools import partial

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.theories import DeepMeanField
from largen.theories.mean_field.deep.estimation import replicates as repeated

solve = partial(lg.solve, theory="mean field, deep")

RNG = np.random.default_rng(4)
X, XT = RNG.standard_normal((5, 6)), RNG.standard_normal((2, 6))
Y, YT = np.array([1.0, -1.0, 0.5, 1.0, -1.0]), np.ones(2)
DATA = lg.Dataset(X, Y, XT, YT)


def run_of(layers, activation="tanh", *, param=None, optimizer=None, steps=20, times=None, **net):
    return lg.Run(
        lg.mlp(layers, activation, **net),
        param or lg.mean_field(1.0),
        DATA,
        optimizer=optimizer or lg.gd(0.5),
        steps=None if times else steps,
        times=times,
    )


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        run_of(1, bias_std=0.5, optimizer=lg.gd(0.4, momentum=0.5, weight_decay=0.1)),
        run_of(1, optimizer=lg.gradient_flow(), times=[1.0, 3.0, 6.0]),
    ],
    ids=["momentum and decay", "flow"],
)
def test_one_hidden_layer(run):
    deep = solve(run, record_pairs=[(3, 1)])
    single = lg.solve(run, theory="mean field, one hidden layer", rtol=5e-4, record_pairs=[(3, 1)])
    for what in ("f_train", "f_test"):
        error = np.linalg.norm(getattr(deep, f"{what}_error"))
        assert error < 0.01 * np.linalg.norm(getattr(single, what))
        assert np.linalg.norm(getattr(deep, what) - getattr(single, what)) < 3 * error
    pairs = ("feature_kernel_pair", "gradient_kernel_pair")
    for what in ("feature_kernel", "gradient_kernel", "ntk", *pairs):
        assert relative(getattr(deep, what), getattr(single, what)) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3])
def test_with_the_read_out_alone_features_stand_still(layers):
    """Whatever γ₀: f ← f + (η₀/P)ΦΔ with the kernel at initialisation."""
    param = lg.mean_field(2.0).with_rates({"input": 0.0, "hidden": 0.0})
    run = run_of(layers, param=param, optimizer=lg.gd(1.0, weight_decay=0.1), steps=8)
    limit = lg.solve(run, **({"particles": 512, "replicates": 2} if layers > 1 else {}))
    phi, f = lg.nngp_kernel(run.net, X, X), np.zeros(5)
    for step in range(8):
        f = 0.9 * f + phi @ (Y - f) / 5
        np.testing.assert_allclose(limit.f_train[step + 1], f, atol=3e-3)


@pytest.mark.slow
def test_small_gamma_is_the_kernel_limit():
    """Whatever the number of neurons: what their tangent kernel is short of stands beside them."""
    optimizer = lg.sgd(0.3, batch_size=2, momentum=0.3)
    lazy = run_of(3, param=lg.ntk(), optimizer=optimizer)
    kernel = lg.solve(lazy)
    off = {}
    for gamma in (0.02, 0.08):
        run = run_of(3, param=lg.mean_field(gamma), optimizer=optimizer)
        limit = solve(run, particles=512, replicates=1, rtol=1e-4, record_at=[0])
        np.testing.assert_allclose(limit.ntk[0], kernel.ntk, atol=1e-9)
        off[gamma] = [
            relative(getattr(limit, f), getattr(kernel, f)) for f in ("f_train", "f_test")
        ]
    assert max(off[0.02]) < 5e-3
    ratios = np.divide(off[0.08], off[0.02])
    assert (ratios > 4).all()  # the first correction is of order γ₀²
    assert (ratios < 24).all()


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.15, 0.5], ids=["smooth", "edge of stability"])
def test_error_is_honest(lr):
    """At the edge of stability errors are large, in what is left out and in what is random."""
    run = run_of(3, param=lg.mean_field(1.5), optimizer=lg.gd(lr), steps=30)
    best = solve(run, replicates=6, particles=2048, rtol=2e-3, key=9, record_at=[])
    ratios = []
    for key in range(2):
        found = solve(run, replicates=4, particles=512, key=key, record_at=[])
        error = np.hypot(found.f_train_error, best.f_train_error)
        ratios.append(np.linalg.norm(found.f_train - best.f_train) / np.linalg.norm(error))
    assert 0.2 < np.sqrt(np.mean(np.square(ratios))) < 2


@pytest.mark.slow
def test_rtol_is_reached_or_reported():
    run = run_of(2)
    found = solve(run, rtol=4e-3, particles=512)
    assert np.linalg.norm(found.f_train_error) < 5e-3 * np.linalg.norm(found.f_train)
    short = solve(run, rtol=5e-4, particles=512, max_particles=2048)
    assert "raise max_particles" in short.notes[0]


@pytest.mark.slow
def test_full_bases_are_grown(monkeypatch):
    run = run_of(2, steps=10)
    options = {"replicates": 1, "particles": 256, "rtol": 1e-4, "record_at": [10]}
    roomy = solve(run, **options)
    monkeypatch.setattr("largen.theories.mean_field.deep.matrices.row_buffers.BLOCK", 16)
    monkeypatch.setattr(repeated, "first_capacities", lambda *_: (48, 48))
    grown = solve(run, **options)
    assert int(grown.notes[0].split("ranks up to ")[1].split(")")[0]) > 40
    np.testing.assert_allclose(grown.f_train, roomy.f_train, atol=1e-9)
    np.testing.assert_allclose(grown.ntk, roomy.ntk, atol=1e-9)


@pytest.mark.slow
def test_depth_two_chooses_the_deep_theory_and_says_so():
    told = []
    limit = lg.solve(run_of(2), replicates=2, progress=lambda *told_now: told.append(told_now))
    assert [total for _, total in told] == [200] * len(told)
    assert 150 < max(done for done, _ in told) <= 200
    assert limit.theory == "mean field, deep"
    assert "2 hidden layers" in limit.reason
    assert limit.f_train.dtype == np.float64
    assert limit.f_test.shape == (21, 2)
    assert limit.feature_kernel.shape == limit.gradient_kernel.shape == (2, 2, 5, 5)
    assert list(limit.record_step) == [0, 20]
    assert np.abs(limit.f_train[0]).max() < 1e-6


@pytest.mark.slow
def test_kernels_and_neurons_on_request():
    run = run_of(2, "tanh", steps=5)
    found = solve(
        run,
        replicates=2,
        record=["feature_kernel", "gradient_kernel", "ntk"],
        sample_neurons=512,
        record_at=[0, 5],
        record_pairs=[(5, 0), (5, 5)],
    )
    assert found.ntk_test.shape == (2, 2, 5)
    np.testing.assert_allclose(
        found.ntk_test[0], lg.kernel(run.net, XT, X).ntk, atol=5 * found.ntk_test_error[0].max()
    )
    assert found.neuron_h.shape == found.neuron_g.shape == (2, 2, 512, 5)
    phi = np.tanh(found.neuron_h)
    sampled = np.einsum("rlis,rlit->rlst", phi, phi) / 512
    np.testing.assert_allclose(sampled, found.feature_kernel, atol=0.15)
    across = np.einsum("lis,lit->lst", phi[1], phi[0]) / 512
    np.testing.assert_allclose(across, found.feature_kernel_pair[0], atol=0.15)
    for name in ("feature_kernel", "gradient_kernel"):
        equal = getattr(found, f"{name}_pair")[1]
        np.testing.assert_allclose(equal, getattr(found, name)[1], rtol=1e-3, atol=1e-4)
    sampled = np.einsum("rlis,rlit->rlst", found.neuron_g, found.neuron_g) / 512
    assert relative(sampled, found.gradient_kernel) < 0.2
    np.testing.assert_allclose((1 - phi**2) * found.neuron_z, found.neuron_g, atol=1e-5)
    # The read-out is the same for all samples at first.
    np.testing.assert_allclose(np.ptp(found.neuron_z[0, -1], axis=-1), 0, atol=1e-6)
    assert found.neuron_z[0, -1].std() == pytest.approx(1, rel=0.15)


@pytest.mark.slow
def test_records_see_what_steps_have_seen():
    """Records that ask for more than that make passes of their own, which change nothing else."""
    options = {"replicates": 2, "particles": 512, "record_at": [0, 3, 5], "record_pairs": [(5, 0)]}
    run = run_of(2, "tanh", steps=5)
    whole, few = solve(run, **options), solve(run, sample_neurons=1, **options)
    kernels = [f"{name}_kernel{pair}" for name in ("feature", "gradient") for pair in ("", "_pair")]
    for name in ("f_train", "ntk", *kernels):
        # What is rounded otherwise has directions of its own, as large as the tolerance of them.
        assert relative(getattr(whole, name), getattr(few, name)) < 1e-3


@pytest.mark.slow
def test_a_solution_is_taken_up_where_it_stopped(tmp_path, monkeypatch):
    run, file = run_of(2, "tanh", steps=5), tmp_path / "limit.npz"
    whole = solve(run, replicates=3, particles=512)
    solve(run, replicates=2, particles=512, checkpoint=file)
    made = []
    sweep = repeated.advance
    monkeypatch.setattr(repeated, "advance", lambda *a, **k: made.append(1) or sweep(*a, **k))
    rest = solve(run, replicates=3, particles=512, checkpoint=file)
    assert len(made) == 1
    np.testing.assert_array_equal(rest.f_train, whole.f_train)
    np.testing.assert_array_equal(rest.ntk_error, whole.ntk_error)
    with pytest.raises(InvalidInput, match="checkpoint"):
        solve(run, replicates=3, particles=1024, checkpoint=file)
    monkeypatch.setattr("largen.theories.mean_field.engine.checkpoint.FORMAT", 1)
    with pytest.raises(InvalidInput, match="another format"):
        solve(run, replicates=3, particles=512, checkpoint=file)


def test_an_error_that_is_not_known_is_not_told_as_small(monkeypatch):
    """With a finer tolerance the sweep fails, as it does where neurons are few."""
    sweep, tolerances = repeated.advance, []

    def failing(model, state, constants, *args, **options):
        found = sweep(model, state, constants, *args, **options)
        tolerances.append(float(constants.precision.tolerance))
        late = (np.arange(len(found.outputs)) > 3)[:, None, None]
        finer = tolerances[-1] < max(tolerances)
        return found._replace(outputs=np.where(late & finer, np.nan, found.outputs))

    monkeypatch.setattr(repeated, "advance", failing)
    found = solve(run_of(2, "tanh", steps=5), replicates=2, particles=512)
    assert np.isfinite(found.f_train).all()
    assert np.isnan(found.f_train_error[4:]).all()
    assert "the error is not known" in str(found)
    assert "estimated error" not in str(found)


@pytest.mark.slow
def test_divergence():
    run = run_of(2, "linear", optimizer=lg.gd(60.0), steps=40)
    with pytest.raises(NumericalFailure, match="Lower the learning rate") as caught:
        solve(run)
    assert caught.value.result.status == "diverged"
    assert solve(run, throw=False).status == "diverged"
    run = run_of(1, "relu", optimizer=lg.gd(300.0), steps=40)
    assert solve(run, throw=False, replicates=2, record_at=[]).status == "diverged"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"particles": 16}, "particles: wanted at least"),
        ({"rtol": 0.0}, "rtol"),
        ({"record_at": [21]}, "time indices within 0 … 20"),
        ({"record_pairs": [(0, 21)]}, "time indices within 0 … 20"),
    ],
)
def test_wrong_input(options, words):
    with pytest.raises(InvalidInput, match=words):
        solve(run_of(2), **options)


def test_pairs_of_entries():
    assert run_of(2).pairs("record_pairs", [(3, 1), (0, 0), (3, 1)]).tolist() == [[3, 1], [0, 0]]
    with pytest.raises(InvalidInput, match="record_pairs: wanted a list of pairs"):
        run_of(2).pairs("record_pairs", [3])


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(2, param=lg.ntk()), "kernel limit"),
        (run_of(2, optimizer=lg.adam(0.1)), "Adam"),
        (
            lg.Run(
                lg.serial(
                    lg.Dense(),
                    lg.Residual(lg.serial(lg.Activation("relu"), lg.Dense()), lg.Dense()),
                    lg.Activation("relu"),
                    lg.Dense(),
                ),
                lg.mean_field(),
                DATA,
                optimizer=lg.gd(0.1),
                steps=3,
            ),
            "shortcut",
        ),
    ],
)
def test_refusals(run, words):
    with pytest.raises(NoTheory, match=words):
        DeepMeanField.covers(run)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", pytest.param("relu", marks=pytest.mark.slow)])
def test_inputs_that_vanish(activation):
    zero = lg.Dataset(np.zeros((3, 4)), Y[:3], np.zeros((2, 4)), YT)
    run = lg.Run(lg.mlp(2, activation), lg.mean_field(), zero, optimizer=lg.gd(0.3), steps=3)
    limit = lg.solve(run)
    assert limit.status == "ok"
    assert not limit.f_train.any()
    assert not limit.f_test.any()
    with pytest.raises(NoTheory, match="do not fluctuate"):
        lg.training.width_corrections_in_training(run, width=8, replicates=2)
