"""The rules of finite networks for the layers of fully connected and residual networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from largen.architectures import Activation, Dense, Repeat, Residual, Serial
from largen.errors import InvalidInput
from largen.networks.modules import (
    Features,
    Frame,
    Kernels,
    Module,
    Path,
    Probe,
    add,
    build,
    same_features,
    shape,
    weightless,
)

# Accelerators would otherwise round the factors of float32 products to ten bits.
EXACT = lax.Precision.HIGHEST


@build.register(Dense)
def dense(layer: Dense, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = m·x W + m_b·b, with W stored as (fan_in, fan_out).

    Σ_W (∂f/∂W)(∂f'/∂W) = m² (x·x')(g·g') for backward vectors g = ∂f/∂y: two inner products
    take the place of a Jacobian.
    """
    if len(features) != 1:
        raise InvalidInput(
            f"net: {layer!r} wants one axis of features, got features of shape {features}."
        )
    fan_in, fan_out = features[0], frame.fan_out(path)
    weight_name, weight = frame.rule(path, "weight")
    bias_name, bias = frame.rule(path, "bias")
    assert weight is not None

    rules = {"weight": weight} | ({} if bias is None else {"bias": bias})

    def init(normals):
        return {kind: rule.init_std * normals[kind] for kind, rule in rules.items()}

    def forward(params, x, taps):
        y = weight.multiplier * jnp.matmul(x, params["weight"], precision=EXACT)
        if bias is not None:
            y = y + bias.multiplier * params["bias"]
        return (y, ()) if taps is None else (y + taps, x)

    def kernels(one: Probe, two: Probe) -> Kernels:
        inputs = jnp.matmul(one.capture, two.capture.T, precision=EXACT)
        backward = _inner(one.gradient, two.gradient)
        rate = weight.lr * weight.multiplier**2 * inputs[:, :, None, None]
        if bias is not None:
            rate = rate + bias.lr * bias.multiplier**2
        return Kernels(inputs[None] / fan_in, backward[None], rate * backward)

    return Module(
        features=(fan_out,),
        names={"weight": weight_name} | ({} if bias is None else {"bias": bias_name}),
        shapes={"weight": shape(fan_in, fan_out)}
        | ({} if bias is None else {"bias": shape(fan_out)}),
        init=init,
        forward=forward,
        taps=lambda samples, dtype: jnp.zeros((samples, fan_out), dtype),
        kernels=kernels,
    )


@build.register(Activation)
def activation(layer: Activation, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = φ(x)."""
    return weightless(layer.function, features)


@build.register(Serial)
def serial(layer: Serial, frame: Frame, path: Path, features: Features) -> Module:
    """Return one layer after the other; parameters are a tuple."""
    parts: list[Module] = []
    for position, inner in enumerate(layer.layers):
        parts.append(build(inner, frame, (*path, position), features))
        features = parts[-1].features

    def init(normals):
        return tuple(part.init(own) for part, own in zip(parts, normals, strict=True))

    def forward(params, x, taps):
        captures = []
        for position, part in enumerate(parts):
            x, capture = part.forward(params[position], x, None if taps is None else taps[position])
            captures.append(capture)
        return x, tuple(captures)

    def kernels(one: Probe, two: Probe) -> Kernels | None:
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


@build.register(Residual)
def residual(layer: Residual, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = x + c·branch(x), with c = L^(−α) of the parameterization.

    Gradient kernels of the branch are divided by c²: for its last affine map, that is the
    gradient with respect to the stream y.
    """
    branch, factor = build(layer.branch, frame, (*path, 0), features), frame.table.branch
    same_features(layer.branch, features, branch.features)

    def forward(params, x, taps):
        y, capture = branch.forward(params, x, taps)
        return x + factor * y, capture

    def kernels(one: Probe, two: Probe) -> Kernels | None:
        inner = branch.kernels(one, two)
        return inner and inner._replace(gradients=inner.gradients / factor**2)

    return replace(branch, forward=forward, kernels=kernels)


@build.register(Repeat)
def repeat(layer: Repeat, frame: Frame, path: Path, features: Features) -> Module:
    """Return a loop over copies; parameters carry a leading axis of them."""
    copy = build(layer.layer, frame, (*path, 0), features)
    same_features(layer.layer, features, copy.features)

    shapes = jax.tree.map(lambda leaf: shape(layer.times, *leaf.shape), copy.shapes)

    def forward(params, x, taps):
        def one(x, of_copy):
            return copy.forward(of_copy[0], x, of_copy[1])

        return lax.scan(one, x, (params, taps))

    def taps(samples, dtype):
        zeros = copy.taps(samples, dtype)
        return jax.tree.map(lambda z: jnp.zeros((layer.times, *z.shape), z.dtype), zeros)

    def kernels(one: Probe, two: Probe) -> Kernels | None:
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

        return Kernels(flat(features), flat(gradients), tangent)

    init = jax.vmap(copy.init)
    return Module(features, copy.names, shapes, init, forward, taps, kernels)


def _inner(g1, g2):
    """Return g1·g2 over features, (n1, C, N) and (n2, C', N) to (n1, n2, C, C')."""
    (n1, c1, width), (n2, c2, _) = g1.shape, g2.shape
    flat = jnp.matmul(g1.reshape(-1, width), g2.reshape(-1, width).T, precision=EXACT)
    return flat.reshape(n1, c1, n2, c2).transpose(0, 2, 1, 3)
