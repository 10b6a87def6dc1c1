"""Options of pytest: ``--changed-since COMMIT`` and ``--record``; see ``tools.selection``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.selection import record
from tools.selection.selected import Selection, selection
from tools.selection.tree import ROOT

CHOSEN = pytest.StashKey[Selection]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption(
        "--changed-since",
        metavar="COMMIT",
        help="run the test modules that can reach what has changed since a commit, and those at "
        "the top of tests/; all of them if it is empty or unknown",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help=f"if all pass, write the commit into {record.FILE}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find out once, in the process that others are started from, what is to be run."""
    commit = config.getoption("changed_since")
    if commit is None:
        return
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is None:
        config.stash[CHOSEN] = selection(commit)
    else:
        files = worker["selected_files"]
        config.stash[CHOSEN] = Selection("", None if files is None else frozenset(files))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker."""
    chosen = node.config.stash.get(CHOSEN, None)
    if chosen is not None:
        node.workerinput["selected_files"] = None if chosen.files is None else [*chosen.files]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say what is run, and that workers take a while: nothing is printed until they are there."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    lines = [config.stash[CHOSEN].words] if CHOSEN in config.stash else []
    workers = config.getoption("numprocesses", None)
    if workers:
        lines.append(f"{workers} processes start, and collect the tests: about a minute.")
    writer = config.get_terminal_writer()
    for line in lines:
        writer.line(line)
    writer.flush()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files from which no change can be reached."""
    chosen = config.stash.get(CHOSEN, None)
    if chosen is None or not collection_path.is_relative_to(ROOT):
        return None
    return True if chosen.leaves_out(collection_path.relative_to(ROOT).as_posix()) else None


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Repeat at the end what was run, and write the record."""
    chosen = config.stash.get(CHOSEN, None)
    if chosen is not None:
        terminalreporter.write_line(chosen.words)
    if config.getoption("record"):
        whole = (chosen is None or chosen.files is None) and bool(config.getoption("daily"))
        reason = _partial(config)
        if exitstatus == 0 and reason is None:
            tests = len(terminalreporter.stats.get("passed", ()))
            terminalreporter.write_line(record.write(tests, whole=whole))
        else:
            terminalreporter.write_line(f"{record.FILE} is left as it is: {reason or 'a failure'}.")


def _partial(config: pytest.Config) -> str | None:
    """Return why tests were left out by other options, or nothing."""
    for option in ("within", "one_case", "markexpr", "keyword", "file_or_dir"):
        if config.getoption(option, None):
            return f"not all tests were run ({option})"
    return None
