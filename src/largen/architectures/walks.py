"""The traversal of a network that all theories and computations share.

A signal enters a network, passes layers in sequence, and is split and joined by parallel parts. A
state that belongs to the signal (a shape, a list of weights, the terms of a recursion) is carried
along the same way, by :func:`carry`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from largen.architectures.layers import Residual
from largen.architectures.traits import Container, Layer, Parallel, Sequence, parts_of
from largen.errors import NoTheory

Path = tuple[int, ...]
State = TypeVar("State")


def carry(
    net: Layer,
    state: State,
    *,
    leaf: Callable[[Layer, Path, State], State],
    join: Callable[[Parallel, Path, State, tuple[Callable[[State], State], ...]], State],
    again: Callable[[Sequence, Path, State, Callable[[State], State]], State] | None = None,
    path: Path = (),
) -> State:
    """Return the state behind a network, carried through its layers in the order of the signal.

    Parameters
    ----------
    net
        The network.
    state
        The state before the network.
    leaf
        ``leaf(layer, path, state)`` returns the state behind a layer that contains no others.
    join
        ``join(layer, path, state, ways)`` returns the state behind parallel parts; ``ways`` carry
        a state through each of them.
    again
        ``again(layer, path, state, once)`` returns the state behind the copies of a repetition;
        ``once`` carries it through one of them. Without it, copies are passed one after the other.
    path
        The path of the network itself, if it is part of a larger one.

    Raises
    ------
    NotImplementedError
        For a container that is neither a sequence nor parallel.
    NoTheory
        For infinitely many copies, if ``again`` is None.

    Examples
    --------
    >>> import largen as lg
    >>> names = carry(
    ...     lg.mlp(1, "relu"), (),
    ...     leaf=lambda layer, path, found: (*found, type(layer).__name__),
    ...     join=lambda layer, path, found, ways: ways[0](found),
    ... )
    >>> names
    ('Dense', 'Activation', 'Dense')
    """

    def through(layer: Layer, path: Path, state: State) -> State:
        def part(position: int, inner: Layer) -> Callable[[State], State]:
            return lambda state: through(inner, (*path, position), state)

        if isinstance(layer, Sequence):
            parts = [part(*each) for each in enumerate(layer.parts)]

            def once(state: State) -> State:
                for step in parts:
                    state = step(state)
                return state

            if layer.times > 1 and again is not None:
                return again(layer, path, state, once)
            for _ in range(copies_of(layer)):
                state = once(state)
            return state
        if isinstance(layer, Parallel):
            return join(layer, path, state, tuple(part(*p) for p in enumerate(layer.parts)))
        if isinstance(layer, Container):
            raise NotImplementedError(
                f"{type(layer).__name__}: a layer that is made of layers is a Sequence or Parallel."
            )
        return leaf(layer, path, state)

    return through(net, path, state)


def copies_of(layer: Sequence) -> int:
    """Return the number of copies of a repetition, for computations that need a finite number.

    Raises
    ------
    NoTheory
        If there are infinitely many.
    """
    if layer.times == math.inf:
        raise NoTheory(
            f"{layer!r}: wanted a finite number of blocks, got infinitely many. Kernels and mean "
            "fields have the limit of infinite depth: lg.kernel, lg.theories.InfiniteDepth."
        )
    return int(layer.times)


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

    Examples
    --------
    >>> import largen as lg
    >>> [type(layer).__name__ for layer in layers_of(lg.residual_mlp(16))]
    ['Dense', 'Activation', 'Dense', 'Activation', 'Dense']
    """
    if not isinstance(net, Container):
        yield net
        return
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
    if isinstance(net, Residual):
        return 1
    of_parts = [depth(part) for part in parts_of(net)]
    if isinstance(net, Sequence):
        return net.times * sum(of_parts) if any(of_parts) else 0  # of an infinite number as well
    return max(of_parts, default=0)
