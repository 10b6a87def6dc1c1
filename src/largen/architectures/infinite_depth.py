"""Networks of infinite depth: one stack of infinitely many residual blocks between layers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby

from largen.architectures.containers import parts_of
from largen.architectures.layers import Repeat, Residual, Serial, is_endless, serial
from largen.architectures.traits import Layer
from largen.architectures.walks import depth, map_layers
from largen.errors import NoTheory


def endless_stack(net: Layer) -> Repeat | None:
    """Return the stack of infinitely many residual blocks in a network, or None.

    Examples
    --------
    >>> import math, largen as lg
    >>> endless_stack(lg.residual_mlp(math.inf, "relu"))
    repeat(Residual(serial(Activation('relu'), Dense())), inf)
    """
    layers = net.layers if type(net) is Serial else (net,)
    stacks = [each for each in layers if isinstance(each, Repeat) and each.times == math.inf]
    others = [each for each in layers if each not in stacks]
    if len(stacks) > 1 or any(map(is_endless, others)):
        raise NoTheory(
            "infinite depth: wanted one stack of infinitely many blocks, got more than one stack, "
            "or one inside another layer, where the limit depends on how the depths compare. Put "
            "one stack between the layers of the network."
        )
    if stacks and any(map(_has_residual, others)):
        raise NoTheory(
            "infinite depth: a single residual block next to infinitely many has the factor "
            "L^(−α) = 0; leave it out."
        )
    return stacks[0] if stacks else None


def of_depth(net: Layer, times: int) -> Layer:
    """Return a network whose stack of infinitely many blocks ends after some repetitions.

    Examples
    --------
    >>> import math, largen as lg
    >>> of_depth(lg.residual_mlp(math.inf, "relu"), 3) == lg.residual_mlp(3, "relu")
    True
    """

    def ended(layer: Layer, path: tuple[int, ...]) -> Layer:
        endless = isinstance(layer, Repeat) and layer.times == math.inf
        return replace(layer, times=times) if endless else layer

    return map_layers(net, ended)


def of_any_depth(net: Layer) -> Layer:
    """Return a network with infinitely many copies in place of each number of residual blocks.

    Blocks in a row count as repetitions, so that networks of all depths give the same one.

    Examples
    --------
    >>> import largen as lg
    >>> of_any_depth(lg.residual_mlp(1)) == of_any_depth(lg.residual_mlp(8))
    True
    """
    return map_layers(net, _endless)


def _endless(layer: Layer, path: tuple[int, ...]) -> Layer:
    """Return a repetition with infinitely many copies instead of a finite number.

    A single repetition is written without ``repeat``: it is a residual block, or several in a row.
    """
    if isinstance(layer, Repeat) and depth(layer) > 0:
        return replace(layer, times=math.inf)
    if type(layer) is Serial and not path:
        parts: list[Layer] = []
        for alike, group in groupby(layer.parts, lambda part: isinstance(part, Residual)):
            blocks = tuple(group)
            parts += [Repeat(_period(blocks), math.inf)] if alike else blocks
        return Serial(tuple(parts))
    return layer


def _period(blocks: tuple[Layer, ...]) -> Layer:
    """Return the shortest sequence of blocks of which these are copies."""
    size = next(
        size
        for size in range(1, len(blocks) + 1)
        if len(blocks) % size == 0 and blocks == blocks[:size] * (len(blocks) // size)
    )
    return blocks[0] if size == 1 else serial(*blocks[:size])


def _has_residual(layer: Layer) -> bool:
    return isinstance(layer, Residual) or any(map(_has_residual, parts_of(layer)))
