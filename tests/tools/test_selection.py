"""What the selection of tests finds in small trees, and that the library's own is seen through."""

import json
import subprocess

import pytest

from tools.selection import record
from tools.selection.changes import changed_since
from tools.selection.graph import EXAMPLES, Graph
from tools.selection.selected import selection
from tools.selection.tree import Tree

FILES = {
    "pyproject.toml": "[project]\nname = 'largen'\n[tool.ruff]\nline-length = 100\n",
    "conftest.py": "",
    "docs/page.md": "```{code-cell} python\nlg.solve\n```",
    "src/largen/__init__.py": "from largen._rooms import attach\n",
    "src/largen/__init__.pyi": (
        "from largen.low import high_name as renamed\nfrom largen.theories import solve as solve\n"
        "from largen import rules as rules\n"
    ),
    "src/largen/_rooms.py": "",
    "src/largen/low.py": (
        '"""Low.\n\n>>> import largen as lg; lg.solve()\n"""\ndef high_name(): 1\n'
    ),
    "src/largen/data.txt": "1",
    "src/largen/theories/__init__.py": "from largen.theories.registry import solve\n",
    "src/largen/theories/registry.py": (
        "from importlib import import_module\nHOMES = 'flat', 'Flat'\n"
        "def solve(): return import_module(f'largen.theories.{HOMES[0]}')\n"
    ),
    "src/largen/theories/flat/__init__.py": "from largen.theories.flat.limit import Flat\n",
    "src/largen/theories/flat/limit.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import largen.alone\n"
        "class Flat:\n    def read(self):\n        from largen import late\n        late.f()\n"
    ),
    "src/largen/late.py": "def f(): open('data.txt')\n",
    "src/largen/alone.py": "",
    "src/largen/rules/__init__.py": (
        "from largen.rules.table import rule\nfrom largen.rules import one\n"
    ),
    "src/largen/rules/table.py": "def rule(): 1\n",
    "src/largen/rules/one.py": "from largen.rules.table import rule\n@rule.register\ndef g(): 1\n",
    "tests/test_top.py": "",
    "tests/low/test_low.py": "import largen as lg\nlg.renamed()\n",
    "tests/low/test_all.py": "import largen as lg\nvars(lg)\n",
    "tests/rules/test_rules.py": "import largen as lg\nlg.rules.rule()\n",
    "tests/rules/test_text.py": "CODE = 'import largen as lg; lg.solve()'\n",
    "tests/theories/test_solve.py": (
        "from largen.theories import solve\nfrom tests.helper import h\n"
    ),
    "tests/theories/test_page.py": "from pathlib import Path\nPath('docs') / 'page.md'\n",
    "tests/helper.py": "h = 1\n",
}
SOLVED = {"rules/test_text", "theories/test_solve", "theories/test_page"}
# A changed file, and the tests that can reach it, apart from that of everything.
REACHED = {
    "src/largen/low.py": {"low/test_low"},
    "src/largen/theories/registry.py": SOLVED,
    "src/largen/theories/flat/limit.py": SOLVED,
    "src/largen/late.py": SOLVED,
    "src/largen/data.txt": SOLVED,
    "src/largen/alone.py": set(),
    "src/largen/rules/one.py": {"rules/test_rules"},
    "tests/helper.py": {"theories/test_solve"},
    "docs/page.md": {"theories/test_page"},
    "tests/low/test_low.py": {"low/test_low"},
}


@pytest.fixture
def tree(tmp_path):
    for path, text in FILES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    commit(tmp_path, "init", "-q")
    commit(tmp_path, "add", "-A")
    commit(tmp_path, "commit", "-qm", "first")
    return Tree(tmp_path)


