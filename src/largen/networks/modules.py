"""Layers of finite networks: one :class:`Module` each, made by one function per type of layer.

To teach finite networks a new layer, write ``(layer, frame, path, features) -> Module`` in a file
of its own and register it with ``@build.register(NewLayer)``. A layer without weights is
:func:`weightless`.

One mechanism gives all kernels. The forward pass returns the input of each layer with weights
(its *capture*) and adds a *tap*, an array of zeros, to its output. The gradient of Σ_μ f_μ
with respect to the taps holds the backward vector ∂f_μ/∂h of every sample, in one backward pass.
Feature kernels, gradient kernels and the tangent kernel are inner products of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import Affine, Container, Layer, signal_of
from largen.errors import InvalidInput, NoRule
from largen.parameterizations import Rule, RuleTable

Params = Any
Path = tuple[int, ...]
Features = tuple[int, ...]


class Probe(NamedTuple):
    """Captures of a layer, and gradients by its taps with an output axis before the last."""

    capture: Any
    gradient: Any


class LayerKernels(NamedTuple):
    """Contributions of a layer to the kernels between two sets of samples.

    Attributes
    ----------
    features
        Inner products of the inputs of its weights, over the fan-in, ``(site, n1, n2)``.
    gradients
        Inner products of ∂f/∂h, ``(site, n1, n2, output, output_2)``.
    tangent
        Σ_θ (rate of θ) ∂f/∂θ ∂f'/∂θ, ``(n1, n2, output, output_2)``.
    """

    features: Any
    gradients: Any
    tangent: Any


@dataclass(frozen=True)
class Module:
    """A layer at a size, in a parameterization.

    Attributes
    ----------
    features
        Shape of the output, without the axis of samples.
    names
        Names of its rows in the rule table, a tree shaped as its parameters.
    shapes
        Shapes of its parameters, the same tree with ``jax.ShapeDtypeStruct`` leaves.
    init
        ``init(normals)`` makes the parameters from standard Gaussian numbers of these shapes.
        (A network draws the numbers of all its layers at once: one generator to compile.)
    forward
        ``forward(params, x, taps)`` returns the output and the captures; there are no captures
        if taps is None.
    taps
        ``taps(samples, dtype)`` returns the zeros that are added to the output.
    kernels
        ``kernels(probe1, probe2)`` returns the layer's kernels; None for a layer without weights.
    """

    features: Features
    names: Any
    shapes: Any
    init: Callable[[Params], Params]
    forward: Callable[[Params, Any, Any], tuple[Any, Any]]
    taps: Callable[[int, Any], Any]
    kernels: Callable[[Probe, Probe], LayerKernels | None]


@dataclass(frozen=True)
class Frame:
    """The whole network that a layer is part of: its sizes and its rule table.

    Attributes
    ----------
    table
        The rule of every weight, with numbers at this size.
    width
        N, the unit of width.
    outputs
        Number of outputs.
    readout
        Path of the last affine map.
    """

    table: RuleTable[float]
    width: int
    outputs: int
    readout: Path

    def fan_out(self, layer: Any, path: Path) -> int:
        """Return how many features leave the affine map at a path.

        Raises
        ------
        InvalidInput
            If its share of the width is not an integer.
        """
        if path == self.readout:
            return self.outputs
        found = layer.width_ratio * self.width
        if found.denominator != 1:
            raise InvalidInput(
                f"width: {self.width} does not give {layer!r} an integer number of features; take "
                f"a multiple of {layer.width_ratio.denominator}."
            )
        return int(found)

    def rule(self, path: Path, kind: str) -> tuple[str, Rule[float] | None]:
        """Return a weight's name in the table and its rule; None if there is no such weight."""
        name = f"{'.'.join(map(str, path)) or '0'}.{kind}"
        return name, self.table.get(name)


@singledispatch
def build(layer: Layer, frame: Frame, path: Path, features: Features) -> Module:
    """Return the module of a layer.

    Parameters
    ----------
    layer
        The record.
    frame
        The network around it.
    path
        Its place in the architecture.
    features
        Shape of the input, without the axis of samples.

    Raises
    ------
    NoRule
        If no function is registered for the layer's type.
    """
    known = [kind for kind in build.registry if kind is not object]
    raise NoRule("a finite network", layer, known)


def part_of(layer: Layer, frame: Frame, path: Path, features: Features) -> Module:
    """Return the module of an inner layer, after checking its shapes.

    Raises
    ------
    InvalidInput
        If they differ from the shapes that the layer's record declares, which all theories use.
    """
    module = build(layer, frame, path, features)
    if isinstance(layer, Container):
        return module
    told, made = layer.signal_behind(signal_of(features)), module.features
    counted = made[-1] if isinstance(layer, Affine) else told.copies * features[-1]
    if (told.space, counted) != (made[:-1], made[-1]):
        raise InvalidInput(
            f"net: {layer!r} takes features of shape {features} to {made}, and its signal_behind "
            f"says spatial axes {told.space} and {counted} features."
        )
    return module


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    """Return the shape of a parameter; its dtype is decided later."""
    return jax.ShapeDtypeStruct(sizes, np.float32)


def weightless(function: Callable[[Any], Any], features: Features) -> Module:
    """Return the module of a layer without weights, from a function of a batch."""
    return Module(
        features=features,
        names=(),
        shapes=(),
        init=lambda normals: (),
        forward=lambda params, x, taps: (function(x), ()),
        taps=lambda samples, dtype: (),
        kernels=lambda one, two: None,
    )


def add(parts: list[LayerKernels | None]) -> LayerKernels | None:
    """Return the joint kernels of several layers: sites concatenated, tangents summed."""
    present = [part for part in parts if part is not None]
    if not present:
        return None
    return LayerKernels(
        jnp.concatenate([part.features for part in present]),
        jnp.concatenate([part.gradients for part in present]),
        sum(part.tangent for part in present[1:]) + present[0].tangent,
    )


def same_features(layer: Layer, before: Features, after: Features) -> None:
    """Check that a layer within a residual branch or a repetition keeps the shape.

    Raises
    ------
    InvalidInput
        If it does not.
    """
    if before != after:
        raise InvalidInput(
            f"net: {layer!r} takes features of shape {before} to {after}; a residual branch or a "
            "repeated layer must keep the shape."
        )
