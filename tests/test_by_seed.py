"""Tables of papers from front to back: every equation has a row, every row a call and a test."""

import re
import sys
from collections import Counter
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield
    for name in ("make_by_seed", "make_equations", "make_reference"):
        sys.modules.pop(name, None)


def all_rows():
    from make_by_seed import LAST, rows

    return [(key, row) for key in LAST for row in rows(key)]


def test_every_equation_has_one_row():
    from make_by_seed import LAST, all_equations, rows

    for key in LAST:
        listed = Counter(number for row in rows(key) for number in row.equations)
        assert listed == Counter(all_equations(key)), key


def test_calls_are_public_names():
    from make_reference import MODULES, names_of

    import largen as lg

    public = {f"largen.{name}" for name in lg.__all__}
    public |= {f"largen.{module}.{name}" for module in MODULES for name in names_of(module)}
    for key, row in all_rows():
        for call in row.calls:
            named = (
                call if call in public else call.rpartition(".")[0]
            )  # a method of a public class
            assert named in public, (key, row.number, call)
            resolve_name(call)


def test_tests_use_the_call_that_they_hold():
    for key, row in all_rows():
        if not row.calls:
            assert row.how.startswith(("step of ", "not built: ")), (key, row.number)
            continue
        text = (ROOT / row.test).read_text()
        names = [call.rpartition(".")[2] for call in row.calls]
        assert any(re.search(rf"\b{name}\b", text) for name in names), (key, row.number, row.test)


@pytest.mark.slow
def test_equations_that_docstrings_cite_are_built():
    from make_by_seed import LAST, rows
    from make_equations import all_citations

    cited = {(paper, label.strip("()")) for paper, label in all_citations()}
    for key in LAST:
        for row in rows(key):
            if row.how.startswith("not built"):
                assert not cited & {(key, number) for number in row.equations}, (key, row.number)
