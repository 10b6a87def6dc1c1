"""What a layer has to say to have a kernel: four functions, each with a rule for its type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Literal, NamedTuple

from largen.architectures import Layer
from largen.errors import NoRule, NoTheory
from largen.kernels.state import State, Wanted


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
        Whether all channels have the same law.
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

    Raises
    ------
    NoRule
        For a layer that has no rule here.
    NoTheory
        Where the rules would be wrong, such as for an activation of what is not Gaussian.
    """
    raise no_rule(layer)


@singledispatch
def freshness(layer: Layer) -> Freshness:
    """Return how a channel behind a layer depends on the same channel before it.

    ``"fresh"`` if it does not, because random weights lie between; ``"own"`` if it is a function
    of that channel; ``"mixed"`` for a sum of both kinds.
    """
    return "own"


def advance(layer: Layer, constants: Any, state: State, behind: Wanted) -> State:
    """Carry the kernels through a layer, and keep what is wanted behind it."""
    return rule(layer, constants, state, behind).reduced(behind)


def no_rule(layer: Layer) -> NoRule:
    """Return the error for a layer that has no kernel."""
    return NoRule("kernels", layer, [kind for kind in rule.registry if kind is not object])
