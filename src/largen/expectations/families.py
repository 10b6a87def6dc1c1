"""Activations with parameters, as functions that are comparable, hashable and can be pickled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from largen.expectations.bumps import gaussian_integrals, rbf_integrals
from largen.expectations.closed_form import ClosedForm
from largen.expectations.homogeneous import homogeneous
from largen.expectations.jumps import SIGN, STEP
from largen.expectations.piecewise_smooth import piecewise_smooth
from largen.expectations.polynomials import horner, polynomial_integrals


@runtime_checkable
class Family(Protocol):
    """The interface of functions with parameters; ``str`` gives the activation's name."""

    @property
    def closed_form(self) -> ClosedForm | None:
        """Return the Gaussian integrals in closed form, or None if they are not known."""
        ...

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        ...

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        ...


@dataclass(frozen=True)
class LeakyRelu:
    """x for x > 0, and slope · x below."""

    slope: float

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return jnp.where(x > 0, x, self.slope * x)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return jnp.where(x > 0, 1, self.slope).astype(x.dtype)

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals of a function of degree one."""
        return homogeneous((1 + self.slope) / 2, (1 - self.slope) / 2, self.slope)

    def __str__(self) -> str:
        return f"leaky_relu({self.slope:g})"


@dataclass(frozen=True)
class Elu:
    """scale · x for x > 0, and scale · α (eˣ − 1) below."""

    alpha: float
    scale: float = 1.0
    name: str = "elu"

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        below = self.alpha * jnp.expm1(jnp.minimum(x, 0))
        return self.scale * jnp.where(x > 0, x, below)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return self.scale * jnp.where(x > 0, 1, self.alpha * jnp.exp(jnp.minimum(x, 0)))

    @property
    def closed_form(self) -> None:
        """Return None: the integrals involve the bivariate normal distribution function."""
        return None

    def __str__(self) -> str:
        return f"elu({self.alpha:g})" if self.name == "elu" else self.name


@dataclass(frozen=True)
class Gaussian:
    """e^(−x²/2w²)."""

    width: float

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return jnp.exp(-((x / self.width) ** 2) / 2)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return -x / self.width**2 * self(x)

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals as powers of a determinant."""
        return gaussian_integrals(self.width)

    def __str__(self) -> str:
        return f"gaussian({self.width:g})"


@dataclass(frozen=True)
class Rbf:
    """√2 sin(√(2γ) x + π/4)."""

    gamma: float

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return np.sqrt(2.0).astype(x.dtype) * jnp.sin((2 * self.gamma) ** 0.5 * x + np.pi / 4)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return 2 * self.gamma**0.5 * jnp.cos((2 * self.gamma) ** 0.5 * x + np.pi / 4)

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals as exponentials of the gap."""
        return rbf_integrals(self.gamma)

    def __str__(self) -> str:
        return f"rbf({self.gamma:g})"


@dataclass(frozen=True)
class Polynomial:
    """Σ_j coefficients[j] xʲ."""

    coefficients: tuple[float, ...]
    name: str = "polynomial"

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return horner(self.coefficients, x)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return horner([j * c for j, c in enumerate(self.coefficients)][1:], x)

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals as polynomials in the variances and the covariance."""
        return polynomial_integrals(self.coefficients)

    def __str__(self) -> str:
        if self.name != "polynomial":
            return self.name
        return f"polynomial({', '.join(f'{c:g}' for c in self.coefficients)})"


@dataclass(frozen=True)
class Jump:
    """A constant below 0, 0 at 0, and 1 above: sign or step."""

    below: float

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return jnp.where(x > 0, 1, jnp.where(x < 0, self.below, 0)).astype(x.dtype)

    def derivative(self, x: Array) -> Array:
        """Return 0, the derivative that backpropagation uses."""
        return jnp.zeros_like(x)

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals as functions of the angle between u and v."""
        return SIGN if self.below else STEP

    def __str__(self) -> str:
        return "sign" if self.below else "step"


@dataclass(frozen=True)
class Kinked:
    """Any function, with the points where it is not smooth."""

    function: Callable[[Array], Array]
    kinks: tuple[float, ...]
    jumps: bool = False

    def __call__(self, x: Array) -> Array:
        """Return φ(x)."""
        return self.function(x)

    def derivative(self, x: Array) -> Array:
        """Return φ'(x)."""
        return jax.jvp(self.function, (x,), (jnp.ones_like(x),))[1]

    @property
    def closed_form(self) -> ClosedForm:
        """Return the integrals computed over the pieces."""
        return piecewise_smooth(self.function, self.derivative, self.kinks, self.jumps)

    def __str__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


SELU = Elu(1.6732632423543772, 1.0507009873554805, "selu")
