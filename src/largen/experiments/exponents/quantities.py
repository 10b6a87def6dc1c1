"""Quantities measured on a network before and after training, by group and name."""

from __future__ import annotations

from functools import reduce
from operator import getitem
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.architectures import Layer
from largen.networks import FiniteNetwork
from largen.programs import Affine, Function, program_of

# The groups of quantities, in the order of the report, with descriptions.
GROUPS = {
    "relative": "increments δθ over the initial standard deviation",
    "absolute": "increments δθ",
    "features": "movement of the features that enter an affine map",
    "outputs": "outputs",
    "terms": "terms of the outputs after training",
}
TERMS = ("∅", "a", "w", "aw")

# Groups whose quantities are sums over neurons: measured sample by sample, with their signs.
SIGNED = ("outputs", "terms")

Name = tuple[str, str]


def quantities(
    network: FiniteNetwork, start: Any, end: Any, x: Any, *, samples: slice, terms: bool
) -> dict[Name, Any]:
    """Return the measured quantities by (group, name).

    Increments and features are mean squares over entries and samples; outputs and their terms are
    returned as they are, ``(sample[, output])``.
    """
    x = x[samples]
    measured: dict[Name, Any] = {}
    names = jax.tree.leaves(network.module.names)
    leaves = zip(names, jax.tree.leaves(start), jax.tree.leaves(end), strict=True)
    for name, before, after in leaves:
        moved = jnp.mean((after - before) ** 2)
        measured["relative", name] = moved / network.table[name].init_std ** 2
        measured["absolute", name] = moved
    before, after = (network.module.inputs(params, x) for params in (start, end))
    features: dict[str, list[Any]] = {}
    for (name, one), (_, two) in list(zip(before, after, strict=True))[1:]:
        features.setdefault(name, []).append(jnp.mean((two - one) ** 2))
    measured |= {("features", name): sum(uses) / len(uses) for name, uses in features.items()}
    f = [network.outputs_of(params, x) for params in (start, end)]
    measured |= {("outputs", "f at start"): f[0], ("outputs", "δf"): f[1] - f[0]}
    if terms:
        parts = decomposition(network, start, end, x)
        measured |= {("terms", f"f_{name}"): part for name, part in parts.items()}
    return measured


def decomposition(network: FiniteNetwork, start: Any, end: Any, x: Any) -> dict[str, Any]:
    """Return f_∅, f_a, f_w, f_aw of one hidden layer, ``(sample, output)``, which add up to f.

    With increments δâ, δŵ and the gates φ′ after training, for φ(h) = φ′(h)h,

        f_∅ = σ Σ_r â_r⁽⁰⁾ φ′ ŵ_r⁽⁰⁾·x,   f_a with δâ,   f_w with δŵ,   f_aw with both:

    Golikov, *Towards a general theory of infinite-width limits of neural classifiers*, (11).
    """
    program = program_of(network.net, network.inputs)
    function = program.operations[2]
    assert isinstance(function, Function)
    w0, w1, a0, a1 = (
        reduce(getitem, weight.path, params)["weight"]
        for weight in program.weights
        for params in (start, end)
    )
    into, out = (network.table[f"{each.name}.weight"].multiplier for each in program.weights)
    h = into * x @ w1
    gates = jnp.where(h == 0, 0, function.phi(h) / jnp.where(h == 0, 1, h))
    steady, moving = (gates * (into * x @ w) for w in (w0, w1 - w0))
    return {
        "∅": out * steady @ a0,
        "a": out * steady @ (a1 - a0),
        "w": out * moving @ a0,
        "aw": out * moving @ (a1 - a0),
    }


def has_terms(net: Layer) -> bool:
    """Whether the decomposition applies: one hidden layer, no biases, relu or leaky relu."""
    program = program_of(net)
    match program.operations[1:]:
        case (Affine(dense=True), Function(phi=phi), Affine(dense=True)):
            pass
        case _:
            return False
    if any(weight.bias_std for weight in program.weights):
        return False
    one = np.asarray(phi(jnp.asarray([1.0, -1.0])))
    two = np.asarray(phi(jnp.asarray([3.0, -3.0])))
    return bool(np.allclose(two, 3 * one, rtol=1e-5) and not np.isclose(one.sum(), 0))
