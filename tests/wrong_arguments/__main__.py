"""Makes the calls of the table, without the type checker of the tests, and prints what came of it.

``python -m tests.wrong_arguments table``, ``... transfer``, ``... pairs SEED COUNT`` or
``... everything [NAME]``.
"""

import json
import resource
import sys

from tests.wrong_arguments.outcomes import outcome
from tests.wrong_arguments.rows import everything, pairs, table

MEMORY = 16 * 2**30


def main(what: str, *options: str) -> None:
    """Print one line of JSON for each row: name, argument, value, outcome."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    match what:
        case "pairs":
            rows = pairs(int(options[0]), int(options[1]))
        case "everything":
            rows = everything(*options)
        case "transfer":
            from tests.wrong_arguments.transfer_examples import examples  # which needs PyTorch

            rows = table(examples())
        case _:
            rows = table()
    for row in rows:
        # Flushed before the call, so that what ends the process is known.
        print(json.dumps(row[:3]), end="", flush=True)
        print("\t" + json.dumps(outcome(row.call)), flush=True)


main(*sys.argv[1:])
