"""Comparison of models of several shapes: which weights correspond, and which axes grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log, prod
from typing import Any

from largen.errors import InvalidInput
from largen.transfer.initial import InitialDistribution, Moments, entries_for, initial_distributions
from largen.transfer.shapes import Shapes
from largen.transfer.structure import Part, correspondence, names_in_first

Measure = Callable[[Mapping[str, Any], Mapping[str, str], int], Mapping[str, Moments]]


class Alignment:
    """The base, wider, deeper and target models, and the correspondence between their weights.

    ``names``: part or weight of the target → the base's; ``l``: relative depth; ``blocks``: parts
    whose number grows with the depth; ``stacked``: weights that stack blocks → the axis; ``mixed``:
    weights that grow with the number of experts.
    """

    def __init__(
        self,
        parts: Mapping[str, Part],
        sizes: Shapes,
        builder: str,
        part_at: Callable[[Mapping[str, int]], Part],  # the parts of a model of another shape
    ):
        self.sizes = sizes
        parts = {"crowded": parts["tall"], **parts}
        self._shapes = {name: part.all_weights() for name, part in parts.items()}
        for a, b in (("base", "wide"), ("crowded", "target")):
            if set(self._shapes[a]) != set(self._shapes[b]):
                odd = sorted(set(self._shapes[a]) ^ set(self._shapes[b]))
                self._refuse_depth(part_at)
                raise InvalidInput(f"{builder}: the weights {odd[:3]} exist at one width only.")
        base, deep = parts["base"], parts.get("deep", parts["base"])
        to_tall = correspondence(base, parts["tall"])
        self.l = to_tall.depth_ratio(base, parts["tall"])
        to_crowded = correspondence(parts["tall"], parts["crowded"])
        self.names = names_in_first(to_tall, to_crowded)
        within = tuple(f"{block}." for block in to_crowded.blocks)
        self.mixed = {
            name
            for name in self._shapes["crowded"]
            if name in to_crowded.stacked or name.startswith(within)
        }
        self._deeper = correspondence(base, deep)
        self._deep_ratio = self._deeper.depth_ratio(base, deep)
        repeated = {self._deeper.parts[block] for block in self._deeper.blocks}
        self.blocks = tuple(path for path, source in self.names.items() if source in repeated)
        axes = {self._deeper.parts[name]: axis for name, axis in self._deeper.stacked.items()}
        self.stacked = {w: axes[source] for w, source in self.names.items() if source in axes}

    def _refuse_depth(self, part_at: Callable[[Mapping[str, int]], Part]) -> None:
        """Raise if a key that is taken for a width adds weights, as a depth does."""
        base = self.sizes.base
        for key, size in self.sizes.wide.items():
            if size == base[key]:
                continue
            try:
                added = set(part_at({**base, key: size}).all_weights())
            except InvalidInput:  # sizes that only fit together
                continue
            added -= set(self._shapes["base"])
            if added:
                raise InvalidInput(
                    f"base: {key} = {size} in place of {base[key]} adds the weights "
                    f"{sorted(added)[:3]}, as a depth does, while a width makes weights larger. If "
                    f"it is the depth, pass hints=Hints(depth={key!r}); if it is the number of "
                    f"experts, hints=Hints(experts={key!r})."
                )

    def shape(self, model: str, name: str) -> tuple[int, ...]:
        """Return the shape of one weight in one of the models."""
        return self._shapes[model][name]

    def growing(self, name: str) -> tuple[int, ...]:
        """Return the axes, of one of the target's weights, that grow with the width."""
        base, wide = (self.shape(model, self.names[name]) for model in ("base", "wide"))
        return tuple(i for i, (x, y) in enumerate(zip(base, wide, strict=True)) if x != y)

    def copies_of(self, name: str) -> str:
        """Return a weight's name, with the number of a repeated block replaced by a star."""
        source = self.names[name]
        repeated = {self._deeper.parts[block] for block in self._deeper.blocks}
        for block in repeated | self._deeper.early_blocks():
            if source.startswith(f"{block}."):
                return f"{block.rpartition('.')[0]}.*{source[len(block) :]}".removeprefix(".")
        return source

    def builders_width(self, name: str) -> str:
        """Return the weight whose width sets the builder's initialisation of one of the target's.

        Of a bias, or a weight of fixed size, the first matrix of its layer that grows.
        """
        leaf, target = name.rpartition(".")[2], self._shapes["target"]
        same = [other for other in target if _layer(other) == _layer(name)]
        same.sort(key=lambda other: len(target[other]) < 2)
        first = () if "bias" in leaf.lower() else (name,)
        return next((other for other in (*first, *same) if self.growing(other)), name)

    def ratio(self, name: str) -> float:
        """Return n of a weight: the ratio of its fan-ins, or of its fan-outs if that is fixed."""
        return self._grown(name, self.shape("target", name), self.shape("crowded", name))

    def width_growth(self, name: str) -> float:
        """Return the width of a weight in the wider model relative to the base model."""
        return self._grown(name, *(self.shape(m, self.names[name]) for m in ("wide", "base")))

    def factors_of_fan_in(self, name: str) -> int:
        """Return k of a hidden weight whose fan-in is a product of k widths, its fan-out one."""
        base, wide = (self.shape(model, self.names[name]) for model in ("base", "wide"))
        into = self.width_growth(name)
        out = prod(wide) / prod(base) / into
        whole = self.sizes.widening
        return round(log(into) / log(out)) if out >= whole > 1.0 and into > out else 1

    def _grown(self, name: str, after: tuple[int, ...], before: tuple[int, ...]) -> float:
        """Return the ratio of two widths of a weight of the target; 1 if it does not grow."""
        raise NotImplementedError

    def distributions_by(self, moments: Measure) -> dict[str, InitialDistribution]:
        """Return the base's initial weights, measured by ``moments(shape, names, entries)``."""
        own = {name: name for name in self._shapes["base"]}
        ratios = {}
        for name in self._shapes["crowded"]:
            grown = self.builders_width(name)
            if self.growing(grown):
                ratios[self.names[name]] = self.width_growth(grown)
        entries = entries_for([*ratios.values(), self._deep_ratio])
        base, wide = (moments(at, own, entries) for at in (self.sizes.base, self.sizes.wide))
        deep: Mapping[str, Moments] = {}
        if self.sizes.deep is not None:
            deep = moments(self.sizes.deep, self._deeper.parts, entries)
        return initial_distributions(base, wide, deep, ratios, self._deep_ratio)


def _layer(name: str) -> str:
    """Return the path of the layer of a weight, or of what a parametrization makes one of."""
    path, parametrized, _ = name.partition(".parametrizations.")
    return path if parametrized else name.rpartition(".")[0]
