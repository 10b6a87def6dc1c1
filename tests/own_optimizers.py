"""Optimizers of a user's own, made as CONTRIBUTING says: records that say their own update."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from largen.parameterizations import Averages, Moments, Stepped, Velocity


@dataclass(frozen=True)
class SignOfAverage(Averages):
    """u = sgn(β₁m + (1 − β₁)∇) with m ← β₂m + (1 − β₂)∇ after it."""

    inner: float
    outer: float

    memories: ClassVar[int] = 1

    def update(self, gradient, memory, corrections):
        (m,) = memory
        u = jnp.sign(self.inner * m + (1 - self.inner) * gradient)
        return u, (self.outer * m + (1 - self.outer) * gradient,)


@dataclass(frozen=True)
class Lion(Stepped):
    """Lion (Chen et al. 2023): all that a room has to know is said by its averages."""

    beta1: float = 0.9
    beta2: float = 0.99

    kind = "normalised"

    @property
    def averages(self):
        return SignOfAverage(self.beta1, self.beta2)


@dataclass(frozen=True)
class HeavyBall(Stepped):
    """Gradient descent with momentum, by another name."""

    friction: float = 0.1

    kind = "proportional"

    @property
    def averages(self):
        return Velocity(1 - self.friction)


@dataclass(frozen=True)
class OwnAdam(Stepped):
    """Adam by its averages alone."""

    eps: float = 1e-8

    kind = "normalised"

    @property
    def averages(self):
        return Moments(0.9, 0.999, corrected=True, eps=self.eps)


@dataclass(frozen=True)
class Nesterov(Stepped):
    """Nesterov's momentum: linear in gradients, and no velocity with one β."""

    momentum: float = 0.9

    kind = "proportional"

    def transformation(self, scales):
        return optax.chain(scales.decay, scales.rate, optax.trace(self.momentum, nesterov=True))


@dataclass(frozen=True)
class UnitSteps(Stepped):
    """Every array of gradients over its own root mean square: of the rate's size, not by weight."""

    kind = "normalised"

    def transformation(self, scales):
        def unit(g):
            return g / jnp.sqrt(jnp.mean(g**2) + 1e-30)

        own = optax.stateless(lambda gradients, _: jax.tree.map(unit, gradients))
        return optax.chain(scales.units, own, scales.decay, scales.rate)


@dataclass(frozen=True)
class Silent(Stepped):
    """An optimizer that says nothing."""


@dataclass(frozen=True)
class OfAKind(Stepped):
    """An optimizer that says of which kind its update is, and not which."""

    kind = "normalised"


@dataclass(frozen=True)
class Upwards(Averages):
    """An update that does not change its sign with the gradient."""

    memories: ClassVar[int] = 0

    def update(self, gradient, memory, corrections):
        return jnp.abs(gradient), ()


@dataclass(frozen=True)
class Uphill(Stepped):
    """An optimizer whose update is not odd."""

    kind = "normalised"
    averages = Upwards()


@dataclass(frozen=True)
class Orthogonal(Stepped):
    """An optimizer that orthogonalises matrices."""

    kind = "orthogonal"

    def transformation(self, scales: Any) -> Any:
        def polar(g):
            u, _, v = jnp.linalg.svd(g, full_matrices=False)
            return u @ v

        own = optax.stateless(
            lambda gs, _: jax.tree.map(lambda g: polar(g) if g.ndim == 2 else jnp.sign(g), gs)
        )
        return optax.chain(own, scales.decay, scales.rate)
