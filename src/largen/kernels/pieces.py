"""Splitting of layers into sequences of parts with their constants, and their composition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from largen.architectures import Layer, Repeat, Serial, copies_of, serial
from largen.kernels.fold import fold

Pieces = list[tuple[Layer, Any]]


def fold_pieces(pieces: Pieces) -> tuple[Layer, Any]:
    """Return the sequence of layers as one layer, with runs of equal layers as repetitions."""
    skeletons, constants, position = [], [], 0
    for block, times in _fold([skeleton for skeleton, _ in pieces]):
        length = len(block)
        copies = [
            tuple(c for _, c in pieces[start : start + length])
            for start in range(position, position + times * length, length)
        ]
        if times == 1:
            skeletons += block
            constants += copies[0]
        else:
            body = serial(*block)
            if not isinstance(body, Serial):
                copies = [copy[0] for copy in copies]
            skeletons.append(Repeat(body, times))
            constants.append(stack(copies))
        position += times * length
    if len(skeletons) == 1:
        return skeletons[0], constants[0]
    return Serial(tuple(skeletons)), tuple(constants)


def _fold(layers: Sequence[Layer]) -> list[tuple[tuple[Layer, ...], int]]:
    """Return runs of equal blocks; only blocks that keep the shape of their input are folded."""
    found = []
    for block, times in fold(layers):
        if all(layer.keeps_shape for layer in block):
            found.append((block, times))
        else:
            found += [(block, 1)] * times
    return found


def parts_with_constants(layer: Layer, constants: Any) -> Pieces:
    """Return the layers of a ``serial``, or the layer alone, with their constants."""
    if isinstance(layer, Serial):
        return list(zip(layer.layers, constants, strict=True))
    return [(layer, constants)]


def unroll(repeat: Repeat, constants: Any) -> Pieces:
    """Return all copies of a repetition in sequence."""
    pieces: Pieces = []
    for n in range(copies_of(repeat)):
        own = jax.tree.map(lambda c, n=n: c[n], constants)
        pieces += parts_with_constants(repeat.layer, own)
    return pieces


def stack(copies: Sequence[Any]) -> Any:
    """Return the constants of several copies as arrays with a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *copies)
