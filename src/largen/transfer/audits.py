"""What audits of models found, as rows and tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from largen import files
from largen.errors import one_of

COLUMNS = ("model", "library", "verdict", "width", "depth", "inside", "notes")


@dataclass(frozen=True)
class Slope:
    """log₂ per doubling of how much outputs change in training, with its 95 % interval.

    Attributes
    ----------
    value, margin
        The slope and half of the interval.
    worst
        The layer inside the model whose slope is surely furthest from 0, in words; empty if all
        are within the tolerance.
    """

    value: float
    margin: float
    worst: str = ""

    def __str__(self) -> str:
        return f"{self.value:+.2f} ± {self.margin:.2f}"

    def verdict(self, tolerance: float) -> str:
        """Return ``"flat"``, ``"not flat"`` or ``"undecided"``."""
        if abs(self.value) - self.margin > tolerance:
            return "not flat"
        return "flat" if abs(self.value) + self.margin <= tolerance else "undecided"


@dataclass(frozen=True)
class Audited:
    """One model.

    Attributes
    ----------
    model, library
        Which it is, and where it is from.
    refusal
        Why there is no plan, in the words of the error; empty if there is one.
    failure
        Why it could not be built; empty if it could.
    notes
        Of the plan.
    width, depth
        Slopes of the outputs; None if they were not measured.
    tolerance
        The largest slope that is flat.
    """

    model: str
    library: str = ""
    refusal: str = ""
    failure: str = ""
    notes: tuple[str, ...] = ()
    width: Slope | None = None
    depth: Slope | None = None
    tolerance: float = 0.3

    @property
    def verdict(self) -> str:
        """``"flat"``, ``"not flat"``, ``"undecided"``, ``"refused"`` or ``"not built"``."""
        if self.failure:
            return "not built"
        if self.refusal:
            return "refused"
        found = {s.verdict(self.tolerance) for s in (self.width, self.depth) if s is not None}
        for word in ("not flat", "undecided", "flat"):
            if word in found:
                return word
        return "not built"

    def cells(self) -> list[str]:
        """Return the row's entries, one for each of :data:`COLUMNS`."""
        slopes = [self.width, self.depth]
        inside = [
            f"{along}: {s.worst}"
            for along, s in zip(("width", "depth"), slopes, strict=True)
            if s is not None and s.worst
        ]
        said = self.failure or self.refusal or "; ".join(self.notes)
        numbers = ["" if s is None else str(s) for s in slopes]
        return [self.model, self.library, self.verdict, *numbers, "; ".join(inside), said]


@dataclass(frozen=True, repr=False)
class Audit:
    """A table of audited models.

    Attributes
    ----------
    rows
        One for each model.
    title
        What was done.
    """

    rows: tuple[Audited, ...] = field(default=())
    title: str = ""

    def __iter__(self) -> Iterator[Audited]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"<Audit: {len(self.rows)} models, {self.summary()}>"

    def __str__(self) -> str:
        return self.to_markdown()

    def count(self, verdict: str) -> int:
        """Return how many models have a verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def summary(self) -> str:
        """Return the verdicts and their numbers, of the models that could be built."""
        built = [row for row in self.rows if row.verdict != "not built"]
        words = ("flat", "undecided", "not flat", "refused")
        parts = [f"{self.count(word)} {word}" for word in words if self.count(word)]
        return f"{', '.join(parts) or 'none'} of {len(built)} that can be built"

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"{self.title}: {self.summary()}.".lstrip(": "), ""]
        lines += [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
        lines += [f"| {' | '.join(map(_cell, row.cells()))} |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Return the table as comma-separated values."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(row.cells() for row in self.rows)
        return text.getvalue()

    def save(self, path: str | Path) -> None:
        """Write the table to a file, as its name ends: ``.md`` or ``.csv``.

        Raises
        ------
        InvalidInput
            If it ends otherwise.
        """
        target = Path(path)
        kind = one_of("path", target.suffix, (".md", ".csv"))
        files.save_text(target, self.to_markdown() if kind == ".md" else self.to_csv())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
