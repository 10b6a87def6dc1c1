"""Walks over the layers of a network: to change them, to list them, and to count blocks.

What a network computes is read from its program, :func:`largen.programs.program_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from largen.architectures.containers import Container, Parallel, Sequence
from largen.architectures.traits import Layer
from largen.programs.program import Path


def map_layers(net: Layer, change: Callable[[Layer, Path], Layer], path: Path = ()) -> Layer:
    """Return a network with every layer replaced by ``change(layer, path)``, parts first.

    Paths are those of :class:`largen.programs.Weight`.

    Examples
    --------
    >>> import largen as lg
    >>> new = lg.Dense(weight_std=2.0)
    >>> map_layers(lg.mlp(1, "relu"), lambda layer, path: new if path == (0,) else layer)
    serial(Dense(weight_std=2.0), Activation('relu'), Dense())
    """
    if isinstance(net, Container) and net.parts:
        parts = (map_layers(part, change, (*path, i)) for i, part in enumerate(net.parts))
        net = net.with_parts(parts)
    return change(net, path)


def layers_of(net: Layer) -> Iterator[Layer]:
    """Yield every layer of a network that contains no others, repeated ones once.

    A container that is neither a sequence nor parallel, such as a graph, comes before its layers,
    which are not one after the other.

    Examples
    --------
    >>> import largen as lg
    >>> [type(layer).__name__ for layer in layers_of(lg.residual_mlp(16))]
    ['Dense', 'Activation', 'Dense', 'Activation', 'Dense']
    """
    if not isinstance(net, Container):
        yield net
        return
    if not isinstance(net, Sequence | Parallel):
        yield net
    for part in net.parts:
        yield from layers_of(part)


def depth(net: Layer) -> float:
    """Return L, the number of residual branches in sequence, with all copies; 0 without any.

    It is ``math.inf`` for infinitely deep networks.

    Examples
    --------
    >>> import largen as lg
    >>> depth(lg.residual_mlp(16)), depth(lg.mlp(3))
    (16, 0)
    """
    return net.residual_depth()
