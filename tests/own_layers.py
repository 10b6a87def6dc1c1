"""Layers of a user's own, made as CONTRIBUTING says: records, and rules registered from outside."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import largen as lg
from largen.architectures import Affine, Elementwise, Layer, Parallel, Sequence
from largen.expectations import activation
from largen.networks import build, weightless
from largen.networks.layers import branches_of, each, together
from largen.programs import operations


@dataclass(frozen=True, repr=False)
class Scale(Layer):
    """y = c·x."""

    c: float
    linear = True

    def lower(self, program, value):
        return program.add(operations.Sum((value,), (self.c,)))


@build.register(Scale)
def _(layer, frame, path, features):
    return weightless(lambda x: layer.c * x, features)


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
        summed = lg.GlobalSumPool().lower(program, value)
        return self.lower_map(program, summed)


@build.register(FullSum)
def _(layer, frame, path, features):
    dense = build(lg.Dense(width_ratio=layer.width_ratio), frame, path, features[-1:])

    def forward(params, x, taps):
        return dense.forward(params, x.sum(axis=tuple(range(1, x.ndim - 1))), taps)

    return type(dense)(**{**vars(dense), "forward": forward})


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


@build.register(Mean)
def _(layer, frame, path, features):
    parts = branches_of(layer, frame, path, features)
    return together(parts, parts[0].features, each(parts, lambda found: sum(found) / 2))


@dataclass(frozen=True, repr=False)
class Standardise(Layer):
    """y = g·x/√(mean x²): a normalisation, without any traits."""

    gain: float

    def lower(self, program, value):
        normalised = program.add(operations.Normalise((value,), "channels", False, 0.0))
        return program.add(operations.Sum((normalised,), (self.gain,)))


@build.register(Standardise)
def _(layer, frame, path, features):
    def normalised(x):
        return layer.gain * x / jnp.sqrt((x**2).mean(axis=-1, keepdims=True))

    return weightless(normalised, features)


@dataclass(frozen=True, repr=False)
class Unknown(Layer):
    """A layer that nobody has a rule for."""


@dataclass(frozen=True, repr=False)
class HiddenTanh(Layer):
    """tanh(40·x) as a scale and a function, so that it is not an activation by its type."""

    def lower(self, program, value):
        scaled = program.add(operations.Sum((value,), (40.0,)))
        return program.add(operations.Function((scaled,), activation("tanh")))


@build.register(HiddenTanh)
def _(layer, frame, path, features):
    return weightless(lambda x: jnp.tanh(40 * x), features)


@dataclass(frozen=True, repr=False)
class Half(Layer):
    """Every other channel; does not say that there are fewer behind it."""

    linear = True

    def lower(self, program, value):
        return program.add(operations.Sum((value,), (1.0,)))


@build.register(Half)
def _(layer, frame, path, features):
    return weightless(lambda x: x[..., ::2], (*features[:-1], features[-1] // 2))
