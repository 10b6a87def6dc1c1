"""The rules of finite networks for affine maps: dense, convolutional, locally connected.

All of them are y_p = m·Σ_k W_k a_pk + m_b·b, with a_p the *patch* of the input that position p
sees: the whole input for a dense layer, the part under the window for a convolution. For backward
vectors g_p = ∂f/∂y_p,

    Σ_W (∂f/∂W)(∂f'/∂W) = m² Σ_pq (a_p·a'_q)(g_p·g'_q)

summed over positions p and q that share their weights. Inner products replace the Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from largen.architectures import (
    Conv,
    ConvTranspose,
    Dense,
    Layer,
    LocallyConnected,
    Signal,
)
from largen.errors import InvalidInput
from largen.networks.modules import Features, Frame, LayerKernels, Module, Path, Probe, build, shape
from largen.networks.windows import EXACT, convolve, pad_windows, spread, windows


@dataclass(frozen=True)
class Geometry:
    """The shapes of an affine map and the patches of its input.

    Attributes
    ----------
    space
        Spatial axes of the output.
    weight, bias
        Shapes of the parameters.
    multiply
        ``multiply(x, W)`` returns x W without multiplier and bias.
    patches
        ``patches(x)`` returns the patch of each position, (sample, position, group, entry).
    shared
        Whether all positions have the same weights.
    """

    space: tuple[int, ...]
    weight: tuple[int, ...]
    bias: tuple[int, ...]
    multiply: Callable[[Any, Any], Any]
    patches: Callable[[Any], Any]
    shared: bool = True


@build.register(Dense)
def dense(layer: Dense, frame: Frame, path: Path, features: Features) -> Module:
    """Return y = m·x W + m_b·b at every position, with W stored as (fan_in, fan_out)."""
    *space, fan_in = features
    fan_out = frame.fan_out(layer, path)

    def multiply(x, weight):
        return jnp.matmul(x, weight, precision=EXACT)

    def patches(x):
        return x.reshape(len(x), -1, 1, fan_in)

    geometry = Geometry(tuple(space), (fan_in, fan_out), (fan_out,), multiply, patches)
    return _affine(geometry, frame, path, features)


@build.register(Conv)
def conv(layer: Conv, frame: Frame, path: Path, features: Features) -> Module:
    """Return a convolution, with W stored as (*window, fan_in / groups, fan_out)."""
    *_, channels = features
    fan_out, groups = frame.fan_out(layer, path), layer.groups
    if channels % groups or fan_out % groups:
        raise InvalidInput(
            f"net: {layer!r} splits channels into {groups} groups; it meets {channels} channels "
            f"and makes {fan_out}, which are not both multiples of that."
        )

    def multiply(x, weight):
        return convolve(pad_windows(layer, x), weight, layer.strides, layer.dilation, groups)

    def patches(x):
        seen = windows(pad_windows(layer, x), layer.window, layer.strides, layer.dilation)
        seen = seen.reshape(len(x), -1, prod(layer.window), groups, channels // groups)
        return jnp.swapaxes(seen, 2, 3).reshape(*seen.shape[:2], groups, -1)

    weight = (*layer.window, channels // groups, fan_out)
    geometry = Geometry(_space(layer, features), weight, (fan_out,), multiply, patches)
    return _affine(geometry, frame, path, features)


@build.register(ConvTranspose)
def conv_transpose(layer: ConvTranspose, frame: Frame, path: Path, features: Features) -> Module:
    """Return a convolution of the spread-out input, with W stored as (*window, fan_in, fan_out)."""
    *_, channels = features
    fan_out, one = frame.fan_out(layer, path), (1,) * len(layer.window)

    def multiply(x, weight):
        return convolve(spread(layer, x), weight, one, layer.dilation)

    def patches(x):
        seen = windows(spread(layer, x), layer.window, one, layer.dilation)
        return seen.reshape(len(x), -1, 1, prod(layer.window) * channels)

    weight = (*layer.window, channels, fan_out)
    geometry = Geometry(_space(layer, features), weight, (fan_out,), multiply, patches)
    return _affine(geometry, frame, path, features)


@build.register(LocallyConnected)
def locally_connected(
    layer: LocallyConnected, frame: Frame, path: Path, features: Features
) -> Module:
    """Return an affine map for each position, W stored as (*space, window × fan_in, fan_out)."""
    *_, channels = features
    fan_out, space = frame.fan_out(layer, path), _space(layer, features)
    fan_in = prod(layer.window) * channels

    def seen(x):
        return windows(pad_windows(layer, x), layer.window, layer.strides, layer.dilation)

    def multiply(x, weight):
        patches = seen(x).reshape(len(x), *space, fan_in)
        return jnp.einsum("n...k,...kf->n...f", patches, weight, precision=EXACT)

    def patches(x):
        return seen(x).reshape(len(x), -1, 1, fan_in)

    weight, bias = (*space, fan_in, fan_out), (*space, fan_out)
    geometry = Geometry(space, weight, bias, multiply, patches, shared=False)
    return _affine(geometry, frame, path, features)


def _space(layer: Layer, features: Features) -> tuple[int, ...]:
    behind = layer.signal_behind(Signal(features[:-1])).space
    assert behind is not None
    return behind


def _affine(geometry: Geometry, frame: Frame, path: Path, features: Features) -> Module:
    weight_name, weight = frame.rule(path, "weight")
    bias_name, bias = frame.rule(path, "bias")
    assert weight is not None
    rules = {"weight": weight} | ({} if bias is None else {"bias": bias})
    space = geometry.space
    behind = (*space, geometry.bias[-1])

    def init(normals):
        return {kind: rule.init_std * normals[kind] for kind, rule in rules.items()}

    def forward(params, x, taps):
        y = weight.multiplier * geometry.multiply(x, params["weight"])
        if bias is not None:
            y = y + bias.multiplier * params["bias"]
        return (y, ()) if taps is None else (y + taps, x)

    def kernels(one: Probe, two: Probe) -> LayerKernels:
        g1, g2 = (_by_position(probe.gradient) for probe in (one, two))
        inputs = _inner("ni,mi->nm", *(p.capture.reshape(len(p.capture), -1) for p in (one, two)))
        backward = _inner("npcf,mpdf->nmcd", g1, g2)
        if not space:  # one position, whose patch is the whole input
            moved = inputs[:, :, None, None] * backward
        else:
            a1, a2 = (geometry.patches(probe.capture) for probe in (one, two))
            moved = tangent_of(a1, g1, a2, g2, geometry.shared)
        tangent = weight.lr * weight.multiplier**2 * moved
        if bias is not None:
            total = _inner("ncf,mdf->nmcd", g1.sum(1), g2.sum(1)) if geometry.shared else backward
            tangent = tangent + bias.lr * bias.multiplier**2 * total
        return LayerKernels(inputs[None] / prod(features), backward[None], tangent)

    return Module(
        features=behind,
        names={"weight": weight_name} | ({} if bias is None else {"bias": bias_name}),
        shapes={"weight": shape(*geometry.weight)}
        | ({} if bias is None else {"bias": shape(*geometry.bias)}),
        init=init,
        forward=forward,
        taps=lambda samples, dtype: jnp.zeros((samples, *behind), dtype),
        kernels=kernels,
    )


def tangent_of(
    a1: Float[Array, "n1 position group entry"],
    g1: Float[Array, "n1 position output feature"],
    a2: Float[Array, "n2 position group entry"],
    g2: Float[Array, "n2 position output feature"],
    shared: bool,
) -> Float[Array, "n1 n2 output output"]:
    """Return Σ_W (∂f/∂W)(∂f'/∂W) of patches a and backward vectors g, without m².

    Where positions share weights the sum is ⟨J, J'⟩ with J = Σ_p a_p g_pᵀ, computed either so or
    as the sum over all pairs of positions, whichever takes fewer multiplications.
    """
    n1, positions, groups, entries = a1.shape
    n2, outputs = len(a2), g1.shape[2]
    g1, g2 = (g.reshape(*g.shape[:3], groups, -1) for g in (g1, g2))
    features = g1.shape[-1]
    if not shared:
        inner = _inner("npgk,mpgk->nmp", a1, a2)
        return _inner("nmp,nmpcd->nmcd", inner, _inner("npcgf,mpdgf->nmpcd", g1, g2))
    by_pairs = n1 * n2 * positions**2 * (entries + outputs**2 * features)
    by_matrices = entries * features * outputs * ((n1 + n2) * positions + n1 * n2 * outputs)
    if by_pairs <= by_matrices:
        inner = _inner("npgk,mqgk->nmpqg", a1, a2)
        return _inner("nmpqg,nmpqgcd->nmcd", inner, _inner("npcgf,mqdgf->nmpqgcd", g1, g2))
    j1, j2 = (_inner("npgk,npcgf->ncgkf", a, g) for a, g in ((a1, g1), (a2, g2)))
    return _inner("ncgkf,mdgkf->nmcd", j1, j2)


def _inner(axes: str, one: Any, two: Any) -> Any:
    return jnp.einsum(axes, one, two, precision=EXACT)


def _by_position(gradient: Any) -> Any:
    """Return (sample, *space, output, feature) with one axis of positions."""
    return gradient.reshape(len(gradient), -1, *gradient.shape[-2:])
