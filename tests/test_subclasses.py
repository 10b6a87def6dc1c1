"""What a class that derives from a record of largen is: asked for its own, or refused by name.

Whoever dispatches on a class decides it. A class that is silently its base trains, or is solved, as
something else than what it says.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import largen as lg
from largen.architectures import Layer, Sequence
from largen.architectures.layers import Serial
from largen.errors import InvalidInput, NoRule, NoTheory
from largen.expectations import ActivationFunction, as_activation
from largen.expectations.families import LeakyRelu
from largen.parameterizations import Parameterization, Power
from largen.programs import operations, program_of
from largen.theories import KernelLimit

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal(4)
DENSE, RELU, NET = lg.Dense(), lg.Activation("relu"), lg.mlp(1, "relu")
RUN = lg.Run(NET, lg.ntk(), lg.Dataset(X, Y), optimizer=lg.gd(0.1), steps=2)


def kernel(*hidden):
    return lg.nngp_kernel(lg.serial(DENSE, *hidden, DENSE), X)


OPTIMIZERS = (
    lg.gd(0.1),
    lg.adam(0.1),
    lg.optimizers.rmsprop(0.1),
    lg.optimizers.langevin(0.1, 0.1),
    lg.optimizers.feedback_alignment(0.1),
    lg.optimizers.hebbian(0.1),
    lg.gradient_flow(),
)


@pytest.mark.parametrize("known", OPTIMIZERS, ids=lambda one: type(one).__name__)
def test_a_subclass_of_an_optimizer_is_refused_by_name(known):
    class Lion(type(known)):
        pass

    length = {"times": [1.0]} if known == lg.gradient_flow() else {"steps": 2}
    for param in (lg.ntk(), lg.mean_field()):
        run = RUN.with_changes(param=param, optimizer=Lion(0.1), **{"steps": None, **length})
        for ask in (
            lambda run=run: lg.train(run, width=4, seeds=1, key=0),
            lambda run=run: lg.solve(run),
            lambda run=run: lg.scaling.classify(run.param, NET, run.optimizer),
            lambda run=run: run.param.table(NET, run.optimizer),
        ):
            with pytest.raises((NoRule, NoTheory), match="Lion does not say"):
                ask()


@dataclass(frozen=True, repr=False)
class Block(Sequence):
    """A sequence whose layers are a property, as modules of other libraries have them."""

    times_two: bool = False

    @property
    def layers(self):
        return (DENSE, RELU)


@dataclass(frozen=True, repr=False)
class Listed(Sequence):
    """A sequence whose layers are a list, or a dictionary."""

    layers: Any


def test_a_sequence_whose_layers_are_not_in_its_fields_is_refused():
    for layer, why in (
        (Block(), "Block has no layers"),
        (Listed([DENSE, RELU]), "Listed"),
        (Listed({"a": DENSE}), "Listed"),
        (Listed((DENSE, "relu")), "field layers of Listed"),
    ):
        net = lg.serial(DENSE, RELU, layer, DENSE)
        for ask in (
            lambda net=net: lg.kernel(net, X),
            lambda net=net: lg.solve(RUN.with_changes(net=net)),
            lambda net=net: lg.train(RUN.with_changes(net=net), width=4, seeds=1, key=0),
            lambda net=net: lg.scaling.classify(lg.ntk(), net),
        ):
            with pytest.raises(InvalidInput, match=why):
                ask()


@dataclass(frozen=True, repr=False)
class WithOthers(Sequence):
    """A sequence that says its parts, one of which is no field."""

    layer: Layer

    @property
    def parts(self):
        return (self.layer, RELU)


def test_a_sequence_that_says_its_parts_has_them_and_no_others_in_their_place():
    np.testing.assert_array_equal(kernel(RELU, WithOthers(DENSE)), kernel(RELU, DENSE, RELU))
    with pytest.raises(InvalidInput, match="WithOthers"):
        WithOthers(DENSE).with_parts((DENSE, RELU))


class Doubled(Serial):
    """A composition whose output is doubled."""

    def lower(self, program, value):
        once = super().lower(program, value)
        return program.add(operations.Sum((once,), (2.0,)))


class Shifted(lg.Activation):
    """An activation with values of its own."""

    def __call__(self, x):
        return self.function(x) + 1


class Gated(lg.Residual):
    """A residual connection with a read-out of its own."""


def test_subclasses_of_layers_are_asked_for_their_own():
    doubled = kernel(Doubled((RELU, DENSE)), RELU)
    np.testing.assert_allclose(doubled, kernel(RELU, lg.Dense(weight_std=2.0), RELU), rtol=1e-12)
    net = lg.serial(DENSE, Shifted("relu"), DENSE)
    phi = getattr(program_of(net).operations[2], "phi")  # noqa: B009
    assert phi(np.array([-1.0, 2.0])).tolist() == [1.0, 3.0]
    with pytest.raises(InvalidInput, match="Gated"):
        lg.repeat(Gated(lg.serial(RELU, DENSE)), math.inf)


class Huber(lg.losses.Loss):
    """A loss that says its values as a method."""

    def mean(self, f, y):
        return jnp.abs(jnp.asarray(f) - y).mean()


def test_subclasses_of_losses_are_refused_and_names_are_no_losses():
    one = lg.losses.as_loss("mse")
    with pytest.raises(InvalidInput, match="Huber is a subclass of Loss"):
        RUN.with_changes(loss=Huber(one.name, one.sample, one.targets, one.linear_residual))

    def mse(f, y):  # without the factor 1/2, as people write it
        return jnp.sum((f - y) ** 2)

    assert one.squared
    assert not lg.losses.as_loss(mse).squared
    own = RUN.with_changes(loss=mse)
    with pytest.raises(NoTheory, match="mse"):
        lg.training.catapult_diagram(own, [4, 8], [0.1, 0.2], seeds=2, key=0)


class Louder(ActivationFunction):
    """An activation function with values of its own."""

    def __call__(self, x):
        return 2 * super().__call__(x)


class Steeper(LeakyRelu):
    """A function with parameters whose values are its own, and nothing else."""

    def __call__(self, x):
        return 2 * super().__call__(x)


def test_subclasses_of_activation_functions_are_refused():
    with pytest.raises(InvalidInput, match="Louder is a subclass of ActivationFunction"):
        lg.Activation(Louder("relu", jax.nn.relu))
    with pytest.raises(InvalidInput, match=r"Steeper .* lacks derivative"):
        lg.Activation(Steeper(0.1))
    assert as_activation(LeakyRelu(0.1)).name == "leaky_relu(0.1)"


@dataclass(frozen=True)
class Scaled(operations.Normalise):
    """A normalisation with a size of its own."""


@dataclass(frozen=True, repr=False)
class ScaledNorm(Layer):
    """A layer that is an operation derived from another one."""

    def lower(self, program, value):
        return program.add(Scaled((value,), "channels", False, 0.0))


def test_subclasses_of_operations_are_refused():
    net = lg.serial(DENSE, ScaledNorm(), RELU, DENSE)
    for ask in (
        lambda: lg.kernel(net, X),
        lambda: lg.train(RUN.with_changes(net=net), width=4, seeds=1, key=0),
        lambda: lg.solve(RUN.with_changes(net=net)),
    ):
        with pytest.raises(NoRule, match="Scaled derives from Normalise"):
            ask()


class Wider(Parameterization):
    """The kernel parameterization with read-ins of twice the size."""

    def table(self, *given, **options):
        table = super().table(*given, **options)
        first, *others = table.rows
        at_width = isinstance(first.rule.multiplier, float)
        twice = 2.0 if at_width else Power(2.0)
        rule = replace(first.rule, multiplier=first.rule.multiplier * twice)
        return replace(table, rows=(replace(first, rule=rule), *others))


def test_subclasses_of_parameterizations_are_asked_for_their_table():
    ntk = lg.ntk()
    own = Wider(**{field.name: getattr(ntk, field.name) for field in fields(ntk)})
    wide = lg.serial(lg.Dense(weight_std=2.0), RELU, DENSE)
    got = lg.nngp_kernel(NET, X, param=own)
    np.testing.assert_allclose(got, lg.nngp_kernel(wide, X), rtol=1e-12)
    one, two = (
        lg.train(RUN.with_changes(net=net, param=param), width=8, seeds=2, key=0).f_train[:, 0]
        for net, param in ((NET, own), (wide, ntk))
    )
    np.testing.assert_allclose(one, two, rtol=1e-6)


SOLVED: list[type] = []


@dataclass(frozen=True, kw_only=True)
class Halved(KernelLimit):
    """A limit with a solution of its own."""

    name: ClassVar[str] = "halved"

    def solve(self, posed, *, throw=True):
        SOLVED.append(type(self))
        return super().solve(posed, throw=throw)


@dataclass(frozen=True, kw_only=True)
class Unnamed(KernelLimit):
    """A limit with the name of its base."""


def test_subclasses_of_theories_are_asked_and_have_a_name_of_their_own():
    assert lg.solve(RUN, theory=Halved()).theory == "halved"
    assert [Halved] == SOLVED
    for theory in (Unnamed(), Unnamed):
        with pytest.raises(InvalidInput, match="Unnamed has the name 'kernel' of KernelLimit"):
            lg.solve(RUN, theory=theory)
    with pytest.raises(InvalidInput, match="Unnamed has the name"):
        lg.theories.register(Unnamed)


class Falling(list):
    """A schedule whose factors are its own."""

    def __iter__(self):
        return (factor / 2 for factor in super().__iter__())


class Constant:
    """A schedule as a function."""

    def __call__(self, step):
        return 1.0


class Warm(Constant):
    """One that derives from it."""

    def __call__(self, step):
        return super().__call__(step) / (1 + step)


def test_subclasses_of_schedules_are_asked():
    schedules: tuple[Callable | list, ...] = (Falling([1.0, 0.5]), Warm())
    for schedule in schedules:
        rates = lg.gd(1.0, schedule=schedule).rates(2).tolist()
        assert rates == ([0.5, 0.25] if isinstance(schedule, list) else [1.0, 0.5])
