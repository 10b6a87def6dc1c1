"""Weights that the forward pass reads through a norm: ``weight_norm`` and ``spectral_norm``.

**Weight normalisation** (Salimans and Kingma 2016), w = g·v/|v|, starts at |v| = g, so that w = v.
If the plan keeps g = |v|, an update of v moves w as one of an ordinary weight does, up to its part
along v: v has the role, the initial values and the rate of w. The length g = |v| of a row with m
entries is ∝ √m·σ, and the same relative update of it is one at a rate ∝ g of a normalised update,
and ∝ g² of a proportional one: g is a gain with the factor √m·σ of its row.

**Spectral normalisation** (Miyato et al. 2018), w = v/‖v‖₂, fixes the norm that a layer with
features of order one changes with the width: ‖w‖₂ = √(fan-out/fan-in) (Yang, Simon and Bernstein
2023). Random entries of standard deviation σ have ‖v‖₂ = σ(√fan-in + √fan-out), so that those of w
are 1/(√fan-in + √fan-out). A factor of the layer's output makes them what the role of w says: 1 for
hidden matrices with sides that grow alike, about √n for input layers, and n^(−½) for read-outs.
Updates of v are multiplied by the same factor over ‖v‖₂, so that v has the rate of its role. The
bias is divided by the factor.

Both are known in PyTorch's two ways, as hooks and as parametrizations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, prod, sqrt

from torch import nn

from largen.parameterizations import Power
from largen.transfer.plan_entries import ForwardMultiplier, ScaledWeight
from largen.transfer.rules import ratios
from largen.transfer.torch.layouts import fan_in_axes
from largen.transfer.torch.names import join
from largen.transfer.updates import UPDATES

# What a list of parametrizations consists of, if an entry of it has the role of a weight.
PARAMETRIZED = {"original1": {"_WeightNorm"}, "original": {"_SpectralNorm"}}
HOOKED = {"v": "WeightNorm", "orig": "SpectralNorm"}  # endings of names, by the kind of hook
STEPS = 16  # forward passes in which spectral_norm finds the largest singular value


@dataclass(frozen=True)
class Normed:
    """A weight that the forward pass reads through a norm."""

    layer: str  # path of the layer
    weight: str  # the direction v
    length: str | None  # g of weight normalisation; None of spectral normalisation


def normed_weights(model: nn.Module) -> Iterator[Normed]:
    """Yield the weights of a model that are read through a norm."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        if kind in ("_WeightNorm", "_SpectralNorm"):
            own = path.rpartition(".")[0]  # a list of parametrizations of one weight
            layer = own.rpartition(".")[0].rpartition(".parametrizations")[0]
            layer = "" if own.startswith("parametrizations.") else layer
            if kind == "_WeightNorm":
                yield Normed(layer, join(own, "original1"), join(own, "original0"))
            else:
                yield Normed(layer, join(own, "original"), None)
        for hook in module._forward_pre_hooks.values():
            name = getattr(hook, "name", "")
            if type(hook).__name__ == "WeightNorm":
                yield Normed(path, join(path, f"{name}_v"), join(path, f"{name}_g"))
            elif type(hook).__name__ == "SpectralNorm":
                yield Normed(path, join(path, f"{name}_orig"), None)


def layer_of(model: nn.Module, name: str) -> tuple[nn.Module, str] | None:
    """Return the layer, and the name there, of which a normed weight is the direction."""
    path, _, leaf = name.rpartition(".")
    outer, parametrized, inner = path.rpartition("parametrizations.")
    holder = model.get_submodule(path)
    if parametrized:
        kinds = {type(part).__name__ for part in holder.children()}
        if kinds == PARAMETRIZED.get(leaf):
            return model.get_submodule(outer.rstrip(".")), inner
        return None
    stem, _, ending = leaf.rpartition("_")
    for hook in holder._forward_pre_hooks.values():
        if type(hook).__name__ == HOOKED.get(ending) and getattr(hook, "name", "") == stem:
            return holder, stem
    return None


def has_spectral_norm(model: nn.Module) -> bool:
    """Whether forward passes in training mode refine a largest singular value."""
    return any(own.length is None for own in normed_weights(model))


def with_norms(
    weights: Sequence[ScaledWeight],
    model: nn.Module,  # the target
    decay: str,
) -> tuple[list[ScaledWeight], list[ForwardMultiplier]]:
    """Return the rows with those of lengths and biases of normed weights, and layers' factors."""
    rows, factors = {row.name: row for row in weights}, []
    for own in normed_weights(model):
        if own.weight not in rows:
            continue
        v = rows[own.weight]
        if own.length is not None and own.length in rows:
            g = rows[own.length]
            entries = _numel(v.shape) / _numel(g.shape)
            before = _numel(v.base_shape) / _numel(g.base_shape)
            factor = v.init_std * sqrt(entries / before)
            rows[own.length] = _scaled(g, v.init, factor, v.n, decay)
        elif own.length is None:
            holder = model.get_submodule(own.layer)
            factor = v.init_std * _edge(holder, v.shape) / _edge(holder, v.base_shape)
            if abs(factor - 1) < 1e-9:
                continue
            words = _words(factor, v.n)
            factors.append(ForwardMultiplier(own.layer, "built", "output", factor, words))
            bias = join(own.layer, "bias")
            if bias in rows:
                rows[bias] = _scaled(rows[bias], 1 / factor, 1 / factor, v.n, decay)
    return list(rows.values()), factors


def _numel(shape: Sequence[int]) -> int:
    return prod(shape)


def _edge(layer: nn.Module, shape: Sequence[int]) -> float:
    """Return √fan-in + √fan-out."""
    axes = fan_in_axes(layer, "weight", len(shape))
    into = prod(shape[1:]) if 1 in axes else prod(shape) / shape[1]
    return sqrt(into) + sqrt(prod(shape) / into)


def _words(factor: float, n: float) -> str:
    """Return a factor as a power of n, or as a number if it is none."""
    if n != 1.0:
        power = Fraction(round(4 * log(factor) / log(n)), 4)
        if abs(n ** float(power) / factor - 1) < 1e-6:
            return ratios(Power(width=power))
    return f"{factor:.4g}"


def _scaled(
    row: ScaledWeight,
    init: float,  # the factor of initial values
    factor: float,  # the factor by which the weight grows
    n: float,
    decay: str,
) -> ScaledWeight:
    """Return the row of a weight that is larger by a factor, with the same relative updates."""
    kind = UPDATES[row.moved_by].kind
    rate = factor**2 if kind == "proportional" else factor
    changes = {"init_std": factor, "lr": rate, "eps": 1 / factor, "weight_decay": 1 / rate}
    if kind != "proportional" and decay == "coupled":
        changes["weight_decay"] = 1 / factor**2
    powers = dict(row.powers)
    for column, change in changes.items():
        words = _words(change, n)
        if words != "1":
            powers[column] = words if powers[column] == "1" else f"{powers[column]}·{words}"
    values = {column: getattr(row, column) * change for column, change in changes.items()}
    return replace(row, init=row.init * init, powers=powers, **values)
