"""The coordinate check: how activations and their changes scale with width, depth, experts.

A parameterization transfers if the size of every activation, and of its change over a few steps
of training, does not depend on the size of the model (Yang et al. 2022, App. D.1, "coordinate
checking"). This module fits the log₂-slopes, with intervals from the scatter between seeds, and
names the first layer whose interval lies beyond the tolerance.

**Intervals.** With y the log₂ at m sizes x and S seeds, the slope is Σ cᵢ ȳᵢ with
cᵢ = (xᵢ − x̄)/Σ(x − x̄)², and its standard error √(Σcᵢ²·s²/S) with the variance s² pooled over
sizes, with m(S − 1) degrees of freedom; with one seed s² is the variance of the residuals, with
m − 2. A layer fails if its slope exceeds the tolerance by more than t standard errors, where t is
Student's quantile at 1 − 0.05/(2k) for k layers with two slopes each (Bonferroni): if all slopes
are within the tolerance, at most one check in twenty fails.

Small models show a finite-width transient: the initial output of a random read-out vanishes as
n^(−½), and so does its contribution to the error signals. A read-out that starts at zero removes
the transient, so that the slopes are those of training.

The change is the sum of a coherent part and a random one, which vanishes as n^(−½) and is the
larger of the two at small widths: its slope may be −¼ under a right plan. Where the effects of
single updates are measured as well (:mod:`largen.transfer.verdicts`: PyTorch, along the width),
whether changes fade is decided by these, whose slopes are those of the coherent part alone; and a
check fails as well if one of these grows.

**Number of experts.** The initial output of a mixture, a mean over K random experts, is K^(−½).
Where training changes the choice of ∝ K active experts, the mean changes by a sum of ∝ K random
terms of size 1/K, again K^(−½), in addition to what the experts learn, which is of order one. At
rates at which the first part dominates, a mixture's slopes under a right plan are −½, and the
tolerance along the number of experts admits that. At larger rates they are flat, and a smaller
tolerance can be passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from largen.callables import takes
from largen.errors import InvalidInput, instance_of, one_of
from largen.results import Result, with_labels
from largen.scalars import integer, real, sequence
from largen.text import aligned
from largen.transfer.plan import Plan
from largen.transfer.verified import Verification

if TYPE_CHECKING:
    import xarray

TOLERANCE = {"width": 0.1, "depth": 0.35, "experts": 0.6}
ALLOWED = 0.05  # false-alarm probability of a check if all slopes are within the tolerance


@dataclass(frozen=True)
class LayerSlopes:
    """The slopes of one layer in a coordinate check.

    Attributes
    ----------
    layer
        The layer's name in the base model.
    size, change
        Slopes of log₂ of the root mean square: of the activation after training, and of its
        change since initialisation.
    judged
        Whether the check requires this layer to pass. Along the depth, layers inside a residual
        branch are exempt, since the branch's output is meant to shrink, and so are blocks before
        the last one, which are at a smaller fraction of the depth in a deeper model.
    passed
        Whether the change neither grows nor vanishes, and the activation does not grow, within
        the intervals.
    size_margin, change_margin
        Half-widths of the intervals of the two slopes.
    """

    layer: str
    size: float
    change: float
    judged: bool
    passed: bool
    size_margin: float = 0.0
    change_margin: float = 0.0


@dataclass(frozen=True)
class CoordinateCheck(Result):
    """Sizes of the activations of models of several sizes, before and after a few steps.

    Attributes
    ----------
    along
        ``"width"``, ``"depth"`` or ``"experts"``.
    ratios
        The sizes relative to the base, (sizes).
    layers
        Names in the base model, from input to output. Along the depth, the name of a repeated
        block stands for the same block of the deeper model, and the last block's for the last.
    start, size, change
        Root mean squares of the activations before and after training, and of their change,
        (sizes, seeds, layers).
    tolerance
        The largest |slope| that passes; the interval of the slope may reach beyond it.
    inside
        Layers inside residual branches, or in blocks before the last one.
    title
        Title of the check.
    verification
        The slopes of effects of single updates in the same models, of PyTorch along the width.
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
    verification: Verification | None = None

    def __post_init__(self):
        if len(set(self.ratios.tolist())) < 2:
            raise InvalidInput("targets: wanted at least two different sizes.")
        enough_seeds(self.change.shape[1], len(self.ratios))

    @property
    def slopes(self) -> tuple[LayerSlopes, ...]:
        """The slopes, and their intervals, of every layer whose activation changes."""
        moving = [i for i in range(len(self.layers)) if self.change[..., i].any()]
        judged = {
            i for i in moving if self.along != "depth" or self.layers[i] not in self.inside
        }  # the other layers are frozen, or precede every weight
        share = 1 - ALLOWED / (2 * max(len(judged), 1))
        rows = []
        known = self.verification
        coherent = (
            known is not None and not known.reason and all(e.flag != "fades" for e in known.flags)
        )
        # The random part of a change fades as n^(−½); nothing that is right fades faster.
        least = -self.tolerance - (0.5 if coherent else 0.0)
        for i in moving:
            size, size_margin = slope_with_margin(self.ratios, self.size[..., i], share)
            change, change_margin = slope_with_margin(self.ratios, self.change[..., i], share)
            ok = max(change - change_margin, size - size_margin) <= self.tolerance
            ok = ok and change + change_margin >= least
            passed = bool(ok or i not in judged)
            rows.append(
                LayerSlopes(
                    self.layers[i], size, change, i in judged, passed, size_margin, change_margin
                )
            )
        return tuple(rows)

    @property
    def guilty(self) -> str | None:
        """The first layer that fails, in the order of the forward pass.

        If none does, that of the first update whose effect grows or fades; empty for the model.
        """
        first = next((row.layer for row in self.slopes if not row.passed), None)
        culprit = None if self.verification is None else self.verification.culprit
        return culprit.layer if first is None and culprit is not None else first

    @property
    def passed(self) -> bool:
        """Whether every layer passes."""
        return self.guilty is None

    @property
    def margin(self) -> float:
        """Half-width of the widest interval among the layers that have to pass.

        If it is larger than the tolerance, a pass is weak evidence, and more seeds are needed.
        """
        margins = [max(r.size_margin, r.change_margin) for r in self.slopes if r.judged]
        return max(margins, default=0.0)

    def __getitem__(self, layer: str) -> LayerSlopes:
        for row in self.slopes:
            if row.layer == layer:
                return row
        raise KeyError(layer)

    def __str__(self) -> str:
        cells = [["layer", "slope of size", "slope of change", ""]]
        for row in self.slopes:
            verdict = "✗" if not row.passed else "" if row.judged else "not judged"
            numbers = [
                f"{row.size:+.3f} ± {row.size_margin:.3f}",
                f"{row.change:+.3f} ± {row.change_margin:.3f}",
            ]
            cells.append([row.layer or "(model)", *numbers, verdict])
        verdict = "passed" if self.passed else f"failed, first at {self.guilty or '(model)'}"
        if self.passed and self.margin > self.tolerance:
            verdict += f", but intervals are up to ± {self.margin:.2g}: more seeds tell more"
        head = f"coordinate check in {self.along}, {self.title}: {verdict}"
        lines = [f"{head} (tolerance {self.tolerance:g})", *aligned(cells)]
        return "\n".join([*lines, *([str(self.verification)] if self.verification else [])])

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return sizes, changes and slopes as a data set over ``(ratio, seed, layer)``."""
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
                "size_margin": ("layer", np.array([row.size_margin for row in chosen])),
                "change_margin": ("layer", np.array([row.change_margin for row in chosen])),
                "passed": ("layer", np.array([row.passed for row in chosen])),
            },
            coords={"ratio": self.ratios, "layer": list(self.layers)},
            attrs={"along": self.along, "title": self.title, "tolerance": self.tolerance},
        )


def slope_with_margin(ratios: np.ndarray, values: np.ndarray, share: float) -> tuple[float, float]:
    """Fit log₂ of values, (sizes, seeds), against log₂ of sizes; return slope and half-width.

    ``share``: the probability below the upper end of the interval, such as 0.975. The slope is
    infinite if a value is not finite or not positive.
    """
    if not (np.isfinite(values).all() and (values > 0).all()):
        return float("inf"), 0.0
    x, y = np.log2(ratios), np.log2(values)
    sizes, seeds = y.shape
    weights = (x - x.mean()) / np.square(x - x.mean()).sum()
    mean = y.mean(axis=1)
    slope = float(weights @ mean)
    if seeds > 1:
        left, freedom = y - mean[:, None], sizes * (seeds - 1)
    else:
        left, freedom = mean - mean.mean() - slope * (x - x.mean()), sizes - 2
    if freedom < 1:
        enough_seeds(seeds, sizes)
    error = sqrt(np.square(left).sum() / freedom * np.square(weights).sum() / seeds)
    return slope, error * float(stdtrit(freedom, share))


def enough_seeds(seeds: int, sizes: int) -> None:
    """Raise if there are too few networks for an interval of the slope."""
    if seeds < 2 and sizes < 3:
        raise InvalidInput("seeds: wanted at least 2, or three sizes, to tell a slope from chance.")


def effort(
    steps: Any, seeds: Any, batches: Any, targets: Any, loss: Any, lr: Any, tolerance: Any
) -> None:
    """Check the arguments that set the training and the tolerance of a check."""
    integer("steps", steps, at_least=1)
    sequence("targets", targets, "a list of shapes")
    integer("seeds", seeds, at_least=1)
    real("lr", lr, at_least=0)
    if tolerance is not None:
        real("tolerance", tolerance, above=0)
    takes("loss", loss, ("model", "batch"))
    if not sequence("batches", batches, "a list of batches"):
        raise InvalidInput("batches: is empty; wanted at least one.")


def group_settings(settings: object, known: Sequence[str]) -> dict[str, Any]:
    """Return an optimizer's settings without the rate; no weight decay by default."""
    given = instance_of(
        "settings", {} if settings is None else settings, Mapping, "a dict such as {'eps': 1e-8}"
    )
    for name in given:
        one_of("settings", name, known)
    return {"weight_decay": 0.0, **given}


