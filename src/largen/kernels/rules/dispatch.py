"""The functions that define the kernels of a layer, each dispatched on the layer's type.

Only ``rule`` has no default. The defaults of the others follow from the traits of the layer, and
are conservative where it states none: the signal behind it then counts as non-Gaussian, and as
dependent on the signal before it.
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
from largen.kernels.state import KernelState, Wanted
from largen.parameterizations import CanonicalForm


class OnlyByNetworks(NoTheory):
    """A layer has no kernel rule, while finite networks implement it.

    The message has no full stop: whoever catches the error adds what finite networks can do.
    """


class Nature(NamedTuple):
    """The kind of distribution of a signal, known before any number is computed.

    Attributes
    ----------
    kind
        ``"data"`` for numbers that are not random, ``"gaussian"`` for a Gaussian process, and
        otherwise a description of the signal for error messages, such as ``"an activation"``.
    centred
        Whether the mean of the signal is zero.
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
def rule(layer: Layer, constants: Any, state: KernelState, behind: Wanted) -> KernelState:
    """Return the state behind a layer, with at least the moments required there.

    Parameters
    ----------
    layer
        The layer.
    constants
        Its constants, and those of its parts.
    state
        The state before the layer.
    behind
        The moments that are required behind it.

    Raises
    ------
    NoRule
        For a layer without a kernel rule.
    """
    raise no_rule(layer)


@singledispatch
def wanted(layer: Layer, behind: Wanted) -> Wanted:
    """Return the moments required before a layer, given those required behind it.

    By default they are the same.
    """
    return behind


@singledispatch
def nature_behind(layer: Layer, nature: Nature) -> Nature:
    """Return the nature of the signal behind a layer.

    By default a linear layer does not change it, and nothing is known of the signal behind any
    other layer, so that only an affine map may follow.

    Raises
    ------
    NoRule
        For a layer without a :func:`rule`.
    NoTheory
        Where the kernel rules do not hold, such as for an activation of a non-Gaussian signal.
    """
    if not has_rule(layer):
        raise no_rule(layer)
    if layer.linear:
        return nature
    return Nature(f"the output of {layer!r}", centred=False, alike=False)


@singledispatch
def freshness(layer: Layer) -> Freshness:
    """Return how a channel behind a layer depends on the same channel before it.

    ``"fresh"`` if it is independent of it, because new random weights lie between the two;
    ``"own"`` if it is a function of that channel; ``"mixed"`` for a sum of both kinds of terms.
    """
    return "own"


@singledispatch
def own_constants(
    layer: Parallel, path: tuple[int, ...], form: CanonicalForm, behind: tuple[Signal, ...]
) -> tuple[Parallel, Any]:
    """Return a parallel layer without its own constants, and these constants as arrays.

    Parameters
    ----------
    layer
        The layer.
    path
        Its position in the network.
    form
        The canonical form of the parameterization, at infinite width.
    behind
        The signals behind the parts of the layer.
    """
    return layer, ()


def advance(layer: Layer, constants: Any, state: KernelState, behind: Wanted) -> KernelState:
    """Return the state behind a layer, with only the moments that are required there."""
    if state.displacement is not None and not isinstance(layer, Container):
        return _separately(lambda state: rule(layer, constants, state, behind), state, behind)
    with separate_watch() as inner:
        after = rule(layer, constants, state, behind)
    add_requests(inner.all)
    after = after.reduced(behind)
    # States in NumPy, which are those of single samples, stay in NumPy: nothing is compiled.
    return jax.tree.map(np.asarray, after) if isinstance(state.gap, np.ndarray) else after


def _separately(
    layer: Callable[[KernelState], KernelState], plane: KernelState, behind: Wanted
) -> KernelState:
    """Carry a plane through a layer that XLA does not fuse into the next one.

    XLA would evaluate the layer anew at every position of the next one's window. It does not look
    into the branches of a condition that it cannot decide; this one always holds.
    """

    def step(plane: KernelState) -> KernelState:
        return layer(plane).reduced(behind)

    after = jax.eval_shape(step, plane)

    def nothing(plane: KernelState) -> KernelState:
        return jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), after)

    assert plane.displacement is not None
    return lax.cond(plane.displacement[0] >= 0, step, nothing, plane)


@singledispatch
def simplify(layer: Layer) -> Layer:
    """Return a cheaper layer that leaves variances of the same size; by default the layer."""
    return layer


def has_rule(layer: Layer) -> bool:
    """Whether there is a :func:`rule` for a layer."""
    return rule.dispatch(type(layer)) is not rule.dispatch(object)


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer without a kernel rule, which names all layers that have one."""
    return NoRule("kernels", layer, [kind for kind in rule.registry if kind is not object])
