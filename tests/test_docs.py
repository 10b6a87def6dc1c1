"""Code of the documentation's pages runs, each page from its top in a namespace of its own."""

import json
import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if "_build" not in p.parts and CELL.search(p.read_text())
)


def test_there_are_pages():
    assert len(PAGES) > 10


def test_notebooks_are_those_of_the_pages():
    """``python docs/make_notebooks.py`` writes them again."""
    make = runpy.run_path(str(DOCS / "make_notebooks.py"))
    for name, page in make["PAGES"].items():
        path = DOCS.with_name("notebooks") / f"{name}.ipynb"
        assert path.read_text() == make["text_of"](page)
        cells = json.loads(path.read_text())["cells"]
        code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        assert code == [c.strip("\n") for c in CELL.findall((DOCS / page).read_text())]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for cell in CELL.findall(page.read_text()):
        exec(compile(cell, str(page), "exec"), namespace)
