"""Makes the calls of the table, without the type checker of the tests, and prints what came of it.

What the calls write is in a temporary folder: some of the wrong paths are names of files.

``python -m tests.wrong_arguments table``, ``... transfer``, ``... pairs SEED COUNT``,
``... everything [NAME]`` or ``... effects [NAME …]``.
"""

import json
import os
import resource
import sys
import warnings
from pathlib import Path

import jax
from tests.wrong_arguments.examples import FOLDER
from tests.wrong_arguments.outcomes import outcome
from tests.wrong_arguments.rows import everything, pairs, table

MEMORY = 16 * 2**30


def main(what: str, *options: str) -> None:
    """Print one line of JSON for each row: name, argument, value, outcome."""
    # Modules are found from there as well, also by processes that calls start.
    sys.path[:] = [str(Path(place).resolve()) for place in sys.path]
    if "PYTHONPATH" in os.environ:
        places = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(each).resolve()) for each in places)
    os.chdir(FOLDER)
    jax.config.update("jax_disable_most_optimizations", True)  # as in other tests: conftest.py
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if what == "effects":
        from tests.wrong_arguments import effects

        warnings.simplefilter("ignore")
        for *row, came in effects.everything(options):
            print(json.dumps(row) + "\t" + json.dumps(came), flush=True)
        return
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
