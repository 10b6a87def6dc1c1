"""Repeated draws of initial parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from largen.transfer.initial import FEW_DRAWS
from largen.transfer.jax.trees import weights_of


class Draws:
    """The parameters that ``init(key, **at)`` returns at one shape, by number of the draw.

    The first few draws are not traced: arrays have few different shapes, and an operation is
    compiled once for each. Later draws concern small arrays only and are compiled as a whole.
    """

    def __init__(self, init: Callable[..., Any], at: Mapping[str, Any]):
        self._made = lambda key: weights_of(init(key, **at))
        self._compiled: Callable[[Any], Mapping[str, Any]] | None = None

    def __call__(
        self, number: int, wanted: Collection[str] | None
    ) -> Iterable[tuple[str, np.ndarray]]:
        """Return the wanted weights of a draw; all weights if ``wanted`` is None."""
        key = jax.random.key(number, impl="unsafe_rbg")  # compiles quickly
        if wanted is None:
            made = self._made(key)
        elif number < FEW_DRAWS:
            made = _chosen(self._made(key), wanted)
        else:
            if self._compiled is None:
                # Later draws need fewer weights still, which is not worth another compilation.
                self._compiled = jax.jit(lambda key: _chosen(self._made(key), wanted))
            made = _chosen(self._compiled(key), wanted)
        return ((name, np.asarray(array)) for name, array in made.items())


def _chosen(made: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    return {name: made[name] for name in made if name in wanted}
