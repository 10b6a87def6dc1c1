"""Properties of each weight, found by comparing parameters of several shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any

import jax

from largen.errors import InvalidInput
from largen.transfer.alignment import Alignment
from largen.transfer.initial import InitialDistribution, Moments, measured
from largen.transfer.jax.draws import Draws
from largen.transfer.jax.layouts import ATTENTION, Weight, axes, role_of, stacks_experts
from largen.transfer.jax.trees import instances, owners, part_of
from largen.transfer.roles import family
from largen.transfer.shapes import Shapes
from largen.transfer.structure import Part, correspondence

# Usual names of the modules and weights that produce the queries of attention.
QUERIES = frozenset({"q_proj", "q", "query", "to_q", "wq", "w_q", "q_lin", "query_proj"})
FUSED = frozenset({"qkv", "c_attn", "in_proj", "wqkv", "to_qkv", "qkv_proj", "query_key_value"})


class Survey(Alignment):
    """Parameters of several shapes, and the correspondence between them.

    ``experts``: the target's weights with an axis that is the number of experts → the axis.
    """

    def __init__(self, init: Callable[..., Any], sizes: Shapes, layout: str | None):
        self.init, self.layout = init, layout
        self._trees = {name: shapes_of(init, at) for name, at in sizes.by_name().items()}
        parts = {name: part_of(tree) for name, tree in self._trees.items()}
        super().__init__(parts, sizes, "init", lambda at: part_of(shapes_of(init, at)))
        self._owners = owners(self._trees["target"])
        self.experts = self._expert_axes(parts["base"])

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the target's weights."""
        return tuple(self._shapes["target"])

    def weight(self, name: str) -> Weight:
        """Return the axes of one weight of the target."""
        shape, holder = self.shape("target", name), name.rpartition(".")[0]
        bias = self._shapes["target"].get(f"{holder}.bias" if holder else "bias")
        stacks = self._stacks(name)
        ndim, outputs, axis = len(shape) - len(stacks), None, self.experts.get(name)
        if bias is not None and 0 < len(bias) - len(stacks) < ndim:
            outputs = len(bias) - len(stacks)
            outputs = outputs if bias[-outputs:] == shape[-outputs:] else None
        growing = within(self.growing(name), stacks)
        experts = None if axis is None or axis in stacks else within((axis,), stacks)[0]
        return Weight(self._owners[name], name, ndim, growing, outputs, experts)

    def _grown(self, name: str, after: tuple[int, ...], before: tuple[int, ...]) -> float:
        growing = self.growing(name)
        if not growing:
            return 1.0
        weight = self.weight(name)
        sides = axes(weight, self.layout)
        if sides is None:
            chosen: tuple[int, ...] = growing[:1]
        else:
            summed, kept = (
                tuple(o for o, i in zip(growing, weight.growing, strict=True) if i in side)
                for side in sides
            )
            chosen = summed or kept
        return prod(after[axis] for axis in chosen) / prod(before[axis] for axis in chosen)

    def fan_in(self, name: str) -> int | None:
        """Return the axis of a matrix that is summed over; None if it cannot be determined."""
        sides = axes(self.weight(name), self.layout)
        return sides[0][0] if sides is not None and len(sides[0]) == 1 else None

    def roles(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the role of every weight."""
        named = {}
        for pattern, role in given.items():
            family(role)
            named |= dict.fromkeys(self.matching("roles", [pattern]), role)
        return {
            name: named.get(name) or role_of(self.weight(name), self.layout)
            for name in self.weights
        }

    def matching(self, argument: str, patterns: Collection[str]) -> list[str]:
        """Return the weights whose name, or whose holder's name, fits one of the patterns."""
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
        """Return the holders of queries in equinox and flax, with the head dimensions' ratio.

        Their logits are q·k/√d. Where flax normalises queries, their weight is the norm's gain.
        """
        import equinox as eqx

        before, after = (
            instances(self._trees[model], eqx.nn.MultiheadAttention) for model in ("base", "target")
        )
        found = {
            f"{path}.query_proj": layer.qk_size / before[self.names[path]].qk_size
            for path, layer in after.items()
        }
        for name in self.weights:
            prefix = name.removesuffix("query.kernel")
            parts = [f"{prefix}{part}.kernel" for part in ATTENTION]
            if name in parts and all(p in self._owners and self._ndim(p) == 3 for p in parts):
                norm = f"{prefix}query_ln"
                holder = norm if f"{norm}.scale" in self._owners else f"{prefix}query"
                heads = [self.shape(m, name)[-1] for m in ("target", "crowded")]
                found[holder] = heads[0] / heads[1]
        return found

    def likely_queries(self) -> list[str]:
        """Return matrices whose name, or whose holder's name, is a usual one for queries."""
        return [
            name
            for name in self.weights
            if self._ndim(name) > 1
            and self.growing(name)
            and (is_query_name(name) or is_query_name(name.rpartition(".")[0]))
        ]

    def distributions(self) -> dict[str, InitialDistribution]:
        """Return the initialisation of each weight of the base model."""
        return self.distributions_by(self._moments)

    def _moments(
        self, at: Mapping[str, Any], names: Mapping[str, str], entries: int
    ) -> Mapping[str, Moments]:
        return measured(Draws(self.init, at), names, entries)

    def _ndim(self, name: str) -> int:
        return len(self.shape("target", name)) - len(self._stacks(name))

    def _expert_axes(self, base: Part) -> dict[str, int]:
        """Return the axes that are the number of experts, which may be equal in base and target."""
        if self.sizes.mixed is None:
            return {}
        found = correspondence(base, part_of(shapes_of(self.init, self.sizes.mixed)))
        axes = {found.parts[name]: axis for name, axis in found.stacked.items()}
        own = {name: axes[self.names[name]] for name in self.weights if self.names[name] in axes}
        # An axis that grows with the width as well is that of all experts' features.
        return {name: axis for name, axis in own.items() if axis not in self.growing(name)}

    def _stacks(self, name: str) -> tuple[int, ...]:
        """Return the axes along which a weight stacks blocks, or weights of experts."""
        stacks = (self.stacked[name],) if name in self.stacked else ()
        if name not in self.experts:
            return stacks
        axis, ndim = self.experts[name], len(self.shape("target", name)) - len(stacks)
        growing, inner = (within(a, stacks) for a in (self.growing(name), (axis,)))
        whole = Weight(self._owners[name], name, ndim, growing, experts=inner[0])
        return (*stacks, axis) if stacks_experts(whole, self.layout) else stacks


def within(axes: Collection[int], stacks: Collection[int]) -> tuple[int, ...]:
    """Return axes with their numbers among those that remain without the axes of stacks."""
    return tuple(axis - sum(stack < axis for stack in stacks) for axis in axes)


def shapes_of(init: Callable[..., Any], sizes: Mapping[str, Any]) -> Any:
    """Return the shapes of the parameters that a function returns, without computing them."""
    import equinox as eqx

    if not callable(init):
        keys = ", ".join(sizes)
        raise InvalidInput(
            f"init: wanted a function of (key, **sizes) that returns the parameters, such as "
            f"lambda key, {keys}: {{'weight': …}}, got {type(init).__name__}; parameters of "
            "other sizes are made with it."
        )
    try:
        return eqx.filter_eval_shape(init, jax.random.key(0), **sizes)
    except TypeError as error:
        raise InvalidInput(
            f"init: could not be called as init(key, **{dict(sizes)}): {error}"
        ) from error


def is_query_name(path: str) -> bool:
    """Whether the last component of a path is a usual name for queries."""
    return path.rpartition(".")[2].lower() in QUERIES | FUSED
