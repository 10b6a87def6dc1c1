"""Figures whose rows are setups: final losses, terms and exponents of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.experiments.figures.golikov import checks
from largen.experiments.figures.golikov.figure_4 import variances
from largen.experiments.figures.golikov.parts import ladder
from largen.experiments.figures.golikov.series import predicted_terms, series
from largen.experiments.figures.golikov.setups import LIMITS, Ladder, Setup
from largen.experiments.figures.images import Images
from largen.experiments.figures.record import Claim, Found, Part

# Predicted exponents are multiples of a quarter: what is this close is the same one.
SAME = 0.125


@dataclass(frozen=True)
class Row:
    """A setup, what it is called, and how many networks."""

    name: str
    setup: Setup
    how: Ladder


Rows = tuple[Row, ...]


def parts(rows: Rows, images: Mapping[str, Images]) -> list[Part]:
    """Return networks of all rows, scalings and widths."""
    return [p for row in rows for p in ladder(row.name, row.setup, images, LIMITS, row.how)]


def alike(rows: Rows, found: Found, other: Row) -> Claim:
    """Check that exponents of a row are those of the first row, in the median over all."""
    gaps, errors = [], []
    for name in LIMITS:
        one, two = (series(found, row.name, name, row.how) for row in (rows[0], other))
        for term in one.terms:
            laws = one.term_exponent(term), two.term_exponent(term)
            gaps.append(abs(laws[1].value - laws[0].value))
            errors.append(np.hypot(laws[0].error, laws[1].error))
    value, half = float(np.median(gaps)), 2 * float(np.median(errors))
    return Claim(
        f"{other.name}: no qualitative change of exponents",
        f"median over 12 exponents of |difference from those of {rows[0].name!r}| (largest: "
        f"{max(gaps):.2f})",
        value,
        max(value - half, 0.0),
        value + half,
        value < SAME,
    )


def settles(found: Found, row: Row) -> list[Claim]:
    """Check that test losses converge with the width in every scaling."""
    made = []
    for name in LIMITS:
        claim = checks.convergence(series(found, row.name, name, row.how))
        says = f"{row.name}, {claim.says}"
        made.append(Claim(says, claim.measured, claim.value, claim.low, claim.high, claim.agrees))
    return made


def draw_rows(title: str, rows: Rows, found: Found) -> Any:
    """Draw final losses, terms in the mean-field scaling, and exponents of each row."""
    from largen.plots.widths import exponents_panel, loss_panel, row, sizes_panel

    panels = []
    for one in rows:
        seen = {name: series(found, one.name, name, one.how) for name in LIMITS}
        losses = {n: [*zip(s.widths, s.loss, strict=True)] for n, s in seen.items()}
        terms = variances(seen["mean field"])
        laws = {
            name: {
                f"f_{t}": (s.term_exponent(t), predicted_terms(name, one.setup.steps)[t])
                for t in s.terms
            }
            for name, s in seen.items()
        }
        panels.append(
            [
                lambda ax, a=losses, t=one.name: loss_panel(ax, a, title=f"final test loss: {t}"),
                lambda ax, a=terms: sizes_panel(
                    ax, a, "terms in the mean-field scaling", "variance over test images"
                ),
                lambda ax, a=laws: exponents_panel(ax, a),
            ]
        )
    return row(title, *panels)
