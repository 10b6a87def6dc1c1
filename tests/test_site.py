"""The scripts that write and check pages of the documentation."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import largen as lg

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in ("make_equations", "make_gallery", "make_reference", "check_site"):
        sys.modules.pop(name, None)


def test_equations_are_read_from_docstrings():
    from make_equations import citations

    text = """Return K.

    Bahri and Hanin, Les Houches lectures, eqs. (32)-(33), where φ'(0) = 1 and h(1) = 0, and
    Golikov, Theorem 1. Of shape ``(3)``.

    >>> f(2)
    (2)
    """
    bahri = ("bahri2022les", "(32)–(33)")
    assert citations(text) == {bahri, ("golikov2020towards", "Theorem 1")}
    # A docstring without a paper speaks of that of its module, if there is but one.
    assert citations("By (9) and (10).", "Golikov's paper.") == {
        ("golikov2020towards", "(9)"),
        ("golikov2020towards", "(10)"),
    }
    assert citations("By (9).", text) == set()


@pytest.mark.slow
def test_index_of_equations():
    from make_equations import Place, all_citations, cited_by_tests, tests_of

    found = all_citations()
    assert Place("largen.kernels.nngp_ntk", "kernel") in found["bahri2022les", "(83)"]
    assert found["golikov2020towards", "(21)"]
    assert cited_by_tests()["hanin2026primer", "(1.3.10)"]
    # Every function that cites an equation is used by a test, itself or its module.
    assert [place for places in found.values() for place in places if not tests_of(place)] == []


def test_all_results_have_pages():
    from make_reference import MODULES, names_of, results
    from tests.test_result_protocol import RESULTS

    public = {*lg.__all__, *(name for module in MODULES for name in names_of(module))}
    returned = {name.rpartition(".")[2] for name in results()}
    assert set(RESULTS) <= public | returned
    assert not returned & {"Signal", "Program", "Reduced"}  # what layers and theories work with


def test_gallery_counts_verdicts():
    from make_gallery import counted, section

    claims = [
        {"claim": f"x = |y|, {words}", "measured": "x", "value": value, "agrees": agrees}
        | {"interval": [value, value]}
        for words, value, agrees in (("derived", 1.0, True), ("as printed", 2.0, False))
    ] + [{"claim": "z", "measured": "z", "value": None, "interval": [None, 1], "agrees": None}]
    claims.append({**claims[1], "claim": "not claimed", "whose": "alternative"})
    summary = {"source": "A paper, Figure 1", "claims": claims, "notes": ["a note"], "images": {}}
    summary |= {"seconds": 3.2, "date": "2026-01-01", "fast": True, "settings": "Settings()"}
    table = counted({"004-1": summary})
    assert table.splitlines()[-1] == "| all | 1 | 3 | 1 | 1 | 1 | 1 | 1 | 1 |"
    lines = section("004-1", summary, {"004-1": summary})
    assert r"| **disagrees** | x = \|y\|, as printed | x | 2 | no error |" in lines
    assert "| unclear | z | z | – | – … 1 |" in lines
    assert "| alternative refuted | not claimed | x | 2 | no error |" in lines


def test_open_claims_have_their_price_in_time():
    """So many times as many networks, in the time of the figure and of the one that has them."""
    from make_gallery import duration, section

    claim = {"claim": "z", "measured": "z", "value": 0.9, "interval": [0.7, 1.1], "agrees": None}
    claim |= {"effort": 4.0, "bounds": [1.0]}
    summary = {"source": "A paper, Figure 1", "claims": [], "notes": [], "images": {}}
    summary |= {"seconds": 1500.0, "date": "2026-01-01", "fast": True, "settings": "Settings()"}
    other = summary | {"seconds": 1.0, "claims": [claim], "shares": "004-1"}
    lines = section("004-4", other, {"004-1": summary, "004-4": other})
    assert "1501 s with the networks of 004-1" in lines[2]
    assert "| unclear, ×4.0 (1.7 h) | z | z | 0.9 | 0.7 … 1.1 (bounds 1) |" in lines
    assert [duration(each) for each in (40.0, 1000.0, 3e5)] == ["40 s", "17 min", "3.5 days"]


def test_open_claims_of_the_gallery_have_their_price():
    found = [json.loads(path.read_text()) for path in (DOCS / "gallery").glob("*.json")]
    unclear = [c for each in found for c in each["claims"] if c["agrees"] is None]
    assert all(claim["effort"] for claim in unclear)


def test_kept_summaries_name_no_folders():
    for path in (DOCS / "gallery").glob("*.json"):
        for images in json.loads(path.read_text())["images"].values():
            assert "/" not in images["file"]


def test_faults_of_a_site_are_found(tmp_path):
    from check_site import faults_of

    (tmp_path / "good.html").write_text('<h1 id="top">x</h1><a href="#top">up</a>')
    (tmp_path / "bad.html").write_text(
        '<a href="good.html#top">1</a><a href="good.html#bottom">2</a><a href="gone.html">3</a>'
        '<img src="lost.png"><script src="https://example.org/x.js"></script>'
    )
    assert faults_of(tmp_path / "good.html") == []
    assert sorted(faults_of(tmp_path / "bad.html")) == [
        "lacks lost.png",
        "links to gone.html, which is missing",
        "links to good.html#bottom, which has no such anchor",
        "loads https://example.org/x.js",
    ]


def test_figures_that_are_no_pictures_are_found(tmp_path):
    from check_site import faults_of

    code = '<div class="cell docutils"><div class="cell_input">limit<span>.</span>plot()</div>'
    other = code.replace("plot()", "save()")
    outputs = {
        "picture": '<div class="cell_output"><img src="picture.png"></div></div>',
        "text": '<div class="cell_output">&lt;Figure size 640x480 with 1 Axes&gt;</div></div>',
        "nothing": f'</div>{other}<div class="cell_output">1</div></div>',
        "not_run": "</div>",
    }
    for name, output in outputs.items():
        (tmp_path / f"{name}.html").write_text(code + output)
    (tmp_path / "picture.png").touch()
    nothing = "draws nothing where the code calls .plot"
    assert {name: faults_of(tmp_path / f"{name}.html") for name in outputs} == {
        "picture": [],
        "text": ["shows a figure as text: Figure size 640x480 with 1 Axes", nothing],
        "nothing": [nothing],
        "not_run": [],
    }


def test_what_does_not_fit_into_a_page_is_said(monkeypatch, tmp_path):
    import check_site

    answer = '<pre id="found">guide/a.html: at a width of 390, the page is 900 wide\nend</pre>'
    monkeypatch.setattr(check_site, "rendered", lambda browser, path, patience: answer)
    pages = [tmp_path / "guide" / "a.html"]
    (fault,) = check_site.faults_of_widths("chromium", pages, tmp_path)
    assert fault.startswith("guide/a.html: at a width of 390")
    answer = answer.replace("\nend", "")
    assert check_site.faults_of_widths("chromium", pages, tmp_path) == [
        "1 pages: not all are rendered"
    ]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no browser")
def test_pages_that_are_too_wide_are_found(tmp_path):
    import check_site

    page = tmp_path / "a.html"
    page.write_text("<body><article><p style='width: 900px'>wide</p></article></body>")
    found = check_site.faults_of_widths("chromium", [page], tmp_path)
    assert [fault.split(":")[1] for fault in found if "P ends" in fault] == [
        " at a width of 390, P ends at 908",
        " at a width of 820, P ends at 908",
    ]
