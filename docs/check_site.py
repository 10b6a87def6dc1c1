"""Checks the built site: links, anchors, pictures, nothing fetched from elsewhere, the search.

    python docs/check_site.py docs/_build/html

Every link inside the site must lead to a page and an anchor that exist, and nothing that a page
loads may come from another host. No figure may be shown as text, "<Figure size 640x480 …>", and of
pages that were executed, every cell with a call of ``.plot`` must have a picture. Where Chromium is
on the machine, pages are rendered without a screen: equations must be typeset, and the search must
find a page by what a user would ask for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

SEARCHES = {
    "NTK of my own model": "guide/any_function",
    "neural-tangents": "coming_from/neural_tangents",
    "uncertainty scikit-learn": "how_to/scikit_learn",
}
EQUATIONS = "guide/mean_field.html"
LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
CELL = '<div class="cell '  # with which a cell begins that was read for execution
AS_TEXT = re.compile(r"\w+ size \d+x\d+ with \d+ Axes")
NOT_LOADED = {"canonical", "search", "next", "prev", "index", "author", "license"}


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in NOT_LOADED:
            self.loaded.append(given[LOADED[tag]])

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.text += data


@cache
def page(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path)


def faults_of_pictures(path: Path) -> list[str]:
    """Return figures of a page that are text, and calls of ``.plot`` that drew nothing."""
    found = [f"shows a figure as text: {text}" for text in AS_TEXT.findall(page(path).text)]
    html = path.read_text()
    if "cell_output" not in html:  # the code was not executed
        return found
    for cell in html.split(CELL)[1:]:
        code = re.sub(r"<[^>]+>", "", cell.partition("cell_output")[0])
        if ".plot(" in code and "<img " not in cell:
            found.append("draws nothing where the code calls .plot")
    return found


def faults_of(path: Path) -> list[str]:
    """Return broken links and pictures of a page, and what it loads from elsewhere."""
    found = faults_of_pictures(path)
    for target in page(path).loaded:
        parts = urlsplit(target)
        if parts.scheme in ("http", "https") or parts.netloc:
            found.append(f"loads {target}")
        elif not parts.scheme and not (path.parent / unquote(parts.path)).exists():
            found.append(f"lacks {target}")
    for target in page(path).links:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
            continue
        leads = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        anchor = unquote(parts.fragment)
        if not leads.exists():
            found.append(f"links to {target}, which is missing")
        elif leads.suffix == ".html" and anchor and anchor not in page(leads).anchors:
            found.append(f"links to {target}, which has no such anchor")
    return found


def rendered(browser: str, path: Path, query: str = "") -> str:
    """Return a page as the browser has it after its scripts have run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={folder}", "--allow-file-access-from-files"]
        command += ["--virtual-time-budget=20000", "--dump-dom", path.as_uri() + query]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout


def faults_in_browser(browser: str, site: Path) -> list[str]:
    """Return equations that are not typeset, and searches that do not find their page."""
    found = []
    if "<mjx-container" not in rendered(browser, site / EQUATIONS):
        found.append(f"{EQUATIONS}: equations are not typeset")
    for words, wanted in SEARCHES.items():
        text = rendered(browser, site / "search.html", f"?q={quote(words)}")
        results = re.findall(
            r'<li[^>]*><a href="([^"]+)"', text.partition('id="search-results"')[2]
        )
        if not any(wanted in result for result in results[:5]):
            found.append(f"the search for {words!r} finds {results[:5]}, not {wanted}")
    return found


def main() -> None:
    """Check the site in a folder; the exit status is 1 if something is wrong."""
    site = Path(sys.argv[1]).resolve()
    pages = sorted(p for p in site.rglob("*.html") if "_static" not in p.relative_to(site).parts)
    found = [f"{p.relative_to(site)}: {fault}" for p in pages for fault in faults_of(p)]
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        found += faults_in_browser(browser, site)
    links = sum(len(page(p).links) for p in pages)
    in_browser = "and in a browser" if browser else "without a browser"
    print("\n".join(found) or f"{len(pages)} pages and {links} links are right, {in_browser}.")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