def commit(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def modules_among(paths):
    names = {p.removeprefix("tests/").removesuffix(".py") for p in paths if "/test_" in p}
    return {name for name in names if not name.startswith(EXAMPLES)}


def test_what_is_used_is_reached(tree):
    graph = Graph(tree)
    for changed, tests in REACHED.items():
        found = modules_among(graph.reaching([changed]))
        everything = {"low/test_all"} if changed.startswith("src/") else set()
        assert found == tests | everything, changed
    assert modules_among(graph.reaching(["conftest.py"])) == modules_among(tree.files)
    assert EXAMPLES + "src/largen/low.py" in graph.reaching(["src/largen/theories/registry.py"])


@pytest.mark.parametrize(
    ("path", "text", "changed"),
    [
        ("src/largen/low.py", '"""Other words."""\ndef high_name(): 1\n', "examples"),
        ("src/largen/low.py", "def high_name(): 2\n", "file"),
        ("src/largen/new.py", "", "file"),
        ("pyproject.toml", FILES["pyproject.toml"].replace("100", "99"), "nothing"),
        ("pyproject.toml", FILES["pyproject.toml"] + "[tool.pytest]\n", "file"),
        (
            "src/largen/__init__.pyi",
            FILES["src/largen/__init__.pyi"] + "from largen.late import f\n",
            "examples",
        ),
        ("src/largen/__init__.pyi", "from largen.theories import solve as solve\n", "file"),
    ],
)
def test_words_and_further_names_are_no_changes(tree, path, text, changed):
    (tree.root / path).write_text(text)
    wanted = {"examples": {EXAMPLES + path}, "file": {path}, "nothing": set()}[changed]
    assert changed_since(Tree(tree.root), "HEAD") == wanted


def test_pictures_are_not_read(tree):
    (tree.root / "docs/page.png").write_bytes(b"\x89PNG")
    assert changed_since(Tree(tree.root), "HEAD") == {"docs/page.png"}
    commit(tree.root, "add", "-A")
    commit(tree.root, "commit", "-qm", "a picture")
    (tree.root / "docs/page.png").write_bytes(b"\x89png")
    assert changed_since(Tree(tree.root), "HEAD") == {"docs/page.png"}


def test_a_module_that_is_gone_is_a_change_of_its_package(tree):
    (tree.root / "src/largen/rules/one.py").unlink()
    assert changed_since(Tree(tree.root), "HEAD") == {"src/largen/rules/__init__.py"}


def test_selection(tree):
    assert selection("", tree).files is None
    unknown = selection("0123abc", tree)
    assert unknown.files is None
    assert "0123abc is not in the history" in unknown.words
    (tree.root / "src/largen/low.py").write_text("def high_name(): 2\n")
    found = selection("HEAD", Tree(tree.root))
    assert "3 of 7 test modules run" in found.words  # with that at the top
    assert found.leaves_out("tests/rules/test_rules.py")
    assert not found.leaves_out("tests/test_top.py")


def test_record(tree):
    root = tree.root
    assert "No commit has been seen" in str(record.read(root))
    (root / ".ci").mkdir()
    assert "all tests have to pass once" in record.write(3, whole=False, root=root)
    record.write(6, whole=True, root=root)
    first = commit(root, "rev-parse", "HEAD")
    assert record.read(root).base == record.read(root).whole.commit == first
    commit(root, "add", "-A")
    commit(root, "commit", "-qm", "second")
    record.write(4, whole=False, root=root)
    found = record.read(root)
    assert (found.whole.commit, found.changed.tests) == (first, 4)
    assert found.base == commit(root, "rev-parse", "HEAD")
    (root / "conftest.py").write_text("1\n")
    assert "not committed" in record.write(4, whole=True, root=root)
    assert json.loads((root / record.FILE).read_text())["whole"]["tests"] == 6


@pytest.mark.slow
def test_low_rooms_of_the_library_are_seen_and_high_ones_are_not():
    graph = Graph(Tree())
    low = graph.reaching(["src/largen/expectations/closed_form.py"])
    for module in ("kernels/test_kernel", "theories/mean_field/deep/test_solution"):
        assert f"tests/{module}.py" in low
    graphs = graph.reaching(["src/largen/programs/program.py"])
    assert {"tests/networks/test_training.py", "tests/reading/test_reading.py"} < graphs
    high = graph.reaching(["src/largen/transfer/torch/walks.py"])
    assert "tests/transfer/torch/test_plan.py" in high
    assert not {"tests/kernels/test_kernel.py", "tests/networks/test_training.py"} & high
    assert EXAMPLES + "src/largen/transfer/torch/walks.py" in high
