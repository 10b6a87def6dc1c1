"""Compositions, sums and products of elementwise functions.

All elementwise layers between two affine maps form one function of the Gaussian preactivation. The
results are compared and hashed by their components, and are tested for piecewise linearity like any
other function: relu after relu is exactly relu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from jax import Array

from largen.expectations.activations import ActivationFunction, as_activation

_LINEAR = as_activation("linear")


@dataclass(frozen=True)
class _Chain:
    outer: ActivationFunction
    inner: ActivationFunction

    def __call__(self, x: Array) -> Array:
        return self.outer(self.inner(x))

    def slope(self, x: Array) -> Array:
        return self.outer.derivative(self.inner(x)) * self.inner.derivative(x)


@dataclass(frozen=True)
class _Sum:
    terms: tuple[tuple[float, ActivationFunction], ...]

    def __call__(self, x: Array) -> Array:
        first, *rest = (factor * phi(x) for factor, phi in self.terms)
        return sum(rest, first)

    def slope(self, x: Array) -> Array:
        first, *rest = (factor * phi.derivative(x) for factor, phi in self.terms)
        return sum(rest, first)


@dataclass(frozen=True)
class _Product:
    first: ActivationFunction
    second: ActivationFunction

    def __call__(self, x: Array) -> Array:
        return self.first(x) * self.second(x)

    def slope(self, x: Array) -> Array:
        one, two = self.first, self.second
        return one.derivative(x) * two(x) + one(x) * two.derivative(x)


@dataclass(frozen=True)
class _Derivative:
    of: ActivationFunction

    def __call__(self, x: Array) -> Array:
        return self.of.derivative(x)


@dataclass(frozen=True)
class _Slope:
    """The derivative by chain and product rule, with each component's own values at its kinks."""

    of: _Chain | _Sum | _Product

    def __call__(self, x: Array) -> Array:
        return self.of.slope(x)


def compose(outer: ActivationFunction, inner: ActivationFunction) -> ActivationFunction:
    """Return x -> outer(inner(x))."""
    if inner == _LINEAR:
        return outer
    if outer == _LINEAR:
        return inner
    return _made(f"{outer}∘{inner}", _Chain(outer, inner))


def weighted_sum(*terms: tuple[float, ActivationFunction]) -> ActivationFunction:
    """Return x -> Σ c φ(x) over pairs (c, φ)."""
    name = " + ".join(f"{phi}" if c == 1 else f"{c:g}·{phi}" for c, phi in terms)
    return _made(name, _Sum(tuple(terms)))


def product(first: ActivationFunction, second: ActivationFunction) -> ActivationFunction:
    """Return x -> first(x) · second(x)."""
    return _made(f"{first}·{second}", _Product(first, second))


@lru_cache(maxsize=1024)
def slope(phi: ActivationFunction) -> ActivationFunction:
    """Return x -> φ'(x)."""
    return replace(as_activation(_Derivative(phi)), name=f"{phi}'")


@lru_cache(maxsize=1024)
def _made(name: str, function: _Chain | _Sum | _Product) -> ActivationFunction:
    return replace(as_activation(function), name=name, derivative_function=_Slope(function))
