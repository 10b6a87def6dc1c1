"""Activations of normalised preactivations, and gradients through them.

A normalisation over the neurons of a layer, h̃ = (h − ⟨h⟩)/σ with σ² = ⟨(h − ⟨h⟩)²⟩ + ε, depends on
averages over neurons only. At infinite width ⟨h⟩ and σ are not random: they are numbers of a sample
and a time, and with several positions of a position. What reads φ(h̃) and pulls z back from it
gives h the gradient

    g = [v − ⟨v⟩ − h̃⟨h̃v⟩]/σ,   v = φ'(h̃)z,

exactly, ε included. A root-mean-square normalisation has no means: neither ⟨h⟩ nor ⟨v⟩. At
initialisation z is independent of h, and both averages of v vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from largen.expectations import ActivationFunction


@dataclass(frozen=True)
class NormalizedActivation:
    """φ of a normalised layer."""

    activation: ActivationFunction  # φ
    centred: bool  # whether the mean over neurons is subtracted
    eps: float  # ε

    def __call__(self, h):
        """Return φ(h̃), neurons along the last axis."""
        return self.activation(self.normalize(h)[0])

    def normalize(self, h: Any) -> tuple[Any, Any]:
        """Return h̃ and 1/σ."""
        if self.centred:
            h = h - jnp.mean(h, axis=-1, keepdims=True)
        inverse = 1 / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + self.eps)
        return h * inverse, inverse


LayerActivation = (
    ActivationFunction | NormalizedActivation
)  # what a map reads of the layer before it


class Slopes(NamedTuple):
    """The linearisation of φ(h) or φ(h̃): φ', and h̃ and 1/σ if the layer is normalised."""

    slope: Any
    normalized: Any = None
    inverse: Any = None


def elementwise(phi: LayerActivation) -> ActivationFunction:
    """Return φ without its normalisation."""
    return phi.activation if isinstance(phi, NormalizedActivation) else phi


def slopes(phi: LayerActivation, h: Any) -> Slopes:
    """Return the linearisation at h, neurons along the last axis."""
    if not isinstance(phi, NormalizedActivation):
        return Slopes(phi.derivative(h))
    normalized, inverse = phi.normalize(h)
    return Slopes(phi.activation.derivative(normalized), normalized, inverse)


def pull_back(phi: LayerActivation, at: Slopes, z: Any) -> Any:
    """Return the gradient with respect to h, given that with respect to φ."""
    v = at.slope * z
    if not isinstance(phi, NormalizedActivation):
        return v
    along = jnp.mean(at.normalized * v, axis=-1, keepdims=True)
    if phi.centred:
        v = v - jnp.mean(v, axis=-1, keepdims=True)
    return (v - at.normalized * along) * at.inverse
