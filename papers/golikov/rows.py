"""Figures 6 and 7: rows of setups, with final losses, terms and exponents of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from papers.claims import Claim
from papers.golikov import checks
from papers.golikov.parts import ladder
from papers.golikov.series import by_scaling
from papers.golikov.setups import LIMITS, SOURCE, Ladder, Setup
from papers.images import Images
from papers.record import Figure, Found, Part

# Predicted exponents are multiples of ¼: two that differ by at least half of it are not the same,
# and two whose interval excludes a quarter are.
SAME = checks.QUARTER / 2


@dataclass(frozen=True)
class Row:
    """A setup, its name, and the numbers of networks.

    Attributes
    ----------
    name
        The row's name.
    setup, how
        The setup that is trained, and the numbers of networks.
    alike
        Whether the paper finds the exponents of the first row in this row, too.
    elsewhere
        Whether the claim that its losses converge belongs to another figure.
    """

    name: str
    setup: Setup
    how: Ladder
    alike: bool = False
    elsewhere: bool = False


Rows = tuple[Row, ...]


def figure(
    number: int, title: str, images: tuple[str, ...], rows: Rows, fast: Rows, notes: tuple[str, ...]
) -> Figure:
    """Return the figure with these rows."""

    def draw(rows: Rows, found: Found) -> Any:
        from papers.golikov import panels

        drawn = []
        for one in rows:
            seen = by_scaling(found, one.name, LIMITS, one.how)
            laws = {name: s.term_laws(one.setup.steps) for name, s in seen.items()}
            drawn.append(
                [
                    panels.final_losses(seen, f"final test loss: {one.name}"),
                    panels.terms(seen["mean field"]),
                    panels.exponents(laws),
                ]
            )
        return panels.row(title, *drawn)

    return Figure(
        name=f"004-{number}",
        title=title,
        source=SOURCE.format(number),
        images=images,
        settings=rows,
        fast=fast,
        parts=parts,
        claims=claims,
        draw=draw,
        notes=notes,
    )


def parts(rows: Rows, images: Mapping[str, Images]) -> list[Part]:
    """Return networks of all rows, scalings and widths."""
    return [p for row in rows for p in ladder(row.name, row.setup, images, LIMITS, row.how)]


def claims(rows: Rows, found: Found) -> list[Claim]:
    """Return claims that exponents are those of the first row, and that losses converge."""
    return [
        *(alike(rows, found, row) for row in rows if row.alike),
        *(claim for row in rows if not row.elsewhere for claim in settles(found, row)),
    ]


def alike(rows: Rows, found: Found, other: Row) -> Claim:
    """Check that a row's exponents are those of the first row, by the largest difference.

    The claim is open if the interval of that difference reaches a quarter, or if an exponent is not
    resolved and all others agree.
    """
    differences, unresolved = {}, 0
    for name in LIMITS:
        one, two = (by_scaling(found, r.name, [name], r.how)[name] for r in (rows[0], other))
        there = two.term_laws()
        for term, (law, _) in one.term_laws().items():
            its = there[term][0]
            if law.resolved and its.resolved:
                half = checks.SIGMAS * np.hypot(law.error, its.error)
                differences[f"{term}, {name}"] = abs(its.value - law.value), half
            else:
                unresolved += 1
    differences = differences or {"none is resolved": (np.nan, np.nan)}
    worst = max(differences, key=lambda which: differences[which][0] - differences[which][1])
    value, half = map(float, differences[worst])
    differ = value - half >= SAME
    same = not unresolved and value + half < checks.QUARTER
    return Claim(
        f"{other.name}: no qualitative change of exponents",
        f"|difference from {rows[0].name!r}| of the exponent that differs most clearly of "
        f"{len(differences)} ({worst})",
        value,
        max(value - half, 0.0),
        value + half,
        False if differ else True if same else None,
        bounds=(SAME, checks.QUARTER),
    )


def settles(found: Found, row: Row) -> list[Claim]:
    """Check that test losses converge with the width in every scaling."""
    seen = by_scaling(found, row.name, LIMITS, row.how)
    made = map(checks.convergence, seen.values())
    return [replace(claim, says=f"{row.name}, {claim.says}") for claim in made]
