"""The record in the tree of the commits at which tests were last seen to pass."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from tools.selection.tree import ROOT, git

FILE = ".ci/last_passed.json"


@dataclass(frozen=True)
class Passed:
    """A commit at which tests passed, and how many of them ran."""

    commit: str
    date: str
    tests: int

    def __str__(self) -> str:
        return f"{self.commit[:8]} ({self.date}, {self.tests} tests)"


@dataclass(frozen=True)
class Record:
    """When tests were last seen to pass.

    Attributes
    ----------
    whole
        The commit at which all of them ran.
    changed
        The last one at which those ran that can reach what has changed since an earlier commit of
        this record; it is ``whole`` if there is none.
    """

    whole: Passed | None = None
    changed: Passed | None = None

    @property
    def base(self) -> str:
        """The commit since which changes count; an empty text if there is none."""
        return self.changed.commit if self.changed else ""

    def __str__(self) -> str:
        if self.whole is None:
            return "No commit has been seen on which all tests pass."
        text = f"All tests last passed on {self.whole}"
        if self.changed != self.whole:
            text += f", and those that later changes can reach on {self.changed}"
        return f"{text}."


def read(root: Path = ROOT) -> Record:
    """Return the record of a tree, which may be empty."""
    file = root / FILE
    entries = json.loads(file.read_text()) if file.exists() else {}
    return Record(**{name: Passed(**entry) for name, entry in entries.items() if entry})


def write(tests: int, *, whole: bool, root: Path = ROOT) -> str:
    """Write down that tests pass on the tree's commit, and return a sentence about it."""
    if git(root, "status", "--porcelain", "--", ".", f":!{FILE}").strip():
        return f"{FILE} is left as it is: there are changes that are not committed."
    passed = Passed(git(root, "rev-parse", "HEAD").strip(), date.today().isoformat(), tests)
    before = read(root)
    if not whole and before.whole is None:
        return f"{FILE} is left as it is: all tests have to pass once, by `make test-all`."
    record = Record(passed if whole else before.whole, passed)
    (root / FILE).write_text(json.dumps(asdict(record), indent=1) + "\n")
    return f"{FILE}: {record} Commit it."
