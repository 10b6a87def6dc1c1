"""What every theory keeps to: it is covered by being registered.

Every theory solves the runs below that it covers; one that covers none of them needs another run
here.
"""

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from tests.interrupting import interrupted
from tests.own_layers import Unknown

import largen as lg
from largen import memory
from largen.errors import InvalidInput, NoRule, NoTheory, NumericalFailure, OutOfMemory
from largen.runs import Posed, Status
from largen.theories import registered
from largen.theories.registry import may_cover
from largen.theories.select import choose

X = np.random.default_rng(7).standard_normal((4, 3))
X, XT, Y, YT = X[:3], X[3:], np.array([1.0, -1.0, 1.0]), np.array([-1.0])
SCALINGS = {
    "kernel": lg.ntk(),
    "mean field": lg.mean_field(),
    "blocks": lg.complete_p(),
    "attention": lg.mean_field(0.3),
    "adaptive": lg.mup(),
    "adaptive, lazy": lg.abc(a=(0, "1/2", "1/2"), b=0, c=0, d="1/4"),
    "feedback": lg.mean_field(),
    "feedback, lazy": lg.ntk(),
}
RULES = {"adaptive": lg.adam, "feedback": lg.optimizers.feedback_alignment}


def rule_of(scaling):
    """Return the optimizer of a run, as a function of its rate."""
    return RULES.get(scaling.split(",")[0], lg.gd)


def run_of(scaling, layers, y=Y, yt=YT, dtype=float, **changed):
    attends = scaling == "attention"
    x, xt = (array[..., None] if attends else array for array in (X, XT))  # three tokens of one
    data = lg.Dataset(*(np.asarray(array, dtype) for array in (x, y, xt, yt)))
    optimizer = rule_of(scaling)(0.05 if scaling.startswith("adaptive") else 0.2)
    given = {"optimizer": optimizer, "steps": 2, **changed}
    if attends:
        block = lg.Residual(lg.serial(lg.QKVAttention(causal=True), lg.Dense()))
        net = lg.serial(lg.Dense(), lg.repeat(block, layers), lg.GlobalAvgPool(), lg.Dense())
    else:
        net = (lg.residual_mlp if scaling == "blocks" else lg.mlp)(layers, "erf")
    return lg.Run(net, SCALINGS[scaling], data, **given)


RUNS = [
    ("kernel", 1),
    ("mean field", 1),
    ("mean field", 2),
    ("blocks", math.inf),
    ("attention", 1),
    ("adaptive", 2),
    ("adaptive, lazy", 2),
    ("feedback", 2),
    ("feedback, lazy", 1),
]


def covers(theory, run):
    try:
        theory.pose(run)
    except (NoTheory, NoRule):
        return False
    return True


@pytest.mark.parametrize("which", RUNS, ids=str)
def test_what_is_asked_before_a_theory_is_imported_holds_where_it_covers_a_run(which):
    run = run_of(*which)
    likely = {theory for theory in registered() if may_cover(theory.name, run)}
    assert {theory for theory in registered() if covers(theory, run)} <= likely
    assert len(likely) < len(registered())


@cache
def case(theory):
    """Return a run that a theory covers, if possible one that ``lg.solve`` chooses it for."""
    covered = [which for which in RUNS if covers(theory, run_of(*which))]
    assert covered, f"{theory.name} covers none of the runs of these tests: add one"
    chosen = [which for which in covered if choose(run_of(*which))[0] is theory]
    return (chosen or covered)[0]


def ask(theory, options=(), **changed):
    return lg.solve(run_of(*case(theory), **changed), theory=theory, **dict(options))


@cache
def limit(theory):
    return ask(theory)


each_theory = pytest.mark.parametrize("theory", registered(), ids=lambda theory: theory.name)


