"""What a layer has to say to have a kernel: functions, each with a rule for its type.

Only ``rule`` has no default. The others go by what a layer says of itself, and where it says
nothing they take the least: a signal that is not Gaussian, and that depends on what came in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.architectures import Container, Layer, Parallel, Signal
from largen.errors import NoRule, NoTheory
from largen.expectations.watching import add_requests, separate_watch
from largen.kernels.state import State, Wanted
from largen.parameterizations import CanonicalForm


class OnlyByNetworks(NoTheory):
    """A layer without a kernel here, though finite networks have it; begins a sentence."""


class Nature(NamedTuple):
    """What is known of a signal before any number is.

    Attributes
    ----------
    kind
        ``"data"``, numbers that are not random; ``"gaussian"``, a Gaussian process; or what it
        is instead, in words for the reader of an error, such as ``"an activation"``.
    centred
        Whether its mean is zero.
    alike
        Whether all channels have the same distribution.
    """

    kind: str
    centred: bool
    alike: bool


DATA = Nature("data", centred=False, alike=False)
GAUSSIAN = Nature("gaussian", centred=True, alike=True)

Freshness = Literal["fresh", "own", "mixed"]


@singledispatch
def rule(layer: Layer, constants: Any, state: State, behind: Wanted) -> State:
    """Return the state behind a layer, at least with what is wanted there.

    Raises
    ------
    NoRule
        For a layer that has no rule here.
    """
    raise no_rule(layer)


@singledispatch
def wanted(layer: Layer, behind: Wanted) -> Wanted:
    """Return what must be known before a layer, for what is wanted behind it; mostly the same."""
    return behind


@singledispatch
def nature_behind(layer: Layer, nature: Nature) -> Nature:
    """Return the nature of the signal behind a layer.

    Linear layers leave it as it is. Behind others it is nothing in particular, so that only an
    affine map can follow.

    Raises
    ------
    NoRule
        For a layer that has no :func:`rule`.
    NoTheory
        Where the rules would be wrong, such as for an activation of what is not Gaussian.
    """
    if not has_rule(layer):
        raise no_rule(layer)
    if layer.linear:
        return nature
    return Nature(f"the output of {layer!r}", centred=False, alike=False)


@singledispatch
def freshness(layer: Layer) -> Freshness:
    """Return how a channel behind a layer depends on the same channel before it.

    ``"fresh"`` if it does not, because random weights lie between; ``"own"`` if it is a function
    of that channel; ``"mixed"`` for a sum of both kinds.
    """
    return "own"


@singledispatch
def own_constants(
    layer: Parallel, path: tuple[int, ...], form: CanonicalForm, behind: tuple[Signal, ...]
) -> tuple[Parallel, Any]:
    """Return a parallel layer without its own constants, and these as arrays.

    Parameters
    ----------
    layer
        The layer.
    path
        Where it is.
    form
        The parameterization at infinite width.
    behind
        The signals behind the parts.
    """
    return layer, ()


def advance(layer: Layer, constants: Any, state: State, behind: Wanted) -> State:
    """Carry the kernels through a layer, and keep what is wanted behind it."""
    if state.displacement is not None and not isinstance(layer, Container):
        return _separately(lambda state: rule(layer, constants, state, behind), state, behind)
    with separate_watch() as asked:
        after = rule(layer, constants, state, behind)
    add_requests(asked.all)
    after = after.reduced(behind)
    # What is in NumPy stays there: single samples, for which nothing is compiled.
    return jax.tree.map(np.asarray, after) if isinstance(state.gap, np.ndarray) else after


def _separately(layer: Callable[[State], State], plane: State, behind: Wanted) -> State:
    """Carry a plane through a layer that XLA does not fuse into the next one.

    XLA would evaluate the layer anew at every position of the next one's window. It does not look
    into the branches of a condition that it cannot decide; this one always holds.
    """

    def step(plane: State) -> State:
        return layer(plane).reduced(behind)

    after = jax.eval_shape(step, plane)

    def nothing(plane: State) -> State:
        return jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), after)

    assert plane.displacement is not None
    return lax.cond(plane.displacement[0] >= 0, step, nothing, plane)


@singledispatch
def simplified(layer: Layer) -> Layer:
    """Return a layer that as large variances come through, at a lower cost; mostly the same."""
    return layer


def has_rule(layer: Layer) -> bool:
    """Whether there is a :func:`rule` for a layer."""
    return rule.dispatch(type(layer)) is not rule.dispatch(object)


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer that has no kernel."""
    return NoRule("kernels", layer, [kind for kind in rule.registry if kind is not object])
