"""Measured and predicted exponents: the table, the data set and the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from largen.bibliography import cites
from largen.experiments.exponents.quantities import GROUPS
from largen.experiments.power_law import PowerLaw
from largen.parameterizations.classification import Classification
from largen.parameterizations.classification.orders import Order
from largen.results import Result, with_labels

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

# Standard errors on each side of a confidence interval of 95 %.
SIGMAS = 2.0


@dataclass(frozen=True)
class MeasuredExponent:
    """The power of N of one quantity.

    Attributes
    ----------
    group, name
        The kind of quantity, and the name of the weight, output or term.
    estimate
        The fitted exponent with its standard error; NaN for a quantity that is zero or unresolved.
    known
        Whether there is a prediction.
    predicted
        The predicted exponent; None for a quantity that is zero, or without a prediction.
    zero
        Whether the quantity is zero in every network, exactly.
    """

    group: str
    name: str
    estimate: PowerLaw
    known: bool
    predicted: Order
    zero: bool = False

    @property
    def state(self) -> Literal["zero", "unresolved", "number"]:
        """Whether the quantity is zero, unresolved with these networks, or has an exponent."""
        if self.zero:
            return "zero"
        return "number" if self.estimate.resolved else "unresolved"

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval of 95 %."""
        half = SIGMAS * self.estimate.error
        return self.estimate.value - half, self.estimate.value + half

    @property
    def deviates(self) -> bool:
        """Whether an exponent was measured and the prediction lies outside its interval."""
        if not self.known or self.state != "number":
            return False
        low, high = self.interval
        return self.predicted is None or not low <= float(self.predicted) <= high


def _row(e: MeasuredExponent) -> str:
    """Return a measured exponent and the predicted one, as a row of a table."""
    measured = str(e.estimate) if e.state == "number" else e.state
    predicted = "zero" if e.predicted is None else f"{e.predicted!s:>5}"
    return f"  {e.name:<16} {measured:>14}   {predicted if e.known else '':<6}"


@cites("golikov2020towards")
class MeasuredExponents(Result):
    """Exponents of N, measured and predicted; made by :func:`largen.scaling.measure_exponents`.

    Attributes
    ----------
    exponents
        One :class:`MeasuredExponent` for each quantity.
    classification
        The predicted class of the scaling.
    """

    def __init__(
        self,
        dataset: xarray.Dataset,
        exponents: tuple[MeasuredExponent, ...],
        classification: Classification,
    ):
        self._dataset = dataset
        self.exponents = exponents
        self.classification = classification

    def __getitem__(self, name: str | tuple[str, str]) -> MeasuredExponent:
        """Return a quantity by its (group, name), or by a name that only one group has."""
        matches = [e for e in self.exponents if name in ((e.group, e.name), e.name)]
        if len(matches) != 1:
            known = ", ".join(f"({e.group!r}, {e.name!r})" for e in self.exponents)
            raise KeyError(f"{name!r} names {len(matches)} of the quantities {known}")
        return matches[0]

    @property
    def deviations(self) -> tuple[MeasuredExponent, ...]:
        """The quantities whose predicted exponent is outside of the measured interval.

        Empty for an unstable scaling, whose predictions hold for one step only.
        """
        if self.classification.kind == "unstable":
            return ()
        return tuple(e for e in self.exponents if e.deviates)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return sizes by ``quantity`` and ``width``, and exponents by ``quantity``.

        ``size`` is the root mean square over entries, samples and networks.
        """
        return self._dataset.copy()

    def _figure(self) -> Figure:
        """Draw sizes against the width, and measured and predicted exponents."""
        from largen.plots import exponents_figure

        return exponents_figure(self._dataset, GROUPS)

    def __str__(self) -> str:
        d = self._dataset
        widths = d["width"].values
        lines = [
            f"Powers of the width, {widths[0]} … {widths[-1]} ({len(widths)} widths, "
            f"{d.attrs['seeds']} networks each); {d.attrs['parameterization']}, "
            f"{d.attrs['optimizer']}, {d.attrs['length']}; on {d.attrs['on']} samples",
            f"predicted class: {self.classification.kind}",
        ]
        marked = {id(e) for e in self.deviations}
        for group, what in GROUPS.items():
            rows = [e for e in self.exponents if e.group == group]
            if rows:
                lines.append(what)
            for e in rows:
                lines.append((_row(e) + (" ← deviates" if id(e) in marked else "")).rstrip())
        count = len(marked)
        if self.classification.kind == "unstable":
            lines.append("unstable: predictions are those of the step that shows it, unmarked")
        elif count:
            lines.append(f"{count} of {len(self.exponents)} outside of ± {SIGMAS:g} errors")
        else:
            lines.append(f"all predictions lie within ± {SIGMAS:g} errors")
        unresolved = sum(e.state == "unresolved" for e in self.exponents)
        if unresolved:
            lines.append(f"{unresolved} unresolved: take more seeds; their sizes: .to_xarray()")
        return "\n".join(lines)

    __repr__ = __str__
