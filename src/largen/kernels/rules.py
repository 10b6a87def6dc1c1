"""The rule of each layer for the kernels of infinitely wide networks.

A rule takes the layer's skeleton, its constants and a :class:`State`, and returns the state
behind the layer. A new layer is one more function here, registered for its type.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import jax
from jax import lax

from largen.architectures import Activation, Dense, Layer, Repeat, Residual, Serial
from largen.errors import NoRule, NoTheory
from largen.expectations import pair_moments, second_moment
from largen.kernels.state import Constants, State


@singledispatch
def advance(layer: Layer, constants: Any, state: State) -> State:
    """Carry the kernels through a layer.

    Raises
    ------
    NoRule
        For a layer that has no rule here.
    """
    raise _no_rule(layer)


@advance.register
def _(layer: Dense, constants: Constants, state: State) -> State:
    # Bahri & Hanin, Les Houches lectures, eqs. (13) and (83), with the rates of weight and bias:
    # K ← σ_b² + σ_w² K,   Θ ← ρ_w σ_w² K + ρ_b σ_b² + σ_w² Θ.
    weight, bias, weight_rate, bias_rate = constants
    ntk = None
    if state.ntk is not None:
        ntk = weight * (weight_rate * state.covariance + state.ntk) + bias_rate * bias
    return State(weight * state.q1 + bias, weight * state.q2 + bias, weight * state.gap, ntk)


@advance.register
def _(layer: Activation, constants: tuple[()], state: State) -> State:
    # K ← E[φ(u)φ(v)],   Θ ← E[φ'(u)φ'(v)] Θ,   with (u, v) ~ N(0, K).
    phi = layer.function
    gap, derivative = pair_moments(phi, state.q1[:, None], state.q2[None, :], state.gap)
    ntk = None if state.ntk is None else derivative * state.ntk
    return State(second_moment(phi, state.q1), second_moment(phi, state.q2), gap, ntk)


@advance.register
def _(layer: Serial, constants: tuple[Any, ...], state: State) -> State:
    for inner, its_constants in zip(layer.layers, constants, strict=True):
        state = advance(inner, its_constants, state)
    return state


@advance.register
def _(layer: Repeat, constants: Any, state: State) -> State:
    def copy(state: State, constants: Any) -> tuple[State, None]:
        return advance(layer.layer, constants, state), None

    return lax.scan(copy, state, constants, length=layer.times)[0]


@advance.register
def _(layer: Residual, constants: tuple[Any, Any], state: State) -> State:
    # Bahri & Hanin, eqs. (25)-(26): the branch ends in an affine map with weights of its own, so
    # that skip and branch are uncorrelated and every second moment adds, gaps included.
    _check_branch(layer.branch)
    factor, inner = constants
    branch = advance(layer.branch, inner, state)
    return jax.tree.map(lambda skip, added: skip + factor * added, state, branch)


def check(layer: Layer) -> None:
    """Raise what :func:`advance` would, without computing anything.

    Raises
    ------
    NoRule
        For a layer that has no rule here.
    NoTheory
        For a residual branch that does not end in an affine map.
    """
    match layer:
        case Serial(layers):
            for inner in layers:
                check(inner)
        case Repeat(inner, _):
            check(inner)
        case Residual(branch):
            check(branch)
            _check_branch(branch)
        case _ if type(layer) not in advance.registry:
            raise _no_rule(layer)


def _no_rule(layer: Layer) -> NoRule:
    return NoRule("kernels", layer, [kind for kind in advance.registry if kind is not object])


def _check_branch(branch: Layer) -> None:
    if not ends_in_affine_map(branch):
        raise NoTheory(
            f"kernels: the residual branch {branch!r} does not end in an affine map, so it is "
            "correlated with what it is added to; let the branch end in Dense()."
        )


def ends_in_affine_map(layer: Layer) -> bool:
    """Whether the last thing that a layer does is a map with fresh random weights."""
    match layer:
        case Serial(layers):
            return ends_in_affine_map(layers[-1])
        case Repeat(inner, _):
            return ends_in_affine_map(inner)
    return isinstance(layer, Dense)
