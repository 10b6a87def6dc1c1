"""What functions that make parameters tell about each weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax

from largen.errors import InvalidInput
from largen.transfer.alignment import Alignment
from largen.transfer.initial import InitialLaw, Moments, measured
from largen.transfer.jax.draws import Draws
from largen.transfer.jax.layouts import axes, role_of
from largen.transfer.jax.trees import instances, owners, part_of
from largen.transfer.queries import is_query_name
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes


class Survey(Alignment):
    """Parameters of several shapes, laid side by side."""

    def __init__(self, init: Callable[..., Any], sizes: Shapes, layout: str | None):
        self.init, self.layout = init, layout
        self._trees = {name: shapes_of(init, at) for name, at in sizes.by_name().items()}
        parts = {name: part_of(tree) for name, tree in self._trees.items()}
        super().__init__(parts, sizes, "init")
        self._owners = owners(self._trees["target"])

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

    def fan_in(self, name: str) -> int | None:
        """Return the axis of a matrix that is summed over; None if nothing says which it is."""
        sides = axes(self._owners[name], self._ndim(name), self.layout)
        return None if sides is None else sides[0]

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

    def queries(self) -> dict[str, float]:
        """Return the holders of weights known to make queries, with the ratio of the heads' sizes.

        They are those of equinox's attention, whose logits are q·k/√d.
        """
        import equinox as eqx

        before, after = (
            instances(self._trees[model], eqx.nn.MultiheadAttention) for model in ("base", "target")
        )
        return {
            f"{path}.query_proj": layer.qk_size / before[self.names[path]].qk_size
            for path, layer in after.items()
        }

    def likely_queries(self) -> list[str]:
        """Return matrices whose name, or whose holder's name, is one that queries usually have."""
        return [
            name
            for name in self.weights
            if self._ndim(name) > 1
            and self.growing(name)
            and (is_query_name(name) or is_query_name(name.rpartition(".")[0]))
        ]

    def laws(self) -> dict[str, InitialLaw]:
        """Return how each weight of the base model is initialised."""
        return self.laws_by(self._moments)

    def _moments(
        self, at: Mapping[str, Any], names: Mapping[str, str], entries: int
    ) -> Mapping[str, Moments]:
        return measured(Draws(self.init, at), names, entries)

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
