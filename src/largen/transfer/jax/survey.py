"""What functions that make parameters tell about each weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from math import ceil, prod
from typing import Any

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.transfer.initial import InitialLaw, Moments, initial_laws
from largen.transfer.jax.layouts import axes, role_of
from largen.transfer.jax.trees import owners, part_of, weights_of
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes
from largen.transfer.structure import correspondence

ENTRIES, DRAWS = 1024, 8


class Survey:
    """Parameters of several shapes, laid side by side.

    Attributes
    ----------
    names
        Part or weight of the target → of the base model.
    l
        The depth's ratio.
    """

    def __init__(self, init: Callable[..., Any], sizes: Shapes, layout: str | None):
        self.init, self.sizes, self.layout = init, sizes, layout
        trees = {name: shapes_of(init, at) for name, at in sizes.by_name().items()}
        parts = {name: part_of(tree) for name, tree in trees.items()}
        self._shapes = {name: part.all_weights() for name, part in parts.items()}
        for a, b in (("base", "wide"), ("tall", "target")):
            if set(self._shapes[a]) != set(self._shapes[b]):
                odd = sorted(set(self._shapes[a]) ^ set(self._shapes[b]))
                raise InvalidInput(f"init: the weights {odd[:3]} exist at one width only.")
        to_tall = correspondence(parts["base"], parts["tall"])
        self.names, self.l = to_tall.parts, to_tall.depth_ratio(parts["base"], parts["tall"])
        deep = parts.get("deep", parts["base"])
        self._deeper = correspondence(parts["base"], deep)
        self._deep_ratio = self._deeper.depth_ratio(parts["base"], deep)
        blocks = {self._deeper.parts[block] for block in self._deeper.blocks}
        stacked = {self._deeper.parts[name]: axis for name, axis in self._deeper.stacked.items()}
        self.stacked = {w: stacked[s] for w, s in self.names.items() if s in stacked}
        self.blocks = tuple(path for path, source in self.names.items() if source in blocks)
        self._owners = owners(trees["target"])

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the target's weights."""
        return tuple(self._shapes["target"])

    def shape(self, model: str, name: str) -> tuple[int, ...]:
        """Return the shape of a weight of one of the models."""
        return self._shapes[model][name]

    def growing(self, name: str) -> tuple[int, ...]:
        """Return the axes of a weight of the target that grow with the width."""
        base, wide = (self.shape(model, self.names[name]) for model in ("base", "wide"))
        return tuple(i for i, (x, y) in enumerate(zip(base, wide, strict=True)) if x != y)

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
        own = {name: name for name in self._shapes["base"]}
        base = self._moments(self.sizes.base, own)
        wide = self._moments(self.sizes.wide, own)
        deep = {}
        if self.sizes.deep is not None:
            deep = self._moments(self.sizes.deep, self._deeper.parts)
        ratios = {}
        for name in self._shapes["tall"]:
            source, growing = self.names[name], self.growing(name)
            if growing:
                sides = [self.shape(model, source)[growing[0]] for model in ("wide", "base")]
                ratios[source] = sides[0] / sides[1]
        return initial_laws(base, wide, deep, ratios, self._deep_ratio)

    def _moments(self, at: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Moments]:
        least = min(prod(shape) for shape in self._shapes["base"].values())
        draws = min(DRAWS, ceil(ENTRIES / max(least, 1)))
        found: dict[str, Moments] = {}
        for seed in range(draws):
            # Not traced: small arrays of few shapes, and generators that compile quickly.
            key = jax.random.key(seed, impl="unsafe_rbg")
            for name, array in weights_of(self.init(key, **at)).items():
                values = np.asarray(array, dtype=np.float64)
                if (values == values.flat[0]).all():
                    own = Moments(values.size)
                else:
                    own = Moments(values.size, values.sum(), np.square(values).sum())
                found[names[name]] = found.get(names[name], Moments()) + own
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
