"""Which lines and branches the tests reach, by room, and in which files most lines are left.

    python -m tests.coverage --output docs/evidence/coverage.json    # as long as `make test-all`
    python -m tests.coverage --one-case                              # half as long
    python -m tests.coverage --quick                                 # as long as `make test`

needs ``pytest-cov``. What runs in processes that tests start counts as well; what runs inside
programs that JAX has compiled is reached while they are traced.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = 20  # that are named, by the number of lines that no test reaches
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


# What is run, with the options of pytest that choose it.
TESTS = {
    "all tests": ["-m", ""],
    "the quick tests": ["-m", "not slow"],
    "the quick tests and one case of each slow one": ["-m", "", "--one-case"],
}


def measured(workers: int, which: str) -> tuple[dict, bool]:
    """Run tests by a name in TESTS; return the report of coverage.py, and whether they pass."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", *TESTS[which]]
        command += ["-n", str(workers), "--dist", "worksteal", "-p", "no:cacheprovider"]
        command += ["--without-shapes", "--cov=largen", f"--cov-report=json:{report}"]
        ended = subprocess.run(command, cwd=ROOT, check=False)
        found = json.loads(report.read_text())
    return found, ended.returncode == 0


def by_room(report: dict) -> dict[str, dict[str, int]]:
    """Return the counts of each package of largen."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, file in report["files"].items():
        inside = Path(path).parts[Path(path).parts.index("largen") + 1 :]
        for room in (inside[0].removesuffix(".py"), "all"):
            for name in COUNTS:
                found[room][name] += file["summary"][name]
    return dict(found)


def left(report: dict, most: int) -> dict[str, int]:
    """Return the files in which most lines are not reached, and how many."""
    lines = {path: file["summary"]["missing_lines"] for path, file in report["files"].items()}
    worst = sorted(lines, key=lambda path: -lines[path])[:most]
    return {path.rpartition("largen/")[2]: lines[path] for path in worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    fewer = parser.add_mutually_exclusive_group()
    fewer.add_argument("--quick", action="store_true", help="leave out the slow tests")
    fewer.add_argument("--one-case", action="store_true", help="one case of each slow test")
    parser.add_argument("--output", type=Path, help="a JSON file for the counts")
    wanted = parser.parse_args()
    every, quick, one_case = TESTS
    which = quick if wanted.quick else one_case if wanted.one_case else every
    report, right = measured(wanted.workers, which)
    rooms, files = by_room(report), left(report, FILES)
    for room, counts in sorted(rooms.items()):
        lines, branches = counts["num_statements"], counts["num_branches"]
        print(
            f"{room:18} {counts['covered_lines'] / max(lines, 1):6.1%} of {lines:5} lines, "
            f"{counts['covered_branches'] / max(branches, 1):6.1%} of {branches:5} branches"
        )
    for file, lines in files.items():
        print(f"{lines:5} lines left in {file}")
    if wanted.output:
        summary = {"date": date.today().isoformat(), "tests": which, "rooms": rooms, "left": files}
        wanted.output.write_text(json.dumps(summary, indent=1) + "\n")
    if not right:
        raise SystemExit("some tests fail: what these reached before is counted as well")


if __name__ == "__main__":
    main()
