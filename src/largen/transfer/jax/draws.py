"""Initial parameters, drawn again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from largen.transfer.initial import FEW_DRAWS
from largen.transfer.jax.trees import weights_of


class Draws:
    """What a function of a key makes at one shape, by the number of the draw.

    The first few draws are not traced: arrays have few different shapes, for each of which an
    operation is compiled once. What is left to be drawn then is small, and drawn often: it is
    compiled as a whole, without the large arrays, which nothing needs any more.

    Parameters
    ----------
    init, at
        Called as ``init(key, **at)``.
    """

    def __init__(self, init: Callable[..., Any], at: Mapping[str, Any]):
        self._made = lambda key: weights_of(init(key, **at))
        self._compiled: Callable[[Any], Mapping[str, Any]] | None = None

    def __call__(
        self, number: int, wanted: Collection[str] | None
    ) -> Iterable[tuple[str, np.ndarray]]:
        """Return the wanted weights of a draw; all of them if None."""
        key = jax.random.key(number, impl="unsafe_rbg")  # compiles quickly
        if wanted is None:
            made = self._made(key)
        elif number < FEW_DRAWS:
            made = _chosen(self._made(key), wanted)
        else:
            if self._compiled is None:
                # Later draws want less, which is not worth another compilation.
                self._compiled = jax.jit(lambda key: _chosen(self._made(key), wanted))
            made = _chosen(self._compiled(key), wanted)
        return ((name, np.asarray(array)) for name, array in made.items())


def _chosen(made: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    return {name: made[name] for name in made if name in wanted}
