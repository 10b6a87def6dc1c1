"""Theories as records: of the library, and of one's own."""

import re
from dataclasses import FrozenInstanceError, dataclass, fields
from inspect import signature
from typing import ClassVar

import numpy as np
import pytest

import largen as lg
from largen.errors import InvalidInput, NoTheory
from largen.runs import Posed

DATA = lg.Dataset(np.eye(2), np.array([1.0, -1.0]), np.eye(2)[:1], np.ones(1))


def run(param=None, net=None, **changed):
    given = {"optimizer": lg.gd(0.1), "steps": 3, **changed}
    return lg.Run(net or lg.mlp(1, "tanh"), param or lg.standard(), DATA, **given)


@dataclass(frozen=True, kw_only=True)
class Constant(lg.theories.Theory):
    """Outputs that stand where they are told to, for runs in the standard parameterization."""

    name: ClassVar[str] = "constant"
    value: float = 0.0

    @classmethod
    def pose(cls, run):
        POSED.append(run)
        if str(run.param) != "standard":
            raise NoTheory("constants are for lg.standard() only.")
        return Posed(run, "it was asked for", (len(run.times), 2))

    def solve(self, posed, *, throw=True):
        f = np.full(posed.problem, self.value)
        return lg.Trajectory.of(posed.run, f, f[:, :1], theory=self.name, reason=posed.reason)


POSED = []


@pytest.fixture
def constant():
    lg.theories.register(Constant)
    POSED.clear()
    yield Constant
    lg.theories.unregister(Constant)


def test_a_theory_from_outside_is_chosen_where_it_covers(constant):
    with pytest.raises(NoTheory, match="constants are for"):
        lg.solve(run(lg.scaling.plane_scheme(-1, 1), lg.mlp(3, "relu")))
    POSED.clear()
    limit = lg.solve(run(), value=2.0)
    assert (limit.theory, limit.reason) == ("constant", "it was asked for")
    assert (limit.f_train == 2.0).all()
    assert lg.solve(run(lg.ntk())).theory == "kernel"
    assert len(POSED) == 1  # read once, and not at all where another theory comes first


def test_a_theory_from_outside_by_record_class_and_name(constant):
    posed = run()
    found = [
        lg.solve(posed, theory=which, value=3.0).f_train
        for which in (Constant(value=1.0), Constant, "constant")
    ]
    assert all((f == 3.0).all() for f in found)
    assert (lg.solve(posed, theory=Constant(value=1.0)).f_train == 1.0).all()


def test_a_record_needs_no_registration_but_names_do():
    assert lg.solve(run(), theory=Constant()).theory == "constant"
    with pytest.raises(NoTheory, match="no implemented theory"):
        lg.solve(run())
    with pytest.raises(InvalidInput, match="theory: 'constant' is not known"):
        lg.solve(run(), theory="constant")


def test_options_are_those_of_the_record(constant):
    with pytest.raises(InvalidInput, match=r"'constant': 'valu' .* Did you mean 'value'"):
        lg.solve(run(), theory=Constant, valu=1.0)
    with pytest.raises(InvalidInput, match=r"'kernel': 'kernel_tol' .* Did you mean 'kernel_rtol'"):
        lg.solve(run(lg.ntk()), kernel_tol=1e-3)


class Plain(lg.theories.Theory):
    name = "plain"
    pose = Constant.pose
    solve = Constant.solve


@dataclass
class Thawed(Plain):
    name = "thawed"


@dataclass(frozen=True)
class Needy(Plain):
    name = "needy"
    option: int


@dataclass(frozen=True)
class Nameless(Constant):
    name = ""


@dataclass(frozen=True)
class Unsolved(lg.theories.Theory):
    name = "unsolved"

    @classmethod
    def pose(cls, run):
        return Constant.pose(run)


@pytest.mark.parametrize(
    ("theory", "words"),
    [
        (Plain, "not a @dataclass"),
        (Thawed, "not a @dataclass"),
        (Needy, "'option' of Needy lacks a default"),
        (Nameless, "lacks a name"),
        (Unsolved, "lacks solve"),
        (lg.theories.KernelLimit, "taken by KernelLimit"),
    ],
)
def test_what_cannot_be_registered_is_refused(theory, words):
    before = lg.theories.registered()
    with pytest.raises(InvalidInput, match=f"^theory: .*{words}"):
        lg.theories.register(theory)
    assert lg.theories.registered() == before


def test_what_is_not_registered_cannot_be_taken_out():
    with pytest.raises(InvalidInput, match="Constant is not registered"):
        lg.theories.unregister(Constant)


@pytest.mark.parametrize("theory", lg.theories.registered(), ids=lambda theory: theory.name)
def test_records_are_frozen_typed_and_documented(theory):
    record = theory()
    assert record == theory()
    assert list(signature(theory).parameters) == [field.name for field in fields(theory)]
    # A heading of the list of attributes is one name, or names separated by commas.
    headings = re.findall(r"^    (\w+(?:, \w+)*)\n        \S", theory.__doc__, re.MULTILINE)
    documented = {name for heading in headings for name in heading.split(", ")}
    for field in fields(theory):
        assert field.type
        assert field.kw_only
        assert field.name in documented
    with pytest.raises(FrozenInstanceError):
        record.key = 1


def test_lists_of_a_record_are_its_own():
    at = [0, 2]
    record = lg.theories.MeanField(record_at=at, record_pairs=[(0, 1), (0, 1)], record="ntk")
    at.append(1)
    assert (record.record_at, record.record_pairs) == ((0, 2), ((0, 1),))
    assert record.record == ("ntk",)
    assert hash(record) == hash(
        lg.theories.MeanField(record_at=(0, 2), record_pairs=[(0, 1)], record=["ntk"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theory", "net"),
    [
        (lg.theories.MeanField(method="quadrature", rtol=0.1), lg.mlp(1, "tanh")),
        (lg.theories.DeepMeanField(particles=64, replicates=1), lg.mlp(2, "tanh")),
    ],
    ids=["one hidden layer", "deep"],
)
def test_records_of_kernels_mean_the_same_in_limits_and_networks(theory, net):
    posed = run(lg.mean_field(), net)
    for record in ("ntk", ["feature_kernel", "gradient_kernel"], ()):
        limit = lg.solve(posed, theory=theory, record=record)
        networks = lg.train(posed, width=8, seeds=1, key=0, record=record)
        kernels = {"feature_kernel", "gradient_kernel", "ntk", "ntk_test"}
        kept = kernels & set(networks.to_xarray())
        assert kernels & set(limit.to_xarray()) == kept
        for name in kept:
            assert getattr(limit, name).shape == getattr(networks, name)[0].shape
    assert "ntk_test" not in lg.solve(posed, theory=theory)


@pytest.mark.slow
def test_the_kernel_between_test_and_training_samples():
    """Where test samples are training samples, its rows are those of the kernel among these."""
    posed = run(lg.mean_field(), optimizer=lg.gd(0.5))
    limit = lg.solve(posed, method="quadrature", record="ntk", rtol=1e-3)
    np.testing.assert_allclose(limit.ntk_test, limit.ntk[:, :1], rtol=1e-12)
    assert np.ptp(limit.ntk, axis=0).max() > 1e-2
    with pytest.raises(InvalidInput, match=r"record: .* does not follow the NTK"):
        lg.solve(
            run(lg.mean_field(), optimizer=lg.optimizers.rmsprop(0.1)), record="ntk", particles=64
        )
