"""Writes notebooks for Jupyter from pages of the documentation: ``python docs/make_notebooks.py``.

A page's code cells become the notebook's, and its text the cells between them. A notebook is
executed where its code has changed, and keeps its outputs otherwise: text as it is printed, and
pictures in 256 colours, which makes their files small. ``python docs/make_notebooks.py --execute``
executes all of them. The tests run the code of the pages, and compare the two.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.with_name("notebooks")
PAGES = {
    "ten_minutes": "start.md",
    "which_limit": "which_limit.md",
    "feature_learning": "guide/mean_field.md",
    "infinite_depth": "guide/infinite_depth.md",
    "tables_of_data": "how_to/scikit_learn.md",
}
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
REFERENCE = re.compile(r"\{\w+\}`~?([^`<]*?)(?: <[^`]*>)?`")  # {func}`~largen.solve`
COLOURS = 256  # of a picture: as many as a byte can name
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")  # to another page of the site
FENCE = re.compile(r"^:::.*$\n?", re.MULTILINE)


def plain(text: str) -> str:
    """Return a page's text without what only the site's builder reads."""
    named = REFERENCE.sub(lambda found: f"`{found[1].replace('largen.', 'lg.')}`", text)
    return FENCE.sub("", LINK.sub(r"\1", named)).strip()


def cell(kind: str, source: str, number: int) -> dict:
    """Return a cell in the format of notebooks, version 4.5."""
    lines = source.strip("\n").splitlines(keepends=True)
    own = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines, **own}


def notebook(page: str) -> dict:
    """Return the notebook of a page of the documentation."""
    parts = CELL.split(HEADER.sub("", (DOCS / page).read_text()))
    origin = (
        f"From `docs/{page}`, by `python docs/make_notebooks.py`. It needs largen: `pip install .` "
        "in a clone."
    )
    sources = [("markdown", plain(parts[0]) + f"\n\n*{origin}*")]
    for code, text in zip(parts[1::2], parts[2::2], strict=True):
        sources += [("code", code), ("markdown", plain(text))]
    cells = [cell(kind, source, n) for n, (kind, source) in enumerate(sources) if source.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(contents: dict) -> str:
    """Return a notebook as the text of its file."""
    return json.dumps(contents, indent=1, ensure_ascii=False) + "\n"


def code_cells(contents: dict) -> list[dict]:
    """Return a notebook's cells of code."""
    return [cell for cell in contents["cells"] if cell["cell_type"] == "code"]


def is_executed(before: dict, contents: dict) -> bool:
    """Whether the first notebook has the outputs of the code of the second."""
    old, new = code_cells(before), code_cells(contents)
    same = [c["source"] for c in old] == [c["source"] for c in new]
    return same and all(c["execution_count"] for c in old)


def small(picture: str) -> str:
    """Return a picture, PNG in base64, with 256 colours and without the name of its program."""
    from PIL import Image

    image = Image.open(io.BytesIO(b64decode(picture))).convert("RGB")
    file = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(file, format="PNG", optimize=True)
    return b64encode(file.getvalue()).decode() + "\n"


def kept(output: dict) -> dict | None:
    """Return what a notebook keeps of an output: printed text, a picture, or a value's text.

    Tables in HTML have names drawn at random, and progress is not a result.
    """
    if output["output_type"] == "stream":
        lines = output["text"].splitlines(keepends=True)
        return {**output, "text": lines} if output["name"] == "stdout" else None
    if output["output_type"] == "error":
        raise RuntimeError(output["evalue"])
    data = output["data"]
    if "image/png" in data:
        return {**output, "data": {"image/png": small(data["image/png"])}}
    return {**output, "data": {"text/plain": data["text/plain"].splitlines(keepends=True)}}


def execute(contents: dict) -> None:
    """Run a notebook's code and keep the outputs."""
    import nbformat
    from nbclient import NotebookClient

    node = nbformat.reads(json.dumps(contents), as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        # Where a stream is cut depends on the moment: it is put together.
        client = NotebookClient(node, timeout=None, coalesce_streams=True, resources=resources)
        client.record_timing = False
        client.execute()
    for cell, run in zip(code_cells(contents), code_cells(node), strict=True):
        outputs = [kept(output) for output in run.outputs]
        cell["outputs"] = [output for output in outputs if output]
        cell["execution_count"] = run.execution_count


def main() -> None:
    """Write all notebooks."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        path = NOTEBOOKS / f"{name}.ipynb"
        contents = notebook(page)
        before = json.loads(path.read_text()) if path.exists() else {"cells": []}
        if is_executed(before, contents) and "--execute" not in sys.argv:
            for cell, old in zip(code_cells(contents), code_cells(before), strict=True):
                cell.update(outputs=old["outputs"], execution_count=old["execution_count"])
        else:
            print(f"{path.name} is executed")
            execute(contents)
        path.write_text(text_of(contents))


if __name__ == "__main__":
    main()
