"""A network at its reference width, carried to other widths."""

from dataclasses import fields
from fractions import Fraction as F

import numpy as np
import pytest

import largen as lg
import largen.parameterizations
from largen.errors import InvalidInput
from largen.parameterizations import Rule

SCALINGS = ["NTK", "intermediate", "mean field", "default", lg.mup(), lg.mean_field(3.0), (-1, 1)]
POINTS = {
    "NTK": ("-1/2", 0, 0),
    "intermediate": ("-3/4", "1/2", "1/2"),
    "mean field": (-1, 1, 1),
    "default": ("-1/2", 1, 0),
}


def from_reference(scaling, width=128, **more):
    return lg.scaling.from_reference(width=width, scaling=scaling, **more)


@pytest.mark.parametrize("reference", [lg.standard(), lg.ntk(), lg.mean_field(0.5)], ids=str)
@pytest.mark.parametrize("optimizer", [lg.gd(1.0), lg.adam(1.0)], ids=["gd", "adam"])
@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_the_reference_width_has_the_reference_itself(scaling, optimizer, reference):
    net = lg.mlp(2, "relu", weight_std=0.7, bias_std=0.3)
    sizes = {"width": 128, "inputs": 5}
    ours = from_reference(scaling, reference=reference).table(net, optimizer, **sizes)
    theirs = reference.table(net, optimizer, **sizes)
    assert list(ours) == list(theirs)
    for name in theirs:
        for field in fields(Rule):
            got, want = getattr(ours[name], field.name), getattr(theirs[name], field.name)
            assert got == pytest.approx(want, rel=1e-13), (name, field.name)
    assert ours.gamma == pytest.approx(theirs.gamma, rel=1e-13)
    assert ours.branch == theirs.branch


@pytest.mark.parametrize(("name", "point"), POINTS.items())
def test_other_widths_have_the_powers_of_the_scaling(name, point):
    """App. A of Golikov: σ_a, η_a, η_w from σ*, η* by hand, and the class that follows."""
    q_sigma, rate_a, rate_w = map(F, point)
    param = from_reference(name, init_std={"output": 0.04}, lr={"output": 2.0, "input": 0.5})
    table = param.table(lg.mlp(1, "relu"), width=1024, inputs=4)
    ratio = 1024 / 128
    read_in, read_out = table["0.weight"], table["2.weight"]
    assert read_in.init_std * read_in.multiplier == pytest.approx(0.5)
    assert read_out.init_std * read_out.multiplier == pytest.approx(0.04 * ratio ** float(q_sigma))
    assert read_in.lr == pytest.approx(0.5 * ratio ** float(rate_w))
    assert read_out.lr == pytest.approx(2.0 * ratio ** float(rate_a + 2 * q_sigma))
    plane = lg.scaling.classify(param, 1).plane
    assert plane is not None
    assert plane == lg.scaling.plane_class(*point)
    assert plane.name == name


def test_points_of_the_plane_are_parameterizations():
    for point in [("-9/10", "4/5", "3/5"), ("-1/2", 0, "-1/4"), ("-7/5", "9/5", "4/5")]:
        assert lg.scaling.classify(
            lg.scaling.plane_scheme(*point), 1
        ).plane == lg.scaling.plane_class(*point)
    # Deep: in the inverse-width scaling hidden rates grow as N² (Golikov, §4).
    deep = lg.scaling.plane_scheme(-1, 1)
    assert lg.scaling.classify(deep, 2).nontrivial
    assert lg.scaling.classify(deep, 3).kind == "vanishing"
    assert lg.scaling.classify(lg.scaling.plane_scheme("-1/2", 0), 3).kind == "kernel"


def test_the_symmetry_moves_a_scaling_and_not_its_reference():
    """Networks of another width, shifted along the abc-symmetry: the same function trained."""
    data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 0.5]))
    one = from_reference("mean field", width=8)
    other = one.shift({"input": "1/2", "output": 1})
    f = [
        lg.train(
            lg.Run(lg.mlp(1, "tanh"), param, data, optimizer=lg.gd(0.2), steps=5),
            width=32,
            seeds=2,
            key=0,
        ).f_train
        for param in (one, other)
    ]
    np.testing.assert_allclose(f[0], f[1], rtol=1e-12, atol=1e-14)
    assert not np.allclose(f[0][:, 0], f[0][:, -1])


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["NTK", "mean field"])
def test_limits_are_those_of_the_same_constants_written_as_an_abc_parameterization(scaling):
    """By hand: γ₀ = N*^(−d), rates ρ = 1 of the read-in and N* of the read-out at raw rate 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3))
    data = lg.Dataset(x, np.sign(x[:, 0]))
    param = from_reference(scaling, width=64)
    form = lg.parameterizations.canonical_form(param, lg.mlp(1, "relu"), lg.gd(0.1), inputs=3)
    assert form.gamma == pytest.approx(1.0 if scaling == "NTK" else 0.125)
    into, out = form.weights["0.weight"], form.weights["2.weight"]
    assert (into.std, out.std) == pytest.approx((1.0, 1.0))
    assert (into.rate, out.rate) == pytest.approx((3.0, 64.0))
    run = lg.Run(lg.mlp(1, "relu"), param, data, optimizer=lg.gd(0.02), steps=10)
    limit = lg.solve(run)
    assert ("kernel" in limit.theory) == (scaling == "NTK")
    nets = lg.train(run, width=512, seeds=16, key=1)
    if scaling == "mean field":  # deterministic: networks scatter about it as 1/√N
        apart = np.sqrt(np.mean((nets.f_train[:, -1] - limit.f_train[-1]) ** 2))
        assert apart < 0.15 * np.abs(limit.f_train[-1]).max() < 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width": 0}, "width: wanted an integer"),
        ({"scaling": "mean_field"}, "Did you mean 'mean field'"),
        ({"scaling": (1,)}, "wanted \\(q_σ, q̃_a, q̃_w\\)"),
        ({"scaling": (0.123456789123, 1)}, "rational"),
        ({"scaling": 3}, "scaling: wanted a parameterization"),
        ({"init_std": 0.1}, "init_std: wanted numbers by role"),
        ({"init_std": {"read-out": 0.1}}, "init_std: 'read-out' is not known"),
        ({"lr": {"output": -1.0}}, "lr\\['output'\\]: wanted a finite number > 0"),
    ],
)
def test_wrong_input(given, message):
    with pytest.raises(InvalidInput, match=message):
        lg.scaling.from_reference(**{"width": 128, "scaling": "NTK", **given})


def test_a_reference_of_a_reference_is_refused():
    with pytest.raises(InvalidInput, match="has a reference itself"):
        from_reference("NTK", reference=from_reference("NTK"))
