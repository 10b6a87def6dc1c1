"""Which lines and branches the quick tests reach, by room.

    python -m tests.coverage --output docs/evidence/coverage.json    # as long as `make test`

needs ``pytest-cov``. What only slow tests reach counts as not reached.
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
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def measured(workers: int) -> dict:
    """Run the quick tests, and return the report of coverage.py."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", str(workers)]
        command += ["-p", "no:cacheprovider", "--cov=largen", "--cov-branch"]
        ended = subprocess.run([*command, f"--cov-report=json:{report}"], cwd=ROOT, check=False)
        if ended.returncode:
            raise SystemExit("the tests fail: coverage is that of tests that pass")
        return json.loads(report.read_text())


def by_room(report: dict) -> dict[str, dict[str, int]]:
    """Return the counts of each package of largen."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for path, file in report["files"].items():
        inside = Path(path).parts[Path(path).parts.index("largen") + 1 :]
        for room in (inside[0].removesuffix(".py"), "all"):
            for name in COUNTS:
                found[room][name] += file["summary"][name]
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a JSON file for the counts")
    wanted = parser.parse_args()
    rooms = by_room(measured(wanted.workers))
    for room, counts in sorted(rooms.items()):
        lines, branches = counts["num_statements"], counts["num_branches"]
        print(
            f"{room:18} {counts['covered_lines'] / max(lines, 1):6.1%} of {lines:5} lines, "
            f"{counts['covered_branches'] / max(branches, 1):6.1%} of {branches:5} branches"
        )
    if wanted.output:
        summary = {"date": date.today().isoformat(), "rooms": rooms}
        wanted.output.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
