"""The test files that a change since a commit can reach, and words about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.selection.changes import changed_since
from tools.selection.graph import EXAMPLES, Graph
from tools.selection.tree import Tree

SHOWN = 8  # changed files that are named


@dataclass(frozen=True)
class Selection:
    """What is run of all files with tests; ``files`` is None where it is all of them."""

    words: str
    files: frozenset[str] | None = None

    def leaves_out(self, path: str) -> bool:
        """Whether no test of a file can reach a change."""
        return self.files is not None and path.endswith(".py") and path not in self.files


def selection(commit: str, tree: Tree | None = None) -> Selection:
    """Return what can have changed since a commit at which all tests passed.

    Tests at the top of ``tests`` are always in it: they ask all rooms, by tables of their names.
    """
    if not commit:
        return Selection("All tests run: no commit is given at which they have passed.")
    tree = tree or Tree()
    changed = changed_since(tree, commit)
    if changed is None:
        return Selection(f"All tests run: the commit {commit} is not in the history of this clone.")
    reached = Graph(tree).reaching(changed)
    files = {path.removeprefix(EXAMPLES) for path in reached} | set(filter(is_top, tree.files))
    tests = [path for path in tree.files if is_test(path)]
    run = [path for path in tests if path in files]
    names = sorted(path for path in changed if path in tree.files)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return Selection(
        f"Changed since {commit[:12]}: {', '.join(names[:SHOWN]) or 'no code'}{more}.\n"
        f"{len(run)} of {len(tests)} test modules run: those that can reach it, and those at the "
        "top of tests/.",
        frozenset(files),
    )


def is_test(path: str) -> bool:
    """Whether a file is a module of tests."""
    name = PurePosixPath(path).name
    return path.startswith("tests/") and name.startswith("test_") and name.endswith(".py")


def is_top(path: str) -> bool:
    """Whether a file is a module of tests of the whole library."""
    return is_test(path) and path.count("/") == 1
