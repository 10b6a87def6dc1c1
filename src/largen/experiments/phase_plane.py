"""The plane of scalings of one hidden layer, and the limit at each point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.parameterizations.classification import ScalingClass, plane_class
from largen.parameterizations.classification.plane import NAMED
from largen.parameterizations.exponents import exact
from largen.results import Result, with_labels
from largen.scalars import integer
from largen.text import shown

MOST_POINTS = 100_000  # which take some seconds

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

Point = tuple[Fraction, Fraction]

# Directions in which sets of equal class can run through the lattice: each condition is linear
# in the two exponents, with small coefficients.
DIRECTIONS = ((0, 1), (1, 0), (1, -1), (1, -2), (1, -3), (2, -1), (2, -3), (1, 1))


@cites("golikov2020towards")
@dataclass(frozen=True)
class ScalingMap(Result):
    """The classes of a plane of scalings; made by :func:`plane_map`.

    Attributes
    ----------
    q_sigma, rate
        The lattice: q_σ and q̃_a, exact.
    difference
        q̃_w − q̃_a, the same on the whole plane.
    regions
        The class within each cell of the lattice, ``(rate − 1, q_sigma − 1)``.
    lines
        Segments between lattice points on which the limit is not trivial, or stuck at
        initialisation, by class. None of them fills a region.
    named
        The named scalings (q_σ, q̃_a, q̃_w), whether or not they lie on this plane.
    """

    q_sigma: tuple[Fraction, ...]
    rate: tuple[Fraction, ...]
    difference: Fraction
    regions: tuple[tuple[str, ...], ...]
    lines: dict[str, tuple[tuple[Point, Point], ...]]
    named: dict[str, tuple[Fraction, Fraction, Fraction]]

    def at(self, q_sigma: Any, rate: Any) -> ScalingClass:
        """Return the class of a point of the plane; see :func:`largen.scaling.plane_class`."""
        first = exact("rate", rate)
        return plane_class(q_sigma, first, first + self.difference)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the class at every lattice point, ``kind (rate, q_sigma)``."""
        import xarray

        kinds = [[self.at(q, r).kind for q in self.q_sigma] for r in self.rate]
        return xarray.Dataset(
            {"kind": (("rate", "q_sigma"), np.array(kinds))},
            {"q_sigma": [float(q) for q in self.q_sigma], "rate": [float(r) for r in self.rate]},
            {"difference": str(self.difference)},
        )

    def _figure(self) -> Figure:
        from largen.plots import scaling_figure

        return scaling_figure(
            [float(q) for q in self.q_sigma],
            [float(r) for r in self.rate],
            np.array(self.regions),
            {kind: np.array(ends, dtype=float) for kind, ends in self.lines.items()},
            {name: tuple(map(float, point)) for name, point in self.named.items()},
            float(self.difference),
        )

    def __str__(self) -> str:
        equal = "q̃_w = q̃_a" if not self.difference else f"q̃_w = q̃_a + ({self.difference})"
        lines = [
            f"Scalings with q_σ = {self.q_sigma[0]} … {self.q_sigma[-1]}, "
            f"q̃_a = {self.rate[0]} … {self.rate[-1]}, {equal}",
            f"regions: {', '.join(sorted({kind for row in self.regions for kind in row}))}",
        ]
        for kind, segments in self.lines.items():
            ends = sorted({end for segment in segments for end in segment})
            (q0, r0), (q1, r1) = ends[0], ends[-1]
            lines.append(f"line: {kind}, from ({q0}, {r0}) to ({q1}, {r1})")
        for name, (q, a, w) in self.named.items():
            where = "" if w - a == self.difference else ", not on this plane"
            lines.append(f"point: {name}, ({q}, {a}, {w}){where}: {plane_class(q, a, w).kind}")
        return "\n".join(lines)


