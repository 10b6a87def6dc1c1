"""What the verification of a plan costs, and what it says, for right plans and for wrong ones.

    python -m benchmarks.bench_verification [FILE]

Processor time of ``scale`` with and without verification, from base width 32 to 256, for the models
of the tests. One core, half a minute; ``bench_verification.txt`` is one such table.
"""

import argparse
import time
import warnings
from pathlib import Path

import torch
from tests.transfer.faulty_models import FAULTS
from tests.transfer.read_models import READ
from tests.transfer.verified_models import RIGHT

from largen.errors import WrongPlan
from largen.text import aligned
from largen.transfer.torch import scale


def timed(make, example, **options):
    """Return a plan, and the seconds of processor time that it took."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongPlan)
        plan = scale(
            make, {"width": 32}, {"width": 256}, scheme="mup", optimizer="adam", example=example,
            **options,
        )  # fmt: skip
    return plan, time.process_time() - start


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=Path("bench_verification.txt"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    timed(*RIGHT["mlp"])  # imports
    rows = [["model", "plan", "verification", "verdict"]]
    for name, (make, example, *_) in {**RIGHT, **READ, **FAULTS}.items():
        _, first = timed(make, example, verify=False)  # measures the initial distributions as well
        _, plain = timed(make, example, verify=False)
        plan, whole = timed(make, example)
        culprit = plan.verified[0].culprit
        verdict = "right" if culprit is None else f"wrong: {culprit.words}"
        rows.append([name, f"{first:.2f} s", f"{whole - plain:.2f} s", verdict])
    table = "\n".join(aligned(rows))
    print(table)
    given.file.write_text(table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
