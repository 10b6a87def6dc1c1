"""Networks of infinite depth: one stack of infinitely many residual blocks between layers."""

from __future__ import annotations

import math

from largen.architectures.layers import Repeat, Residual, Serial, is_endless
from largen.architectures.traits import Layer, parts_of
from largen.errors import NoTheory


def endless_stack(net: Layer) -> Repeat | None:
    """Return the stack of infinitely many residual blocks in a network, or None.

    Raises
    ------
    NoTheory
        If there is more than one such stack, or it is inside of another layer, or there are
        residual blocks outside of it.

    Examples
    --------
    >>> import math, largen as lg
    >>> endless_stack(lg.residual_mlp(math.inf, "relu"))
    repeat(Residual(serial(Activation('relu'), Dense())), inf)
    """
    layers = net.layers if isinstance(net, Serial) else (net,)
    found = [each for each in layers if isinstance(each, Repeat) and each.times == math.inf]
    others = [each for each in layers if each not in found]
    if len(found) > 1 or any(map(is_endless, others)):
        raise NoTheory(
            "infinite depth: wanted one stack of infinitely many blocks, got more than one stack, "
            "or one inside another layer, where the limit depends on how the depths compare. Put "
            "one stack between the layers of the network."
        )
    if found and any(map(_has_residual, others)):
        raise NoTheory(
            "infinite depth: a single residual block beside infinitely many has the factor "
            "L^(−α) = 0; leave it out."
        )
    return found[0] if found else None


def _has_residual(layer: Layer) -> bool:
    return isinstance(layer, Residual) or any(map(_has_residual, parts_of(layer)))
