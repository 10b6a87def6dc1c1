"""Checks the built site: links, anchors, pictures, nothing fetched from elsewhere, the search.

    python docs/check_site.py docs/_build/html

Every link inside the site must lead to a page and an anchor that exist, and nothing that a page
loads may come from another host. No figure may be shown as text, "<Figure size 640x480 …>", and of
pages that were executed, every cell with a call of ``.plot`` must have a picture. Where Chromium is
on the machine, pages are rendered without a screen: equations must be typeset, the search must
find a page by what a user would ask for, and at the widths of a phone, a tablet and a desk nothing
may reach beyond the page, unless it scrolls there, or be too narrow to read.
"""

from __future__ import annotations

import html
import json
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
WIDTHS = (390, 820, 1440)
# Loads each page in a frame, at each width, and writes down what is wrong with its article.
FRAMES = """<!doctype html><body><pre id="found"></pre><script>
const pages = PAGES, widths = WIDTHS, found = [];
const pause = time => new Promise(done => setTimeout(done, time));
function scrolls(part, body) {
  for (; part && part !== body; part = part.parentElement) {
    const style = part.ownerDocument.defaultView.getComputedStyle(part);
    if (["auto", "scroll"].includes(style.overflowX) || style.position === "fixed") return true;
  }
  return false;
}
function faults(page, width) {
  const all = page.documentElement, article = page.querySelector("article") || page.body;
  const said = [];
  if (all.scrollWidth > all.clientWidth) said.push("the page is " + all.scrollWidth + " wide");
  for (const part of article.querySelectorAll("*")) {
    const box = part.getBoundingClientRect(), text = part.textContent.trim().slice(0, 40);
    if (box.width && box.right > width + 1 && !scrolls(part, page.body))
      said.push(part.tagName + " ends at " + Math.round(box.right) + ": " + text);
    if (part.tagName === "TD" && text.length > 30 && box.width < 90)
      said.push("a cell is " + Math.round(box.width) + " wide: " + text);
    if (part.tagName === "IMG" && box.width < 0.6 * Math.min(part.naturalWidth, width))
      said.push("a picture is " + Math.round(box.width) + " wide: " + part.src);
  }
  return said.slice(0, 3);
}
(async () => {
  for (const [name, address] of pages) {
    const frame = document.createElement("iframe");
    frame.style = "height: 900px; width: " + widths[0] + "px";
    frame.src = address;
    await new Promise(done => { frame.onload = done; document.body.append(frame); });
    await pause(300);  // equations are typeset
    for (const width of widths) {
      frame.style.width = width + "px";
      await pause(60);
      for (const fault of faults(frame.contentDocument, width))
        found.push(name + ": at a width of " + width + ", " + fault);
    }
    frame.remove();
  }
  document.getElementById("found").textContent = [...found, "end"].join("\\n");
})();
</script>"""
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


def rendered(browser: str, path: Path, query: str = "", patience: int = 20000) -> str:
    """Return a page as the browser has it after scripts have run for at most ``patience`` ms."""
    with tempfile.TemporaryDirectory() as folder:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={folder}", "--allow-file-access-from-files"]
        command += [f"--virtual-time-budget={patience}", "--window-size=1600,1000"]
        command += ["--dump-dom", path.as_uri() + query]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
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


def faults_of_widths(browser: str, pages: list[Path], site: Path) -> list[str]:
    """Return what does not fit into pages at the widths of a phone, a tablet and a desk."""
    addresses = [(str(path.relative_to(site)), path.as_uri()) for path in pages]
    text = FRAMES.replace("PAGES", json.dumps(addresses)).replace("WIDTHS", str(list(WIDTHS)))
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "frames.html"
        frames.write_text(text)
        dom = rendered(browser, frames, patience=10**4 + 10**3 * len(pages))
    lines = html.unescape(dom.partition('id="found">')[2].partition("</pre>")[0]).splitlines()
    return lines[:-1] if lines[-1:] == ["end"] else [f"{len(pages)} pages: not all are rendered"]


def main() -> None:
    """Check the site in a folder; the exit status is 1 if something is wrong."""
    site = Path(sys.argv[1]).resolve()
    pages = sorted(p for p in site.rglob("*.html") if "_static" not in p.relative_to(site).parts)
    found = [f"{p.relative_to(site)}: {fault}" for p in pages for fault in faults_of(p)]
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        found += faults_in_browser(browser, site) + faults_of_widths(browser, pages, site)
    links = sum(len(page(p).links) for p in pages)
    in_browser = "and in a browser" if browser else "without a browser"
    print("\n".join(found) or f"{len(pages)} pages and {links} links are right, {in_browser}.")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
