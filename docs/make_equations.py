"""Writes ``equations.md``: which function computes which equation of which paper, and back.

Nothing is listed by hand. The page is read from the docstrings of the package, which cite the
equations that they implement ("Bahri and Hanin, Les Houches lectures, eqs. (32)-(33)"), and from
the docstrings and names of the tests.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

from largen._rooms import addresses
from largen.bibliography import references

ADDRESSES = addresses()
ROOT = Path(__file__).parents[1]
SOURCES, TESTS = ROOT / "src" / "largen", ROOT / "tests"

# The number of an equation stands alone in round brackets: not that of φ'(0) or of E_s(1).
BRACKET = r"\((?:[1-9]\d{0,2}[a-z]?|[A-Z]\.?\d{1,2}|\d\.\d{1,2}\.\d{1,2})\)"
EQUATION = rf"(?<![^\s(]){BRACKET}(?:\s?[-–]\s?{BRACKET})?"
STATEMENT = r"(?:Table|Result|Theorem|Lemma|Remark|Figure)\s+[A-Z]?\d+(?:\.\d+)*"
SECTION = r"§+\s?\d+(?:\.\d+)*|App\.\s+[A-Z](?:\.\d+)*|section\s+\d+(?:\.\d+)*|chapter\s+\d+"
CITED = re.compile(f"{EQUATION}|{STATEMENT}|{SECTION}")
# Code and examples of docstrings hold numbers in brackets that are no equations.
CODE = re.compile(r"``[^`]*``|^[ ]*(?:>>>|\.\.\.)[^\n]*$", re.MULTILINE)
# The words with which docstrings cite a paper, by its key in references.bib.
CITED_AS = {
    "williams1997computing": r"Williams 1997",
    "cho2009kernel": r"Cho (?:&|and) Saul",
    "poole2016exponential": r"Poole et al\.",
    "pennington2017resurrecting": r"Pennington, Schoenholz",
    "schoenholz2017deep": r"Schoenholz et al\.",
    "chizat2019lazy": r"Chizat, Oyallon",
    "golikov2020towards": r"Golikov",
    "hron2020infinite": r"Hron, Bahri",
    "lewkowycz2020large": r"Lewkowycz",
    "yang2021tensor": r"Yang and Hu",
    "zavatone2021exact": r"Zavatone-Veth",
    "bahri2022les": r"Bahri and Hanin",
    "bordelon2022self": r"Bordelon and Pehlevan, \*?Self-consistent",
    "li2022neural": r"Li, Nica and Roy",
    "roberts2022principles": r"Roberts, Yaida",
    "yang2022tensor": r"Yang et al\. 2022",
    "bordelon2023depthwise": r"Bordelon et al\.|Bordelon, Noci",
    "bordelon2023dynamics": r"Bordelon and Pehlevan, \*?Dynamics of finite",
    "pehlevan2023lecture": r"Pehlevan and Bordelon",
    "yang2023spectral": r"Yang, Simon",
    "bordelon2024transformer": r"Bordelon, Chaudhry and Pehlevan",
    "dey2025dont": r"Dey et al\.",
    "hanin2026primer": r"Hanin's (?:primer|lectures)|Hanin, lectures|Hanin, \*?Neural",
}
REACH = 260  # characters after a paper's name within which numbers are taken for its own
MOST_TESTS = 2  # files of tests that are listed for a function


@dataclass(frozen=True, order=True)
class Place:
    """A module, class, method or function whose docstring cites a paper."""

    module: str
    name: str

    @property
    def public(self) -> str | None:
        """The public address of the object itself, or of the class of a method."""
        owner = self.name.partition(".")[0]
        where = ADDRESSES.get(owner)
        found = resolve_name(where) if where else None
        return where if getattr(found, "__module__", None) == self.module else None

    @property
    def shown(self) -> str:
        """A link to the reference, or the name within the package."""
        if self.public:
            address = self.public.removesuffix(self.name.partition(".")[0]) + self.name
            return f"{{py:obj}}`{address.replace('largen', 'lg', 1)} <{self.public}>`"
        return f"`{'.'.join(filter(None, (self.module.removeprefix('largen.'), self.name)))}`"


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Return names and docstrings of a file's module, classes, methods and functions."""

    def below(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                yield prefix + child.name, ast.get_docstring(child) or ""
                if isinstance(child, ast.ClassDef):
                    yield from below(child, f"{prefix}{child.name}.")

    tree = ast.parse(path.read_text())
    yield "", ast.get_docstring(tree) or ""
    yield from below(tree, "")


def papers_named(text: str) -> list[tuple[int, int, str]]:
    """Return where each paper is named in a text, in order: start, end, key."""
    return sorted(
        (match.start(), match.end(), key)
        for key, words in CITED_AS.items()
        for match in re.finditer(words, text)
    )


def citations(text: str, of_module: str = "") -> set[tuple[str, str]]:
    """Return the pairs of paper and number that a docstring cites.

    A paragraph that names no paper speaks of the only one that the docstring names, or else of the
    only one that the docstring of its module names.
    """
    whole = [key for _, _, key in papers_named(" ".join(text.split()))]
    outside = [key for _, _, key in papers_named(" ".join(of_module.split()))]
    found = set()
    for paragraph in re.split(r"\n\s*\n", CODE.sub(" ", text)):
        words = " ".join(paragraph.split())
        named = papers_named(words)
        ends = [*(start for start, _, _ in named[1:]), len(words)]
        pieces = [
            (key, words[end : min(limit, end + REACH)])
            for (_, end, key), limit in zip(named, ends[: len(named)], strict=True)
        ]
        only = set(whole) or set(outside)
        if not named and len(only) == 1:
            found |= {(*only, number(match)) for match in re.finditer(EQUATION, words)}
        found |= {(key, number(m)) for key, piece in pieces for m in CITED.finditer(piece)}
    return found


def number(match: re.Match[str]) -> str:
    """Return a number in one spelling: ranges have a dash without spaces."""
    return re.sub(r"\)\s?[-–]\s?\(", ")–(", " ".join(match.group().split()))


@cache
def tests() -> dict[str, str]:
    """Return the text of each file of tests, by its path."""
    return {str(p.relative_to(ROOT)): p.read_text() for p in sorted(TESTS.rglob("test_*.py"))}


@cache
def cited_by_tests() -> dict[tuple[str, str], set[str]]:
    """Return the files of tests whose docstrings cite an equation."""
    found = defaultdict(set)
    for path in tests():
        parts = dict(docstrings(ROOT / path))
        for text in parts.values():
            for citation in citations(text, parts[""]):
                found[citation].add(path)
    return found


@cache
def tests_of(place: Place) -> tuple[str, ...]:
    """Return the files of tests that use a function, or import from a module, most uses first."""
    name = place.name.rpartition(".")[2]
    words = rf"\b{re.escape(name)}\b" if name else rf"\b{re.escape(place.module)}\b"
    counts = {path: len(re.findall(words, text)) for path, text in tests().items()}
    used = sorted((p for p, n in counts.items() if n), key=lambda p: (-counts[p], p))
    if not used and name:
        return tests_of(Place(place.module, ""))
    if not used and place.module.count(".") > 1:
        return tests_of(Place(place.module.rpartition(".")[0], ""))
    return tuple(used[:MOST_TESTS])


def all_citations() -> dict[tuple[str, str], list[Place]]:
    """Return the places that cite each equation."""
    found = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        parts = dict(docstrings(path))
        for name, text in parts.items():
            for citation in citations(text, parts[""]):
                found[citation].append(Place(module.removesuffix(".__init__"), name))
    return found


def in_order(label: str) -> tuple:
    """Return a key that sorts equations by number, before statements and sections."""
    numbers = [int(n) for n in re.findall(r"\d+", label)]
    kind = 0 if label.startswith("(") else 2 if re.match(r"§|App|section|chapter", label) else 1
    return kind, re.sub(r"[\d.()–§ ]", "", label) if kind else "", numbers, label


def short(key: str) -> str:
    """Return authors, year and title of a paper in one line."""
    fields = dict(re.findall(r"^  (\w+) += \{(.*)\},?$", references()[key], re.MULTILINE))
    families = [name.partition(",")[0] for name in fields["author"].split(" and ")]
    further = " et al." if len(families) > 2 else f" and {families[-1]}" * (len(families) - 1)
    title = re.sub(r"[{}\\]", "", fields["title"])
    return f"{families[0]}{further} ({fields['year']}), {title}"


def page() -> str:
    """Return the page."""
    found, by_tests = all_citations(), cited_by_tests()
    lines = [
        "# Equations and functions",
        "",
        "Which function computes which equation, read from the docstrings of the package, and the",
        "tests: in bold where their own text cites the equation, otherwise those that use the",
        f"function most. {len(found)} citations of {len({key for key, _ in found})} papers.",
        "",
        "## From an equation to its functions",
    ]
    for paper in references():
        labels = sorted((n for key, n in found if key == paper), key=in_order)
        if not labels:
            continue
        lines += ["", f"### {short(paper)}", "", "| number | function or module | tests |"]
        lines += ["|---|---|---|"]
        for label in labels:
            places = sorted(found[paper, label])
            own = sorted(by_tests.get((paper, label), ()))
            used = [f"**`{path}`**" for path in own]
            if not own:
                used = [f"`{path}`" for place in places for path in tests_of(place)]
            shown = "<br>".join(place.shown for place in places)
            lines.append(f"| {label} | {shown} | {'<br>'.join(dict.fromkeys(used))} |")
    back = defaultdict(set)
    for (key, label), places in found.items():
        for place in places:
            back[place].add((key, label))
    lines += ["", "## From a function to its equations", ""]
    lines += ["| function or module | equations |", "|---|---|"]
    for place in sorted(back, key=lambda p: (p.public is None, p.public or p.module, p.name)):
        papers = defaultdict(list)
        for key, label in sorted(back[place], key=lambda c: (c[0], in_order(c[1]))):
            papers[key].append(label)
        cells = [
            f"{short(key).partition(',')[0]}: {', '.join(labels)}" for key, labels in papers.items()
        ]
        lines.append(f"| {place.shown} | {'<br>'.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("equations.md").write_text(page())
