"""The coordinate check as numbers: how sizes of activations and their changes grow with a size.

A parameterization transfers if every activation, and what a few steps of training change of it,
keeps its size when the model grows (Yang et al. 2022, App. D.1, "coordinate checking"). Here the
log₂-slopes are fitted, compared with a tolerance, and the first layer that fails is named.

Small models have a transient: a random read-out's initial output fades as n^(−½), and the error
signals with it. Starting the read-out at zero removes it, and the slopes are those of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.arrays import integer, real, sequence
from largen.callables import takes
from largen.errors import InvalidInput
from largen.results import in_notebooks
from largen.text import aligned
from largen.transfer.plan import Plan

if TYPE_CHECKING:
    import xarray

TOLERANCE = {"width": 0.1, "depth": 0.35}


@dataclass(frozen=True)
class LayerSlopes:
    """One layer of a coordinate check.

    Attributes
    ----------
    layer
        Its name in the base model.
    size, change
        Slopes of log₂ of the root mean square of the activation after training, and of its
        change since initialisation.
    judged
        Whether it has to pass: along the depth, what is inside a residual branch need not, since
        there a branch's output is meant to shrink.
    passed
        Whether the change neither grows nor vanishes, and the activation does not grow.
    """

    layer: str
    size: float
    change: float
    judged: bool
    passed: bool


@dataclass(frozen=True)
class CoordinateCheck:
    """Activations of models of several sizes, before and after a few steps.

    Attributes
    ----------
    along
        ``"width"`` or ``"depth"``.
    ratios
        The sizes relative to the base, (sizes).
    layers
        Names in the base model, from input to output; behind depth, a repeated block's name in
        the base stands for the same block of the larger model, and its last for the last.
    start, size, change
        Root mean squares before and after training, and of the change, (sizes, seeds, layers).
    tolerance
        The largest |slope| that passes.
    inside
        Layers inside residual branches.
    title
        What was checked.
    """

    along: str
    ratios: np.ndarray
    layers: tuple[str, ...]
    start: np.ndarray
    size: np.ndarray
    change: np.ndarray
    tolerance: float
    inside: frozenset[str] = frozenset()
    title: str = ""

    def __post_init__(self):
        if len(set(self.ratios.tolist())) < 2:
            raise InvalidInput("targets: wanted at least two different sizes.")

    @property
    def slopes(self) -> tuple[LayerSlopes, ...]:
        """The slopes of every layer that moves."""
        rows = []
        for i, layer in enumerate(self.layers):
            if not self.change[..., i].any():
                continue  # frozen, or in front of every weight
            size, change = self._slope(self.size[..., i]), self._slope(self.change[..., i])
            judged = self.along == "width" or layer not in self.inside
            ok = abs(change) <= self.tolerance and size <= self.tolerance
            rows.append(LayerSlopes(layer, size, change, judged, bool(ok or not judged)))
        return tuple(rows)

    @property
    def guilty(self) -> str | None:
        """The first layer that fails, in the order of the forward pass."""
        return next((row.layer for row in self.slopes if not row.passed), None)

    @property
    def passed(self) -> bool:
        """Whether every layer passes."""
        return self.guilty is None

    def __getitem__(self, layer: str) -> LayerSlopes:
        for row in self.slopes:
            if row.layer == layer:
                return row
        raise KeyError(layer)

    def __str__(self) -> str:
        cells = [["layer", "slope of size", "slope of change", ""]]
        for row in self.slopes:
            verdict = "✗" if not row.passed else "" if row.judged else "in a branch"
            cells.append(
                [row.layer or "(model)", f"{row.size:+.3f}", f"{row.change:+.3f}", verdict]
            )
        verdict = "passed" if self.passed else f"failed, first at {self.guilty or '(model)'}"
        head = f"coordinate check in {self.along}, {self.title}: {verdict}"
        return "\n".join([f"{head} (tolerance {self.tolerance:g})", *aligned(cells)])

    _repr_html_ = in_notebooks

    def to_xarray(self) -> xarray.Dataset:
        """Return sizes and changes as a data set ``(ratio, seed, layer)``, slopes as variables."""
        import xarray

        axes = ("ratio", "seed", "layer")
        rows = {row.layer: row for row in self.slopes}
        still = LayerSlopes("", np.nan, np.nan, False, True)
        chosen = [rows.get(layer, still) for layer in self.layers]
        return xarray.Dataset(
            {
                "start": (axes, self.start),
                "size": (axes, self.size),
                "change": (axes, self.change),
                "size_slope": ("layer", np.array([row.size for row in chosen])),
                "change_slope": ("layer", np.array([row.change for row in chosen])),
                "passed": ("layer", np.array([row.passed for row in chosen])),
            },
            coords={"ratio": self.ratios, "layer": list(self.layers)},
            attrs={"along": self.along, "title": self.title, "tolerance": self.tolerance},
        )

    def _slope(self, values: np.ndarray) -> float:
        """Fit log₂ of the mean over seeds; a value that is not finite gives an infinite slope."""
        mean = values.mean(axis=1)
        if not (np.isfinite(mean).all() and (mean > 0).all()):
            return float("inf")
        return float(np.polyfit(np.log2(self.ratios), np.log2(mean), 1)[0])


def effort(
    steps: Any, seeds: Any, batches: Any, targets: Any, loss: Any, lr: Any, tolerance: Any
) -> None:
    """Check how much is measured, and by what.

    Raises
    ------
    InvalidInput
        If there are no steps, no networks or no batches, or an argument cannot be meant.
    """
    integer("steps", steps, at_least=1)
    integer("seeds", seeds, at_least=1)
    real("lr", lr, at_least=0)
    if tolerance is not None:
        real("tolerance", tolerance, above=0)
    takes("loss", loss, ("model", "batch"))
    sequence("targets", targets, "a list of shapes")
    if not sequence("batches", batches, "a list of batches"):
        raise InvalidInput("batches: is empty; wanted at least one.")


def one_direction(plans: Sequence[Plan]) -> tuple[str, list[float]]:
    """Return in what the targets differ, ``"width"`` or ``"depth"``, and their ratios to the base.

    Raises
    ------
    InvalidInput
        If they differ in both, or in none.
    """
    wide = [plan.width_ratio for plan in plans]
    deep = [plan.depth_ratio for plan in plans]
    if len(set(wide)) > 1 and len(set(deep)) == 1:
        return "width", wide
    if len(set(deep)) > 1 and len(set(wide)) == 1:
        return "depth", deep
    raise InvalidInput("targets: wanted shapes that differ in width only, or in depth only.")


def checked(
    plans: Sequence[Plan],
    records: Sequence[Sequence[Mapping[str, tuple[float, float, float]]]],
    inside: frozenset[str],
    tolerance: float | None,
    title: str,
) -> CoordinateCheck:
    """Put what was measured together.

    Parameters
    ----------
    plans
        Of the models.
    records
        For each plan and seed: layer → size before, after, and of the change.
    inside
        Layers inside residual branches.
    tolerance
        The largest |slope| that passes; by default :data:`TOLERANCE`.
    title
        What was done.
    """
    along, ratios = one_direction(plans)
    tolerance = TOLERANCE[along] if tolerance is None else float(tolerance)
    layers = tuple(name for name in records[0][0] if all(name in r for own in records for r in own))
    numbers = np.array([[[r[name] for name in layers] for r in own] for own in records])
    start, size, change = np.moveaxis(numbers, -1, 0)
    return CoordinateCheck(
        along, np.array(ratios), layers, start, size, change, tolerance, inside,
        f"{plans[0].scheme}, {title}",
    )  # fmt: skip
