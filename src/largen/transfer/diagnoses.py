"""Results of diagnoses: which change of a plan lowers the loss, as a table.

**Intervals.** Networks of one seed have the same initial values up to the plan's factors, and the
same batches. With d_s the difference of the losses of seed s, the gain is the mean of d over S
seeds, and the half-width of its interval is t·std(d)/√S with Student's quantile t at S − 1 degrees
of freedom and probability 1 − 0.05/(2k), for k changes (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from scipy.special import stdtrit

from largen.results import in_notebooks
from largen.text import aligned

ALLOWED = 0.05  # probability that any change without effect is named


@dataclass(frozen=True)
class Change:
    """The effect of one change of a plan's settings.

    Attributes
    ----------
    name
        What was changed.
    source
        Where the change is proposed, or why.
    lr
        The rate at which the changed plan has its lowest loss; infinite if it diverges at all.
    loss
        The mean loss at that rate.
    gain, margin
        By how much the loss is lower than the plan's own, and half the width of its interval.
    """

    name: str
    source: str
    lr: float
    loss: float
    gain: float
    margin: float

    @property
    def helps(self) -> bool:
        """Whether the loss is lower beyond the interval."""
        return self.gain > self.margin


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The losses of a plan, of the standard scheme, and of the plan with single changes.

    Attributes
    ----------
    scheme, lr, loss
        The plan's scheme, its best rate, and its mean loss there.
    standard
        The standard scheme as a change of the plan.
    changes
        The single changes.
    title
        Title of the table.
    """

    scheme: str
    lr: float
    loss: float
    standard: Change
    changes: tuple[Change, ...]
    title: str = ""

    @property
    def reasons(self) -> tuple[Change, ...]:
        """The changes that lower the loss beyond their intervals, the most helpful first."""
        return tuple(sorted((c for c in self.changes if c.helps), key=lambda c: -c.gain))

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        gap = self.standard.gain
        if not self.standard.helps:
            return f"{self.scheme} does not lose to the standard scheme beyond the interval"
        if not self.reasons:
            return f"{self.scheme} loses by {gap:.3g}, and no change that was tried makes up for it"
        words = ", ".join(f"{c.name} ({c.gain / gap:.0%} of the gap)" for c in self.reasons)
        return f"{self.scheme} loses by {gap:.3g}; what makes up for it: {words}"

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.verdict}>"

    def __str__(self) -> str:
        cells = [["change", "best lr", "loss", "gain", "", "source"]]
        cells.append([f"none ({self.scheme})", f"{self.lr:.3g}", f"{self.loss:.4g}", "", "", ""])
        for row in (self.standard, *self.changes):
            numbers = [f"{row.lr:.3g}", f"{row.loss:.4g}", f"{row.gain:+.3g} ± {row.margin:.2g}"]
            if row.loss == inf:
                numbers = ["", "diverges", ""]
            cells.append([row.name, *numbers, "helps" if row.helps else "", row.source])
        return "\n".join([f"{self.title}: {self.verdict}", *aligned(cells)])

    _repr_html_ = in_notebooks


def best_rate(losses: Mapping[float, np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the rate with the lowest mean loss, and the losses there, by seed."""
    lr = min(losses, key=lambda rate: float(losses[rate].mean()))
    return lr, losses[lr]


def change(
    name: str, source: str, own: Mapping[float, np.ndarray], plan: np.ndarray, count: int
) -> Change:
    """Return a change's effect on losses by seed, infinite where training diverged."""
    lr, losses = best_rate(own)
    if not np.isfinite(losses).all():
        return Change(name, source, inf, inf, -inf, 0.0)
    if not np.isfinite(plan).all():
        return Change(name, source, lr, float(losses.mean()), inf, 0.0)
    gains = plan - losses
    t = float(stdtrit(len(gains) - 1, 1 - ALLOWED / (2 * count)))
    margin = t * float(gains.std(ddof=1)) / sqrt(len(gains))
    return Change(name, source, lr, float(losses.mean()), float(gains.mean()), margin)
