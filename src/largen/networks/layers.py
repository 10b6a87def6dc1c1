"""The rules of finite networks for activations and for compositions of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.architectures import (
    Concatenate,
    Elementwise,
    Parallel,
    Product,
    Residual,
    Sequence,
)
from largen.networks.modules import (
    Features,
    Frame,
    LayerKernels,
    Module,
    Path,
    Probe,
    add,
    build,
    part_of,
    same_features,
    shape,
    weightless,
)


@build.register(Elementwise)
def elementwise(layer: Elementwise, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = φ(x)."""
    return weightless(layer.activation, features)


@build.register(Sequence)
def sequence(layer: Sequence, frame: Frame, path: Path, features: Features) -> Module:
    """Return the composition of the parts in order; repeated copies run in a loop."""
    parts: list[Module] = []
    before = features
    for position, inner in enumerate(layer.parts):
        parts.append(part_of(inner, frame, (*path, position), features))
        features = parts[-1].features
    if layer.times == 1:
        return _one_after_the_other(parts, features)
    once = parts[0] if len(parts) == 1 else _one_after_the_other(parts, features)
    same_features(layer.parts[0] if len(parts) == 1 else layer, before, features)
    return _copies(once, layer.times)


def _one_after_the_other(parts: list[Module], features: Features) -> Module:
    """Return parts of which each reads the output of the one before; parameters are a tuple."""

    def forward(params, x, taps):
        captures = []
        for position, part in enumerate(parts):
            x, capture = part.forward(params[position], x, None if taps is None else taps[position])
            captures.append(capture)
        return x, tuple(captures)

    return together(parts, features, forward)


@build.register(Concatenate)
def concatenate(layer: Concatenate, frame: Frame, path: Path, features: Features) -> Module:
    """Return the concatenation of the branches' features; parameters are a tuple."""
    parts = branches_of(layer, frame, path, features)
    behind = (*parts[0].features[:-1], sum(part.features[-1] for part in parts))
    return together(parts, behind, each(parts, lambda found: jnp.concatenate(found, axis=-1)))


@build.register(Product)
def product(layer: Product, frame: Frame, path: Path, features: Features) -> Module:
    """Return the elementwise product of the branches; parameters are a tuple."""
    parts = branches_of(layer, frame, path, features)
    return together(parts, parts[0].features, each(parts, lambda found: reduce(mul, found)))


@build.register(Residual)
def residual(layer: Residual, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = shortcut(x) + c·branch(x), with c = L^(−α) of the parameterization.

    The parameters are those of the branch, or the pair (branch, shortcut). Gradient kernels of the
    branch are divided by c²; for its last affine map, the quotient is the gradient kernel with
    respect to the stream y.
    """
    branch = _scale(part_of(layer.branch, frame, (*path, 0), features), frame.table.branch)
    if layer.shortcut is not None:
        shortcut = part_of(layer.shortcut, frame, (*path, 1), features)
        same_features(layer, shortcut.features, branch.features)
        parts = [branch, shortcut]
        return together(parts, branch.features, each(parts, sum))
    same_features(layer.branch, features, branch.features)

    def forward(params, x, taps):
        y, capture = branch.forward(params, x, taps)
        return x + y, capture

    return replace(branch, forward=forward)


def _scale(branch: Module, factor: float) -> Module:
    """Return c·branch."""

    def forward(params, x, taps):
        y, capture = branch.forward(params, x, taps)
        return factor * y, capture

    def kernels(one: Probe, two: Probe) -> LayerKernels | None:
        inner = branch.kernels(one, two)
        return inner and inner._replace(gradients=inner.gradients / factor**2)

    return replace(branch, forward=forward, kernels=kernels)


def _copies(copy: Module, times: int) -> Module:
    """Return a loop over copies; parameters have a leading axis of copies."""
    shapes = jax.tree.map(lambda leaf: shape(times, *leaf.shape), copy.shapes)

    def forward(params, x, taps):
        def one(x, of_copy):
            return copy.forward(of_copy[0], x, of_copy[1])

        return lax.scan(one, x, (params, taps))

    def taps(samples, dtype):
        zeros = copy.taps(samples, dtype)
        return jax.tree.map(lambda z: jnp.zeros((times, *z.shape), z.dtype), zeros)

    def kernels(one: Probe, two: Probe) -> LayerKernels | None:
        def of_copy(probes) -> Any:
            return copy.kernels(*probes)

        def accumulate(tangent, probes):
            part = of_copy(probes)
            return tangent + part.tangent, (part.features, part.gradients)

        first = jax.eval_shape(of_copy, jax.tree.map(lambda leaf: leaf[0], (one, two)))
        if first is None:
            return None
        zero = jnp.zeros(first.tangent.shape, first.tangent.dtype)
        tangent, (features, gradients) = lax.scan(accumulate, zero, (one, two))

        def flat(stacked):
            return stacked.reshape(-1, *stacked.shape[2:])

        return LayerKernels(flat(features), flat(gradients), tangent)

    init = jax.vmap(copy.init)
    return Module(copy.features, copy.names, shapes, init, forward, taps, kernels)


def branches_of(layer: Parallel, frame: Frame, path: Path, features: Features) -> list[Module]:
    """Return the modules of the parts of a layer whose parts read the same input."""
    return [part_of(inner, frame, (*path, i), features) for i, inner in enumerate(layer.parts)]


def each(parts: list[Module], combine: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Return the forward pass that applies all parts to one input and combines the outputs."""

    def forward(params, x, taps):
        taps = (None,) * len(parts) if taps is None else taps
        found = [p.forward(own, x, tap) for p, own, tap in zip(parts, params, taps, strict=True)]
        return combine([y for y, _ in found]), tuple(capture for _, capture in found)

    return forward


def together(parts: list[Module], features: Features, forward: Callable[..., Any]) -> Module:
    """Return the module of several parts, with tuples of their trees."""

    def init(normals):
        return tuple(part.init(own) for part, own in zip(parts, normals, strict=True))

    def kernels(one: Probe, two: Probe) -> LayerKernels | None:
        ones, twos = (map(Probe, probe.capture, probe.gradient) for probe in (one, two))
        return add([part.kernels(a, b) for part, a, b in zip(parts, ones, twos, strict=True)])

    return Module(
        features=features,
        names=tuple(part.names for part in parts),
        shapes=tuple(part.shapes for part in parts),
        init=init,
        forward=forward,
        taps=lambda samples, dtype: tuple(part.taps(samples, dtype) for part in parts),
        kernels=kernels,
    )
