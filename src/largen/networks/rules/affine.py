"""Affine maps in finite networks, dense, convolutional, locally connected, and gains.

All of them are y_p = m·Σ_k W_k a_pk + m_b·b, with a_p the *patch* of the input that position p
sees: the whole input without a window, and otherwise the part under it. For backward vectors
g_p = ∂f/∂y_p,

    Σ_W (∂f/∂W)(∂f'/∂W) = m² Σ_pq (a_p·a'_q)(g_p·g'_q)

summed over all places p and q that have the same weight: positions of one operation, and of all
operations that name the weight. Inner products replace the Jacobian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from largen.errors import InvalidInput
from largen.networks.rules.dispatch import Features, rule
from largen.networks.windows import EXACT, convolve, patches
from largen.parameterizations import Rule
from largen.programs import Affine, Gain, Source

Rules = Mapping[str, Rule[float]]


class Weights(NamedTuple):
    """The parameters of an affine map, ``"weight"`` and perhaps ``"bias"``, and their rules."""

    params: Mapping[str, Any]
    rules: Rules


class Probe(NamedTuple):
    """Inputs of affine maps, and gradients behind them with an output axis before the last."""

    capture: Any
    gradient: Any


class Use(NamedTuple):
    """An operation with a weight, and what two sets of samples have there."""

    # operation, one, two: the operation, and the input and the gradient of both sets.
    operation: Affine
    one: Probe
    two: Probe
    # inputs, backward: inner products of inputs, (n1, n2), and of gradients, (n1, n2, output,
    # output_2).
    inputs: Any
    backward: Any


@rule.register
def _(operation: Affine, constants: Weights, values: tuple[Any, ...]) -> Any:
    (x,), (params, rules) = values, constants
    y = rules["weight"].multiplier * _multiply(operation, x, params["weight"])
    return y + rules["bias"].multiplier * params["bias"] if "bias" in rules else y


@rule.register
def _(operation: Gain, constants: Weights, values: tuple[Any, ...]) -> Any:
    (x,), (params, rules) = values, constants
    y = (operation.initial + rules["gain"].multiplier * params["gain"]) * x
    return y + rules["offset"].multiplier * params["offset"] if operation.offset else y


def _multiply(operation: Affine, x: Any, weight: Any) -> Any:
    """Return Σ_k W_k a_pk."""
    window, groups, space = operation.window, operation.groups, x.shape[1:-1]
    if operation.tied and window is not None:
        return convolve(window, x, weight, groups)
    if operation.tied and groups == 1:
        return jnp.matmul(x, weight, precision=EXACT)
    position = ""
    if not operation.tied:
        position, space = "p", weight.shape[:-2]
    split = (*(-1 for _ in position), weight.shape[-2], groups, weight.shape[-1] // groups)
    read, weight = _patches(operation, x), weight.reshape(split)
    y = jnp.einsum(f"npge,{position}egf->npgf", read, weight, precision=EXACT)
    return y.reshape(len(x), *space, -1)


def shapes(
    operation: Affine, before: Features, behind: Features, source: Source
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a weight and its bias, given those before and behind the operation."""
    groups, (*space, fan_out), channels = operation.groups, behind, before[-1]
    if channels % groups or fan_out % groups:
        raise InvalidInput(
            f"net: {source} splits channels into {groups} groups; its {channels} input and "
            f"{fan_out} output channels must be multiples of that."
        )
    lengths = operation.window.lengths if operation.window else ()
    if operation.tied:
        weight, bias = (*lengths, channels // groups, fan_out), (fan_out,)
    else:
        weight, bias = (*space, prod(lengths) * channels // groups, fan_out), behind
    return {"weight": weight, "bias": bias}


def _patches(operation: Affine, x: Any) -> Any:
    """Return the patch of each position, (sample, position, group, entry)."""
    groups, channels = operation.groups, x.shape[-1]
    if operation.window is None:
        return x.reshape(len(x), -1, groups, channels // groups)
    seen = patches(operation.window, x)
    seen = seen.reshape(len(x), -1, seen.shape[-2], groups, channels // groups)
    return jnp.swapaxes(seen, 2, 3).reshape(*seen.shape[:2], groups, -1)


def use_of(operation: Affine, one: Probe, two: Probe) -> Use:
    """Return the use of a weight by an operation, with its inner products."""
    inputs = _inner("ni,mi->nm", *(p.capture.reshape(len(p.capture), -1) for p in (one, two)))
    backward = _inner("npcf,mpdf->nmcd", *(_by_position(p.gradient) for p in (one, two)))
    return Use(operation, one, two, inputs, backward)


def tangent(uses: Sequence[Use], rules: Rules) -> Float[Array, "n1 n2 output output"]:
    """Return Σ_θ (rate of θ) ∂f/∂θ ∂f'/∂θ over the parameters that all of these uses share."""
    (operation, one, *_), weight = uses[0], rules["weight"]
    if len(uses) == 1 and one.capture.ndim == 2 and operation.groups == 1:
        moved = uses[0].inputs[:, :, None, None] * uses[0].backward
        total = uses[0].backward
    else:
        operations = [use.operation for use in uses]
        a1, g1 = _places(operations, [use.one for use in uses])
        a2, g2 = _places(operations, [use.two for use in uses])
        moved = jax.vmap(tangent_of, 1)(a1, g1, a2, g2).sum(0)
        total = _inner("npcf,mpdf->nmcd", g1.sum(2), g2.sum(2))
    tangent = weight.lr * weight.multiplier**2 * moved
    if "bias" in rules:
        tangent = tangent + rules["bias"].lr * rules["bias"].multiplier ** 2 * total
    return tangent


def tangent_of_gains(
    uses: Sequence[tuple[Probe, Probe]], rules: Rules
) -> Float[Array, "n1 n2 output output"]:
    """Return Σ_θ (rate of θ) ∂f/∂θ ∂f'/∂θ over gains and offsets that all of these uses share."""

    def summed(probes: Sequence[Probe], factor: Any) -> Any:
        """Return the derivative, (sample, output, channel), from that of every position."""
        return sum((_by_position(probe.gradient) * factor(probe)).sum(1) for probe in probes)

    def of_inputs(probe: Probe) -> Any:
        return probe.capture.reshape(len(probe.capture), -1, 1, probe.capture.shape[-1])

    total: Any = 0.0
    for kind, factor in {"gain": of_inputs, "offset": lambda probe: 1.0}.items():
        if kind in rules:
            one, two = (summed(probes, factor) for probes in zip(*uses, strict=True))
            rate = rules[kind].lr * rules[kind].multiplier ** 2
            total = total + rate * _inner("ncf,mdf->nmcd", one, two)
    return total


def _places(operations: Sequence[Affine], probes: Sequence[Probe]) -> tuple[Any, Any]:
    """Return patches and backward vectors at all places: axis 2 has those with the same weight."""
    places = [_patches(*each) for each in zip(operations, (p.capture for p in probes), strict=True)]
    gradients = [_by_position(probe.gradient) for probe in probes]
    if operations[0].tied:
        return jnp.concatenate(places, 1)[:, None], jnp.concatenate(gradients, 1)[:, None]
    return jnp.stack(places, 2), jnp.stack(gradients, 2)


def tangent_of(
    a1: Float[Array, "n1 place group entry"],
    g1: Float[Array, "n1 place output feature"],
    a2: Float[Array, "n2 place group entry"],
    g2: Float[Array, "n2 place output feature"],
) -> Float[Array, "n1 n2 output output"]:
    """Return Σ_W (∂f/∂W)(∂f'/∂W) of patches a and backward vectors g, without m².

    As ⟨J, J'⟩ with J = Σ_p a_p g_pᵀ or as the sum over pairs of places, whichever is shorter.
    """
    n1, places, groups, entries = a1.shape
    n2, outputs = len(a2), g1.shape[2]
    g1, g2 = (g.reshape(*g.shape[:3], groups, -1) for g in (g1, g2))
    features = g1.shape[-1]
    by_pairs = n1 * n2 * places**2 * (entries + outputs**2 * features)
    by_matrices = entries * features * outputs * ((n1 + n2) * places + n1 * n2 * outputs)
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