def plane_map(
    *,
    q_sigma: tuple[Any, Any] = (Fraction(-7, 5), Fraction(-1, 5)),
    rate: tuple[Any, Any] = (Fraction(-2, 5), Fraction(8, 5)),
    difference: Any = 0,
    per_unit: int = 40,
) -> ScalingMap:
    """Return the map of the scalings (q_σ, q̃) of one hidden layer, by exact classification.

    In f = σ Σ_r a_r φ(w_r·x) with N neurons and standard Gaussian a and w, σ grows as N^(q_σ), and
    the learning rates of a and w as N^(q̃_a) and N^(q̃_w); :func:`largen.scaling.plane_class` has
    the class of a single scaling.

    Golikov, *Towards a general theory of infinite-width limits of neural classifiers*, §3: for
    equal rates the non-trivial limits are the line q̃ = −1 − 2q_σ from the NTK scaling at
    (−½, 0) through the intermediate ones to the mean-field scaling at (−1, 1). Above it outputs
    diverge in training, below it they vanish, and right of q_σ = −½ they diverge from the start.

    Parameters
    ----------
    q_sigma, rate
        The ranges of q_σ and q̃_a: pairs of exact exponents, such as (-1, 0) or ("-5/4", "-1/4").
    difference
        q̃_w − q̃_a, the same on the whole plane: 0 for equal rates, −1 for the plane that holds the
        default scaling, variances over the fan-in and a rate that does not depend on N.
    per_unit
        Lattice points to a unit of each exponent; even, so that halves are among them.

    Raises
    ------
    InvalidInput
        If a range is empty, not rational, or ``per_unit`` is not a positive even integer.

    Examples
    --------
    >>> import largen as lg
    >>> plane = lg.scaling.plane_map(q_sigma=("-5/4", "-1/4"), rate=(0, 1), per_unit=4)
    >>> print(plane)
    Scalings with q_σ = -5/4 … -1/4, q̃_a = 0 … 1, q̃_w = q̃_a
    regions: divergent, vanishing
    line: intermediate, from (-1, 1) to (-1/2, 0)
    point: NTK, (-1/2, 0, 0): NTK
    point: intermediate, (-3/4, 1/2, 1/2): intermediate
    point: mean field, (-1, 1, 1): mean field
    point: default, (-1/2, 1, 0), not on this plane: divergent
    """
    if integer("per_unit", per_unit, at_least=2, at_most=MOST_POINTS) % 2:
        raise InvalidInput(f"per_unit: wanted an even integer, got {per_unit!r}.")
    across, up = (_lattice(*pair, per_unit) for pair in (("q_sigma", q_sigma), ("rate", rate)))
    apart = exact("difference", difference)
    if len(across) * len(up) > MOST_POINTS:
        raise InvalidInput(
            f"per_unit: {len(across)} × {len(up)} points are more than {MOST_POINTS}; take a "
            "smaller number, or smaller ranges."
        )

    def kind(point: Point) -> str:
        return plane_class(point[0], point[1], point[1] + apart).kind

    # Off the centre of a cell, where no line with small coefficients passes.
    step = Fraction(1, per_unit)
    right, above = step * Fraction(37, 101), step * Fraction(59, 103)
    regions = tuple(tuple(kind((q + right, r + above)) for q in across[:-1]) for r in up[:-1])
    filled = {name for row in regions for name in row}
    lines: dict[str, list[tuple[Point, Point]]] = {}
    for start, end in _segments(across, up, kind, filled):
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        lines.setdefault(kind(middle), []).append((start, end))
    return ScalingMap(
        across, up, apart, regions, {name: tuple(points) for name, points in lines.items()}, NAMED
    )


def _segments(
    across: tuple[Fraction, ...], up: tuple[Fraction, ...], kind: Any, filled: set[str]
) -> Iterator[tuple[Point, Point]]:
    """Yield pairs of lattice points between which the class is not one that fills regions."""
    special = {
        (i, j) for i, q in enumerate(across) for j, r in enumerate(up) if kind((q, r)) not in filled
    }
    for i, j in sorted(special):
        for right, above in DIRECTIONS:
            other = (i + right, j + above)
            if other in special:
                start, end = (across[i], up[j]), (across[other[0]], up[other[1]])
                middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
                if kind(middle) not in filled:
                    yield start, end


def _lattice(name: str, pair: Any, per_unit: int) -> tuple[Fraction, ...]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInput(f"{name}: wanted a pair (from, to), got {shown(pair)}.")
    low, high = (exact(f"{name}[{i}]", value) for i, value in enumerate(pair))
    first, last = -(-low * per_unit // 1), high * per_unit // 1
    if last <= first:
        raise InvalidInput(
            f"{name}: wanted (from, to) with from < to, at least 1/{per_unit} apart, got {pair!r}."
        )
    return tuple(Fraction(k, per_unit) for k in range(int(first), int(last) + 1))
