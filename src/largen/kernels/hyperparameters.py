"""The kernel as a differentiable function of a network's σ_w and σ_b, compiled once for all values.

Layers are frozen records of numbers, and lowering a network sorts its numbers into arrays that
mirror its program. To find the position of each number, the network is lowered a second time with
numbered labels in place of its constants.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from largen.architectures import Layer, map_layers, weight_sites
from largen.kernels.lower import lower
from largen.kernels.nngp_ntk import form_for_kernels, nngp_scale
from largen.kernels.state import AffineConstants
from largen.kernels.tiles import kernels_at_once
from largen.parameterizations import Parameterization, ntk
from largen.programs import Program


class Hyperparameters(NamedTuple):
    """A network split into its compiled structure and its variable constants."""

    # Names such as "0.weight_std" and "0.bias_std": the path of the layer, and its field. Biases of
    # standard deviation 0 are absent and have no name.
    names: tuple[str, ...]
    stds: np.ndarray  # σ_w or σ_b for each name, (name,)
    factors: np.ndarray  # factors from the square of σ to the kernel's constant, (name,)
    # features, program, constants: the fields of kernels.lower.Lowered.
    features: tuple[Any, ...]
    program: Program
    constants: Any
    # Arrays like constants, in which σ_w² and σ_b² are replaced by the position of their name,
    # counted from 1, or 0 for absent biases, and each rate ρ by the exponent p of its decay ∝
    # (σ²)^(−p) with its own σ².
    labels: Any
    scale: float  # factor from the last layer's covariance to the NNGP kernel


def hyperparameters(
    net: Layer, param: Parameterization | None, inputs: int | tuple[int, ...]
) -> Hyperparameters:
    """Find the σ_w and σ_b of a network, and their positions among the kernel's constants."""
    form = form_for_kernels(net, param or ntk(), inputs)
    records = {weight.name: weight for weight in weight_sites(net)}
    stds, factors = [], []
    for name, weight in form.weights.items():
        site, kind = name.rsplit(".", 1)
        stds.append(getattr(records[site], f"{kind}_std"))
        factors.append((weight.std / stds[-1]) ** 2)
    names = tuple(f"{name}_std" for name in form.weights)
    doubled = dict(zip(names, 2 * np.array(stds), strict=True))
    slower = form_for_kernels(with_stds(net, doubled), param or ntk(), inputs).weights
    labelled = {
        name: replace(weight, std=float(position), rate=_fall(weight.rate, slower[name].rate))
        for position, (name, weight) in enumerate(form.weights.items(), start=1)
    }
    lowered = lower(net, form, inputs)
    labels = jax.tree.map(
        _labels,
        lower(net, replace(form, weights=labelled), inputs).constants,
        is_leaf=_is_constants,
    )
    return Hyperparameters(
        names,
        np.array(stds),
        np.array(factors),
        lowered.features,
        lowered.program,
        lowered.constants,
        labels,
        nngp_scale(form),
    )


def _fall(rate: float, at_twice: float) -> float:
    """Return the power of 1/σ² in a rate, from its values at σ and at 2σ; 0 for frozen weights."""
    return np.log(rate / at_twice) / np.log(4) if rate else 0.0


def _is_constants(node) -> bool:
    return isinstance(node, AffineConstants)


def _labels(node):
    if not isinstance(node, AffineConstants):
        return node
    squares = (node.weight_variance, node.bias_variance)
    weight, bias = (np.rint(np.sqrt(square)).astype(np.int32) for square in squares)
    return node._replace(weight_variance=weight, bias_variance=bias)


def with_variances(constants: Any, labels: Any, variances: Float[Array, " name"]) -> Any:
    """Return constants with σ_w² and σ_b² by their labels, and rates if these depend on them."""
    table = jnp.concatenate([jnp.zeros(1), variances])

    def put(own, label):
        if not isinstance(own, AffineConstants):
            return own
        weight, bias = table[label.weight_variance], table[label.bias_variance]
        return AffineConstants(
            weight,
            bias,
            own.weight_rate * _ratio(own.weight_variance, weight) ** label.weight_rate,
            own.bias_rate * _ratio(own.bias_variance, bias) ** label.bias_rate,
        )

    return jax.tree.map(put, constants, labels, is_leaf=_is_constants)


def _ratio(before, now):
    """Return before/now, and 1 for an absent bias."""
    return jnp.where(now > 0, before / jnp.where(now > 0, now, 1), 1)


@partial(jax.jit, static_argnums=(0, 1))
def kernel_at(
    program: Program,
    kind: str,
    constants: Any,
    labels: Any,
    variances: Float[Array, " name"],
    x: Float[Array, "sample *input"],
    mask: Bool[np.ndarray | Array, "sample *space"] | None = None,
) -> Float[Array, "sample sample"]:
    """Return the covariance of the last layer, ``"nngp"``, or ``"ntk"``, differentiable.

    ``mask`` is True at the positions that are present in each sample.
    """
    chosen, with_ntk = with_variances(constants, labels, variances), kind == "ntk"
    return kernels_at_once(program, with_ntk, chosen, x, None, (mask, None))[int(with_ntk)]


def with_stds(net: Layer, stds: dict[str, float]) -> Layer:
    """Return the network with other σ_w and σ_b, given by their names."""

    def change(layer: Layer, path: tuple[int, ...]) -> Layer:
        name = ".".join(map(str, path))
        fields = ("weight_std", "bias_std")
        new = {f: stds[f"{name}.{f}"] for f in fields if f"{name}.{f}" in stds}
        return replace(layer, **new) if new else layer

    return map_layers(net, change)
