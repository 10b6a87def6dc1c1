"""Layers of a user's own, made as CONTRIBUTING says: records that say which operations they are.

One of the operations is the user's own too, with rules that are registered from outside.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import jax

import largen as lg
from largen import networks
from largen.architectures import Affine, Elementwise, Layer, Parallel, Sequence
from largen.expectations import as_activation
from largen.kernels.rules import rule as kernel_rule
from largen.programs import operations


@dataclass(frozen=True, repr=False)
class Scale(Layer):
    """y = c·x."""

    c: float
    linear = True

    def lower(self, program, value):
        return program.add(operations.Sum((value,), (self.c,)))


@dataclass(frozen=True, repr=False)
class Swish(Elementwise):
    """y = x/(1 + e^(−βx)); elementwise layers need no rule."""

    beta: float

    def __call__(self, x):
        return x * jax.nn.sigmoid(self.beta * x)


@dataclass(frozen=True, repr=False)
class FullSum(Affine):
    """An affine map of the sum over all positions, as if behind GlobalSumPool: with weights."""

    def space_behind(self, space):
        return () if space is not None else None

    def lower(self, program, value):
        summed = lg.layers.GlobalSumPool().lower(program, value)
        return self.lower_map(program, summed)


@dataclass(frozen=True, repr=False)
class Twice(Sequence):
    """A layer and a copy of it with weights of its own; sequences need no rule."""

    layer: Layer
    times = 2


@dataclass(frozen=True, repr=False)
class Mean(Parallel):
    """y = (a(x) + b(x))/2 for two independent branches."""

    a: Layer
    b: Layer

    def signal_behind(self, signal):
        return self.a.signal_behind(signal)

    def lower(self, program, value):
        return program.add(operations.Sum(self.lower_parts(program, value), (0.5, 0.5)))


@dataclass(frozen=True, repr=False)
class Standardise(Layer):
    """y = g·x/√(mean x²): a normalisation, without any traits."""

    gain: float

    def lower(self, program, value):
        normalised = program.add(operations.Normalise((value,), "channels", False, 0.0))
        return program.add(operations.Sum((normalised,), (self.gain,)))


@dataclass(frozen=True, repr=False)
class Unknown(Layer):
    """A layer that nobody has a rule for."""


@dataclass(frozen=True, repr=False)
class HiddenTanh(Layer):
    """tanh(40·x) as a scale and a function, so that it is not an activation by its type."""

    def lower(self, program, value):
        scaled = program.add(operations.Sum((value,), (40.0,)))
        return program.add(operations.Function((scaled,), as_activation("tanh")))


@dataclass(frozen=True)
class EveryOther(operations.Operation):
    """Channels 0, 2, 4, …: an operation of its own, with a rule in each room that knows it."""

    linear = True


@networks.rule.register
def _(operation: EveryOther, constants, values):
    return values[0][..., ::2]


@kernel_rule.register
def _(operation: EveryOther, constants, states, behind):
    return states[0]  # a mean over channels that are all alike


@dataclass(frozen=True, repr=False)
class Half(Layer):
    """Every other channel."""

    linear = True

    def signal_behind(self, signal):
        return replace(signal, copies=Fraction(signal.copies) / 2)

    def lower(self, program, value):
        return program.add(EveryOther((value,)), self.signal_behind(program.signal(value)))


@dataclass(frozen=True, repr=False)
class SilentHalf(Half):
    """The same; does not say that there are fewer channels behind it."""

    def signal_behind(self, signal):
        return signal