@pytest.mark.slow
@each_theory
def test_status_words_axes_and_errors(theory):
    found, run = limit(theory), run_of(*case(theory))
    assert found.status is Status.OK
    assert (found.theory, found.reason) == (theory.name, theory.covers(run))
    assert (found.seeds, found.width) == (None, None)
    held = found.to_xarray()
    assert held.f_train.dims == ("step", "sample")
    assert held.f_test.dims == ("step", "test_sample")
    assert held.f_train.shape == (3, 3)
    assert held.f_test.shape == (3, 1)
    np.testing.assert_array_equal(found.time, run.times)
    for name, values in held.items():
        assert values.dtype == np.float64, name
        assert not np.isinf(values).any(), name
        of, _, error = str(name).rpartition("_error")
        if of and not error:
            assert values.dims == held[of].dims, name
        if "_tokens" in str(name):  # NaN at positions that a layer does not have, and there alone
            values = values.isel(layer=0)
        if of and not error:
            assert (values >= 0).all(), name
        else:
            assert np.isfinite(values).all(), name
    assert 0 < found.loss_train[-1] < found.loss_train[0]
    for f, y, losses in (("f_train", Y, found.loss_train), ("f_test", YT, found.loss_test)):
        wanted = [run.loss.mean(step, y) for step in getattr(found, f)]
        np.testing.assert_allclose(losses, wanted, rtol=1e-12)


@pytest.mark.slow
@each_theory
def test_a_solution_is_the_same_again_in_a_file_and_beside_networks(theory, tmp_path):
    found = limit(theory)
    assert (
        lg.solve(run_of(*case(theory)), theory=theory.name).to_xarray().identical(found.to_xarray())
    )
    back = lg.Trajectory.load(found.save(tmp_path / "limit.nc"))
    assert back.to_xarray().identical(found.to_xarray())
    scaling, layers = case(theory)
    networks = lg.train(run_of(scaling, min(layers, 4)), width=16, seeds=4, key=0)
    assert set(found.to_xarray().dims) >= set(networks.to_xarray().dims) - {"seed"}
    assert "nan" not in str(lg.compare(back, networks))


@pytest.mark.slow
@each_theory
def test_the_precision_and_the_outputs_are_those_of_the_data(theory):
    found = ask(theory, y=np.stack([Y, -Y], 1), yt=np.stack([YT, -YT], 1), dtype=np.float32)
    held = found.to_xarray()
    assert held.f_train.dims == ("step", "sample", "output")
    assert held.f_train.shape == (3, 3, 2)
    assert {values.dtype for values in held.values()} == {np.dtype("float32")}
    error = 3e-2 * np.abs(limit(theory).f_train).max()
    adapts = case(theory)[0].startswith("adaptive")
    if not adapts:  # all outputs move a neuron that takes a single step
        np.testing.assert_allclose(found.f_train[-1, :, 0], limit(theory).f_train[-1], atol=error)
    np.testing.assert_allclose(found.f_train[-1, :, 1], -found.f_train[-1, :, 0], atol=error)


@pytest.mark.slow
@each_theory
def test_what_diverges_is_raised_or_told(theory):
    adapts = case(theory)[0].startswith("adaptive")  # its steps do not grow with the gradient
    options = {"weight_decay": 1} if adapts else {}
    optimizer = rule_of(case(theory)[0])(1e9, **options)
    diverges = {"optimizer": optimizer, "steps": 60}
    with pytest.raises(NumericalFailure) as caught:
        ask(theory, **diverges)
    told = ask(theory, {"throw": False}, **diverges)
    assert isinstance(told, lg.Trajectory)
    assert told.status is not Status.OK
    assert caught.value.result.status is told.status


@pytest.mark.slow
@each_theory
def test_rtol_is_honoured_and_errors_are_errors(theory):
    if "rtol" not in {field.name for field in fields(theory)}:
        pytest.skip("has no rtol")
    coarse, fine = (ask(theory, {"rtol": rtol}, loss="logistic") for rtol in (3e-2, 3e-3))
    for name in ("f_train", "f_test"):
        one, two = getattr(coarse, name), getattr(fine, name)
        size = np.abs(fine.f_train).max()
        assert np.abs(one - two).max() < 4 * 3.3e-2 * size, name
        errors = [getattr(each, f"{name}_error", np.zeros_like(one)) for each in (coarse, fine)]
        assert errors[0].max() < 3e-2 * 2 * size, name
        assert errors[1].max() < 3e-3 * 2 * size, name
        # Estimates of errors may be small by chance, as differences of a few replicates are.
        assert (np.abs(one - two) <= 6 * np.hypot(*errors) + 1e-3 * size).all(), name


