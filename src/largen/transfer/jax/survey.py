"""What functions that make parameters tell about each weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.transfer.alignment import Alignment
from largen.transfer.initial import InitialLaw, Moments, another_draw
from largen.transfer.jax.layouts import axes, role_of
from largen.transfer.jax.trees import owners, part_of, weights_of
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes


class Survey(Alignment):
    """Parameters of several shapes, laid side by side."""

    def __init__(self, init: Callable[..., Any], sizes: Shapes, layout: str | None):
        self.init, self.layout = init, layout
        trees = {name: shapes_of(init, at) for name, at in sizes.by_name().items()}
        super().__init__({name: part_of(tree) for name, tree in trees.items()}, sizes, "init")
        self._owners = owners(trees["target"])

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the target's weights."""
        return tuple(self._shapes["target"])

    def ratio(self, name: str) -> float:
        """Return n of a weight: how much its fan-in grew, or its fan-out if the fan-in is fixed."""
        growing = self.growing(name)
        if not growing:
            return 1.0
        sides = axes(self._owners[name], self._ndim(name), self.layout)
        inner = self._inner(name, growing)
        chosen = growing[0] if sides is None else next(
            (outer for outer, i in zip(growing, inner, strict=True) if i == sides[0]), growing[0]
        )  # fmt: skip
        return self.shape("target", name)[chosen] / self.shape("tall", name)[chosen]

    def roles(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the role of every weight.

        Raises
        ------
        InvalidInput
            If a role is not known or cannot be found, or a pattern fits no weight.
        """
        named = {}
        for pattern, role in given.items():
            family(role)
            named |= dict.fromkeys(self.matching("roles", [pattern]), role)
        return {
            name: named.get(name)
            or role_of(
                self._owners[name],
                name,
                self._ndim(name),
                self._inner(name, self.growing(name)),
                self.layout,
            )
            for name in self.weights
        }

    def matching(self, argument: str, patterns: Collection[str]) -> list[str]:
        """Return the weights whose name, or whose holder's name, fits one of the patterns.

        Raises
        ------
        InvalidInput
            If a pattern fits none.
        """
        found = []
        for pattern in patterns:
            fitting = [
                name
                for name in self.weights
                if fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[0], pattern)
            ]
            if not fitting:
                raise InvalidInput(f"{argument}: {pattern!r} fits no weight of the model.")
            found.extend(fitting)
        return found

    def in_block(self, name: str) -> bool:
        """Whether a weight is inside a repeated block, or stacked over blocks."""
        return name in self.stacked or any(name.startswith(f"{block}.") for block in self.blocks)

    def laws(self) -> dict[str, InitialLaw]:
        """Return how each weight of the base model is initialised."""
        return self.laws_by(self._moments)

    def _moments(
        self, at: Mapping[str, Any], names: Mapping[str, str], entries: int
    ) -> dict[str, Moments]:
        found: dict[str, Moments] = {}
        draws = 0
        while draws == 0 or another_draw(found, draws, entries):
            # Not traced: small arrays of few shapes, and generators that compile quickly.
            key = jax.random.key(draws, impl="unsafe_rbg")
            for name, array in weights_of(self.init(key, **at)).items():
                values = np.asarray(array, dtype=np.float64)
                if values.size != 1 and (values == values.flat[0]).all():
                    own = Moments(values.size)
                else:
                    own = Moments(values.size, values.sum(), np.square(values).sum())
                found[names[name]] = found.get(names[name], Moments()) + own
            draws += 1
        return found

    def _ndim(self, name: str) -> int:
        return len(self.shape("target", name)) - (name in self.stacked)

    def _inner(self, name: str, growing: tuple[int, ...]) -> tuple[int, ...]:
        """Return axes as they are counted within one block."""
        if name not in self.stacked:
            return growing
        return tuple(axis - (axis > self.stacked[name]) for axis in growing)


def shapes_of(init: Callable[..., Any], sizes: Mapping[str, Any]) -> Any:
    """Return the shapes of what a function makes, without making it.

    Raises
    ------
    InvalidInput
        If it does not take these arguments.
    """
    import equinox as eqx

    try:
        return eqx.filter_eval_shape(init, jax.random.key(0), **sizes)
    except TypeError as error:
        raise InvalidInput(
            f"init: could not be called as init(key, **{dict(sizes)}): {error}"
        ) from error