def one_direction(plans: Sequence[Plan], seeds: int = 2) -> tuple[str, list[float]]:
    """Return the size that varies (:class:`CoordinateCheck`) and ratios of targets to the base."""
    ways = {
        "width": [plan.width_ratio for plan in plans],
        "depth": [plan.depth_ratio for plan in plans],
        "experts": [plan.experts_ratio for plan in plans],
    }
    varied = [along for along, ratios in ways.items() if len(set(ratios)) > 1]
    if len(varied) != 1:
        raise InvalidInput(
            "targets: wanted shapes that differ in width only, or in depth only, or in the number "
            f"of experts only; they differ in {' and '.join(varied) or 'none of them'}."
        )
    enough_seeds(seeds, len(plans))
    return varied[0], ways[varied[0]]


def checked(
    plans: Sequence[Plan],  # the plans of the models
    # For each plan and seed: layer → size before training, size after, size of the change.
    records: Sequence[Sequence[Mapping[str, tuple[float, float, float]]]],
    inside: frozenset[str],  # layers inside residual branches
    tolerance: float | None,  # the largest |slope| that passes; by default TOLERANCE
    title: str,
    # The slopes of effects of single updates in these models.
    verification: Verification | None = None,
) -> CoordinateCheck:
    """Return the coordinate check of the measured sizes."""
    along, ratios = one_direction(plans)
    tolerance = TOLERANCE[along] if tolerance is None else float(tolerance)
    layers = tuple(name for name in records[0][0] if all(name in r for own in records for r in own))
    if not layers:
        raise InvalidInput("loss: the models' layers give no tensors of the same names.")
    numbers = np.array([[[r[name] for name in layers] for r in own] for own in records])
    start, size, change = np.moveaxis(numbers, -1, 0)
    return CoordinateCheck(
        along, np.array(ratios), layers, start, size, change, tolerance, inside,
        f"{plans[0].scheme}, {title}", verification,
    )  # fmt: skip
