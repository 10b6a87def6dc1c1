"""The report of a classification: the class, the exponents of each layer, violated conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from largen.bibliography import cites
from largen.parameterizations.classification.orders import Order, show
from largen.parameterizations.classification.plane import ScalingClass
from largen.results import Result, with_labels
from largen.text import aligned

if TYPE_CHECKING:
    import xarray

Kind = Literal[
    "maximal", "feature learning", "kernel", "stuck at initialisation", "vanishing", "unstable"
]

MEANING = {
    "maximal": "every layer's update moves its features, and the outputs, at order one",
    "feature learning": "outputs move at order one, and so do features of some layers",
    "kernel": "outputs move at order one while features stand still: a constant kernel",
    "stuck at initialisation": "outputs stay what they are at initialisation",
    "vanishing": "outputs are zero at all times",
    "unstable": "something grows with the width",
}


LAYER_ORDERS = ("initial", "change", "direct", "through", "increment")
LAYER_FLAGS = ("learns", "moves")


@dataclass(frozen=True)
class LayerScaling:
    """Exponents of N at one affine map; None where a quantity is identically zero.

    Attributes
    ----------
    name, role
        The map's place in the network, and its role: input, hidden or output.
    initial
        The exponent of its preactivations (for the read-out, of the outputs) at initialisation.
    change
        The exponent of their change in training.
    direct
        The exponent of their change by this layer's own update alone.
    through
        The exponent of the change of the network's outputs by this layer's own update alone.
    increment
        The exponent of δŵ, a weight's change relative to its initial size.
    input_change
        The exponent of the change of the values that enter the map.
    """

    name: str
    role: str
    initial: Order
    change: Order
    direct: Order
    through: Order
    increment: Order
    input_change: Order

    @property
    def learns(self) -> bool:
        """Whether the layer's own update changes the network's outputs at order one."""
        return self.through == 0

    @property
    def moves(self) -> bool:
        """Whether the layer's preactivations change by as much as their initial size."""
        return self.change is not None and (self.initial is None or self.change >= self.initial)


@cites("golikov2020towards", "pehlevan2023lecture")
@dataclass(frozen=True)
class Classification(Result):
    """The limit that a parameterization gives a network; returned by
    :func:`largen.scaling.classify`.

    Exponents are those of late steps, at which they are constant; for an unstable scaling, those of
    the step at which a quantity first grows with N.

    Attributes
    ----------
    title
        The parameterization, the network and the kind of optimizer.
    kind
        The class of the limit.
    layers
        The exponents at every affine map, from input to output.
    outputs
        Exponents of the outputs at initialisation, after the first step, and so on.
    moved
        Exponents of the change of the outputs since initialisation, at the same steps.
    violated
        The conditions that fail; empty if outputs move at order one and nothing diverges.
    notes
        Remarks, such as gradients that fall below ε.
    stable_rate
        For an unstable scaling that is stable at smaller rates: the least ρ such that training is
        stable with all rates times N^(−ρ).
    plane
        For one hidden layer under gradient descent, the scaling's class in Golikov's plane.
    """

    title: str
    kind: Kind
    layers: tuple[LayerScaling, ...]
    outputs: tuple[Order, ...]
    moved: tuple[Order, ...]
    violated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stable_rate: Fraction | None = None
    plane: ScalingClass | None = field(default=None, repr=False)

    @property
    def nontrivial(self) -> bool:
        """Whether outputs move at order one and nothing diverges."""
        return not self.violated

    @property
    def features_move(self) -> bool:
        """Whether the limit is non-trivial and some hidden layer's features move."""
        return self.nontrivial and any(layer.moves for layer in self.layers[:-1])

    @property
    def learning_layers(self) -> tuple[str, ...]:
        """Names of the affine maps whose own update moves the outputs at order one."""
        return tuple(layer.name for layer in self.layers if layer.learns)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the exponents by ``layer``, and those of the outputs by ``step``.

        Quantities that are identically zero are not a number. ``learns`` and ``moves`` say whether
        a layer's own update moves the outputs, and whether its preactivations move, at the order of
        their initial size.
        """
        import xarray

        def column(name: str) -> list:
            return [getattr(layer, name) for layer in self.layers]

        return xarray.Dataset(
            {
                **{name: ("layer", _floats(column(name))) for name in LAYER_ORDERS},
                **{name: ("layer", column(name)) for name in LAYER_FLAGS},
                "outputs": ("step", _floats(self.outputs)),
                "moved": ("step", _floats(self.moved)),
            },
            {
                "layer": column("name"),
                "role": ("layer", column("role")),
                "step": np.arange(len(self.outputs)),
            },
            {"title": self.title, "kind": self.kind, "violated": list(self.violated)},
        )

    def __str__(self) -> str:
        cells = [["layer", "role", "h at start", "δh", "δh by itself", "δf by itself", "δW/W"]]
        for (role, *orders), group in groupby(self.layers, key=_row):
            same = list(group)
            name = same[0].name
            if len(same) > 1:
                name += f" … {same[-1].name}" if same[-1].name != name else f" (×{len(same)})"
            cells.append([name, role, *orders])
        lines = [
            f"{self.title}: {self.kind}",
            MEANING[self.kind],
            *aligned(cells),
            f"outputs {show(self.outputs[0])} at start, their change {show(self.moved[-1])}",
            *(f"violated: {condition}" for condition in self.violated),
        ]
        if self.stable_rate is not None:
            lines.append(f"stable with all rates times {show(-self.stable_rate)}")
        if self.plane is not None:
            lines.append(f"among scalings of one hidden layer: {self.plane.kind}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _floats(orders: Sequence[Order]) -> np.ndarray:
    return np.array([np.nan if order is None else float(order) for order in orders])


def _row(layer: LayerScaling) -> tuple[str, ...]:
    return (layer.role, *(show(getattr(layer, name)) for name in LAYER_ORDERS))
