"""Writes ``by_seed/``: the papers that largen began with, from front to back.

For each of them a table in ``by_seed/KEY.tsv`` says of every numbered equation and statement which
call computes it and which file of tests holds it, of which result it is a step, or why it is not
built. ``tests/test_by_seed.py`` fails if an equation has no row, if a call is no public name, or if
a test does not use the call.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from make_equations import short

TABLES = Path(__file__).with_name("by_seed")

# The last equation of each paper, or of each of its sections where numbers begin again.
LAST: dict[str, dict[str, int]] = {
    "pehlevan2023lecture": {"": 105},
    "bordelon2023depthwise": {"": 157},
    "hanin2026primer": {
        "1.1": 2,
        "1.2": 3,
        "1.3": 10,
        "2.1": 2,
        "2.2": 11,
        "2.3": 5,
        "3.2": 13,
        "4.0": 2,
        "4.1": 2,
        "4.2": 5,
    },
    "bahri2022les": {"": 124},
    "golikov2020towards": {"": 42},
}
HEAD = """# {title}

{counts}
A *step* is a line of a derivation whose result is computed. Notes say where a formula is printed
otherwise than it is right, and what is computed instead.

| number | what it says | call | tests | note |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """An equation, or a range of them, or a statement of a paper."""

    number: str
    says: str
    how: str  # calls, "step of …", or "not built: …"
    test: str  # path of a file of tests, for calls
    note: str

    @property
    def calls(self) -> tuple[str, ...]:
        """The public names that compute it."""
        if self.how.startswith(("step of", "not built:")):
            return ()
        return tuple(name.replace("lg.", "largen.", 1) for name in self.how.split(", "))

    @property
    def equations(self) -> tuple[str, ...]:
        """The numbers of the equations in a range, as in ("2.3.4", "2.3.5"); none for a theorem."""
        ends = re.findall(r"\(([\d.]+)\)", self.number)
        if not ends or not self.number.startswith("("):
            return ()
        section, _, first = ends[0].rpartition(".")
        last = ends[-1].rpartition(".")[2]
        return tuple(equation(section, n) for n in range(int(first), int(last) + 1))

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the row in the page's table."""
        links = (f"{{py:obj}}`{name.replace('largen', 'lg', 1)} <{name}>`" for name in self.calls)
        test = f"`{self.test}`" if self.test else ""
        return self.number, self.says, "<br>".join(links) or self.how, test, self.note


def equation(section: str, number: int) -> str:
    """Return an equation's number, "2.3.4" or "17" for a paper without sections in its numbers."""
    return f"{section}.{number}" if section else str(number)


def rows(key: str) -> list[Row]:
    """Return the rows of a paper's table, in the order of the paper."""
    with (TABLES / f"{key}.tsv").open(newline="") as file:
        records = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(records)  # names of the columns
        return [Row(*record) for record in records]


def all_equations(key: str) -> Iterator[str]:
    """Return the numbers of all equations of a paper."""
    for section, last in LAST[key].items():
        for number in range(1, last + 1):
            yield equation(section, number)


def counts(table: list[Row]) -> str:
    """Return how many equations are computed, are steps, and are not built."""
    computed = sum(len(row.equations) for row in table if row.calls)
    steps = sum(len(row.equations) for row in table if row.how.startswith("step of"))
    left_out = sum(len(row.equations) for row in table if row.how.startswith("not built"))
    return (
        f"Of {computed + steps + left_out} numbered equations {computed} have a call, {steps} are "
        f"steps of derivations, and {left_out} are not built."
    )


def page(key: str) -> str:
    """Return the page of a paper."""
    table = rows(key)
    lines = []
    for row in table:
        cells = (cell.replace("|", "\\|") for cell in row.cells)
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD.format(title=short(key), counts=counts(table)) + "".join(lines)


def contents() -> str:
    """Return the page that leads to all others."""
    lines = [
        "# The papers, equation by equation",
        "",
        "What largen computes of the papers that it began with, in the order of each paper: every",
        "numbered equation, and the statements beside them. The other way round, from functions to",
        "equations of all papers, is the [index of equations](../equations.md).",
        "",
    ]
    for key in LAST:
        lines.append(f"- [{short(key)}]({key}.md). {counts(rows(key))}")
    lines += ["", "```{toctree}", ":hidden:", "", *LAST, "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for paper in LAST:
        (TABLES / f"{paper}.md").write_text(page(paper))
    (TABLES / "index.md").write_text(contents())
