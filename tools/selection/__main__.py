"""Say which tests a change can reach: ``python -m tools.selection [COMMIT]``.

Without a commit it is the last one of the record, which ``--base`` prints alone.
"""

from __future__ import annotations

import argparse

from tools.selection import record
from tools.selection.selected import is_test, selection


def main() -> None:
    """Print what would be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--base", action="store_true", help="print the record's last commit alone")
    parser.add_argument("--files", action="store_true", help="print the modules of tests as well")
    given = parser.parse_args()
    last = record.read()
    if given.base:
        print(last.base)
        return
    print(last)
    found = selection(last.base if given.commit is None else given.commit)
    print(found.words)
    if given.files and found.files is not None:
        print(*sorted(filter(is_test, found.files)), sep="\n")


if __name__ == "__main__":
    main()
