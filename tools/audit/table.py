"""Results of audits of models, as rows and tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from largen import files
from largen.errors import one_of

SIZES = ("width", "depth", "experts")
COLUMNS = ("model", "library", "verdict", *SIZES, "inside", "notes")


@dataclass(frozen=True)
class Slope:
    """Slope of log₂ of the outputs' change in training per doubling, with its 95 % interval.

    Attributes
    ----------
    value, margin
        The slope, and half the width of its interval.
    worst
        The layer with the largest slope among the inner layers that fail, in words; empty if none
        fails.
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
    """The audit of one model.

    Attributes
    ----------
    model, library
        The model's name, and the library that it comes from.
    refusal
        The error's message if no plan could be made; empty otherwise.
    failure
        The reason if the model could not be built; empty otherwise.
    notes
        The plan's notes.
    width, depth, experts
        Slopes of the outputs' change along the width, the depth and the number of experts; None if
        not measured.
    tolerance
        The largest |slope| that counts as flat.
    """

    model: str
    library: str = ""
    refusal: str = ""
    failure: str = ""
    notes: tuple[str, ...] = ()
    width: Slope | None = None
    depth: Slope | None = None
    experts: Slope | None = None
    tolerance: float = 0.3

    @property
    def _slopes(self) -> dict[str, Slope | None]:
        return {along: getattr(self, along) for along in SIZES}

    @property
    def verdict(self) -> str:
        """``"flat"``, ``"not flat"``, ``"undecided"``, ``"refused"`` or ``"not built"``."""
        if self.failure:
            return "not built"
        if self.refusal:
            return "refused"
        found = {s.verdict(self.tolerance) for s in self._slopes.values() if s is not None}
        for word in ("not flat", "undecided", "flat"):
            if word in found:
                return word
        return "not built"

    def cells(self) -> list[str]:
        """Return the row's entries, one for each of :data:`COLUMNS`."""
        slopes = self._slopes
        inside = [f"{along}: {s.worst}" for along, s in slopes.items() if s is not None and s.worst]
        said = self.failure or self.refusal or "; ".join(self.notes)
        numbers = ["" if s is None else str(s) for s in slopes.values()]
        return [self.model, self.library, self.verdict, *numbers, "; ".join(inside), said]


@dataclass(frozen=True, repr=False)
class Audit:
    """A table of audited models.

    Attributes
    ----------
    rows
        One row for each model.
    title
        Title of the table.
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
        """Return the number of models with the given verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    def summary(self) -> str:
        """Return the number of models with each verdict, among those that could be built."""
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
        """Write the table to a file, in the format of its suffix: ``.md`` or ``.csv``.

        Raises
        ------
        InvalidInput
            If the file name has another suffix.
        """
        text = self.to_markdown() if format_of(path) == ".md" else self.to_csv()
        files.save_text(Path(path), text)


def format_of(path: str | Path) -> str:
    """Return the suffix of a table's file.

    Raises
    ------
    InvalidInput
        If it is neither ``.md`` nor ``.csv``.
    """
    return one_of("path", Path(path).suffix, (".md", ".csv"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