@pytest.mark.slow
@each_theory
def test_status_says_whether_the_error_is_that_which_was_wanted(theory):
    names = {field.name for field in fields(theory)}
    if not {"rtol", "max_particles"} <= names:
        pytest.skip("does not sample")
    for options in ({"rtol": 2e-3, "max_particles": 2**12}, {"rtol": 3e-2, "replicates": 1}):
        if not set(options) <= names:
            continue
        found = ask(theory, {"throw": False, **options})
        held = found.to_xarray()
        if "f_train_error" not in held:
            assert found.status is Status.OK  # exact
            continue
        which = "margin" if "f_train_margin" in held else "error"
        f, error = (
            np.concatenate([held[f"f_train{name}"], held[f"f_test{name}"]], 1)
            for name in ("", f"_{which}")
        )
        reached = np.linalg.norm(error) / np.linalg.norm(f) / (1.96 if which == "margin" else 1)
        if np.isnan(reached):
            assert found.status is Status.ERROR_UNKNOWN
        else:
            wanted = Status.OK if reached <= 1.15 * options["rtol"] else Status.INACCURATE
            assert found.status is wanted, reached


@each_theory
def test_what_it_does_not_cover_is_refused_in_words(theory):
    unknown = lg.serial(lg.Dense(), Unknown(), lg.Dense())
    with pytest.raises((NoRule, NoTheory)) as refused:
        theory.pose(lg.Run(unknown, lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=2))
    assert len(str(refused.value)) > 20
    explodes = lg.scaling.plane_scheme("-5", 1)  # outputs grow with the width
    run = lg.Run(lg.mlp(1), explodes, lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=2)
    with pytest.raises(NoTheory) as refused:
        lg.solve(run, theory=theory)
    assert len(str(refused.value)) > 20
    others = [which for which in RUNS if not covers(theory, run_of(*which))]
    for which in others:
        with pytest.raises((NoTheory, NoRule), match=r".{20}"):
            lg.solve(run_of(*which), theory=theory)


@each_theory
def test_options_that_cannot_be_meant_are_refused(theory):
    with pytest.raises(InvalidInput, match="no_option"):
        ask(theory, {"no_option": 1})
    numbers = [field.name for field in fields(theory) if "float" in str(field.type)]
    for name in numbers:  # those of other types are in the table of wrong arguments
        for wrong in (-1.0, float("nan"), float("inf"), 1e300):
            with pytest.raises(InvalidInput, match=f"{name}: wanted"):
                ask(theory, {name: wrong})


@pytest.mark.slow
@each_theory
def test_an_interrupt_is_answered(theory):
    interrupted(lambda: ask(theory, steps=40))


@each_theory
def test_what_does_not_fit_into_memory_is_said_before_it_is_computed(theory, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 1e2)
    with pytest.raises(OutOfMemory, match=r"take .* GB, and .* GB are available\. \w+"):
        ask(theory)


@dataclass(frozen=True, kw_only=True)
class Careless(lg.theories.Theory):
    """A theory that hands on whatever it finds."""

    name: ClassVar[str] = "careless"

    @classmethod
    def pose(cls, run):
        return Posed(run, "it covers everything", None)

    def solve(self, posed, *, throw=True):
        f = np.full((len(posed.run.times), 4), np.nan)
        return lg.Trajectory.of(posed.run, f[:, :3], f[:, 3:], theory=self.name, reason="-")


@pytest.mark.slow
def test_what_a_theory_does_not_look_at_is_looked_at():
    with pytest.raises(NumericalFailure, match="f_train, f_test"):
        ask(Careless)
    assert ask(Careless, {"throw": False}).status is Status.DIVERGED
