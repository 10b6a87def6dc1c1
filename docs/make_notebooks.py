"""Writes notebooks for Jupyter from pages of the documentation: ``python docs/make_notebooks.py``.

A page's code cells become the notebook's, and its text the cells between them. The notebooks are
kept without outputs; the tests run the code of the pages, and compare the two.
"""

from __future__ import annotations

import json
import re
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


def text_of(page: str) -> str:
    """Return the notebook of a page as the text of its file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOKS.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (NOTEBOOKS / f"{name}.ipynb").write_text(text_of(page))
