"""Code of the documentation's pages runs, each page from its top in a namespace of its own."""

import io
import json
import re
import runpy
from base64 import b64decode, b64encode
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = DOCS.with_name("notebooks")
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    p for p in DOCS.rglob("*.md") if "_build" not in p.parts and CELL.search(p.read_text())
)


def test_there_are_pages():
    assert len(PAGES) > 10


@pytest.fixture(scope="module")
def make():
    return runpy.run_path(str(DOCS / "make_notebooks.py"))


@pytest.fixture(params=["ten_minutes", "which_limit", "feature_learning", "infinite_depth"])
def shipped(request):
    return json.loads((NOTEBOOKS / f"{request.param}.ipynb").read_text())


def test_notebooks_are_those_of_the_pages(make):
    """``python docs/make_notebooks.py`` writes them again, and executes those with new code."""
    for name, page in make["PAGES"].items():
        kept = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
        contents = make["notebook"](page)
        assert make["is_executed"](kept, contents)
        code = ["".join(cell["source"]) for cell in make["code_cells"](kept)]
        assert code == [c.strip("\n") for c in CELL.findall((DOCS / page).read_text())]
        for cell in make["code_cells"](kept):
            cell.update(outputs=[], execution_count=None)
        assert kept == contents


def test_notebooks_have_their_pictures(make, shipped):
    """… and no figure as text, no table with names drawn at random, no text of progress."""
    cells = make["code_cells"](shipped)
    data = [[o.get("data", {}) for o in cell["outputs"]] for cell in cells]
    drawing = [
        d for cell, d in zip(cells, data, strict=True) if ".plot(" in "".join(cell["source"])
    ]
    assert drawing
    for shown in drawing:
        assert sum("image/png" in formats for formats in shown) == 1
    for cell, shown in zip(cells, data, strict=True):
        assert {kind for formats in shown for kind in formats} <= {"image/png", "text/plain"}
        assert {o.get("name", "stdout") for o in cell["outputs"]} <= {"stdout"}
        for formats in shown:
            assert len(formats.get("image/png", "")) < 100_000
            assert "Figure size" not in "".join(formats.get("text/plain", []))


def test_outputs_of_notebooks_are_made_small(make):
    file = io.BytesIO()
    figure = Figure(figsize=(3, 2))
    figure.subplots().imshow(np.linspace(0, 1, 900).reshape(30, 30))
    figure.savefig(file, format="png")
    png = b64encode(file.getvalue()).decode()
    output = {"output_type": "display_data", "data": {"image/png": png, "text/plain": "<Figure …"}}
    (kept,) = make["kept"](output)["data"].values()
    assert len(kept) < 0.6 * len(png)
    before, after = (
        np.asarray(Image.open(io.BytesIO(b64decode(each))).convert("RGB"), int)
        for each in (png, kept)
    )
    # Of 255: colours stay what they are but for the rims of letters; with 64 of them it is 10.
    assert np.quantile(np.abs(before - after), 0.99) < 5
    assert kept == make["small"](png)
    assert make["kept"]({"output_type": "stream", "name": "stderr", "text": "0 %"}) is None
    text = {"output_type": "execute_result", "data": {"text/html": "<div>", "text/plain": "1\n2"}}
    assert make["kept"](text)["data"] == {"text/plain": ["1\n", "2"]}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for cell in CELL.findall(page.read_text()):
        exec(compile(cell, str(page), "exec"), namespace)
