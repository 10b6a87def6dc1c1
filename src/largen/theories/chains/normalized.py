"""Activations of normalised preactivations, and gradients through them.

A normalisation h̃ = (h − ⟨h⟩)/σ, with σ² = ⟨(h − ⟨h⟩)²⟩ + ε, takes averages over the neurons of a
layer (at each position, or over positions, too), or for each neuron over the samples of a batch and
their positions. At infinite width averages over neurons are not random: they are numbers of a
sample, a time, and perhaps a position. Those over a batch make h̃ a function of the preactivations
of one neuron, at all samples. What reads φ(h̃) and pulls z back from it gives h the gradient

    g = [v − ⟨v⟩ − h̃⟨h̃v⟩]/σ,   v = φ'(h̃)z,

exactly, ε included, with the same averages. A root-mean-square normalisation has no means: neither
⟨h⟩ nor ⟨v⟩. At initialisation z is independent of h, and both averages of v over neurons vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from largen.expectations import ActivationFunction


@dataclass(frozen=True)
class NormalizedActivation:
    """φ of a normalised layer.

    Preactivations have neurons along the last axis, and for averages over positions or over a batch
    are (sample, position, neuron), perhaps with room for more positions than the layer has.
    """

    activation: ActivationFunction  # φ
    centred: bool  # whether the mean is subtracted
    eps: float  # ε
    # Averages are over the neurons of each position, over neurons and positions, or over samples
    # and positions.
    over: Literal["channels", "sample", "batch"] = "channels"
    positions: int = 1  # the number of positions of the layer
    # The number of training samples, which are the batch; further samples are another one.
    samples: int = 0

    def __call__(self, h):
        """Return φ(h̃)."""
        return self.activation(self.normalize(h)[0])

    def normalize(self, h: Any) -> tuple[Any, Any]:
        """Return h̃ and 1/σ."""
        if self.centred:
            h = h - self.average(h)
        square = self.average(h**2) + self.eps
        # Positions that the layer does not have are 0.
        inverse = jnp.where(square > 0, 1 / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        return h * inverse, inverse

    def average(self, x: Any) -> Any:
        """Return the averages that the normalisation takes, for each entry of x."""
        if self.over == "channels":
            return jnp.mean(x, axis=-1, keepdims=True)
        own = x[:, : self.positions]
        if self.over == "sample":
            return jnp.mean(own, axis=(1, 2), keepdims=True)
        batches = [part for part in (own[: self.samples], own[self.samples :]) if len(part)]
        means = [jnp.mean(part, axis=(0, 1), keepdims=True) for part in batches]
        return jnp.concatenate(
            [jnp.repeat(mean, len(part), 0) for mean, part in zip(means, batches, strict=True)]
        )


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


def couples_samples(phi: LayerActivation) -> bool:
    """Whether φ of a sample depends on other samples."""
    return isinstance(phi, NormalizedActivation) and phi.over == "batch"


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
    along = phi.average(at.normalized * v)
    if phi.centred:
        v = v - phi.average(v)
    g = (v - at.normalized * along) * at.inverse
    if phi.over == "channels" or g.shape[1] == phi.positions:
        return g
    return g.at[:, phi.positions :].set(0)
