"""Ordinary data, ordinary networks, ordinary calls, drawn at random.

    python -m tests.ordinary --draws 20000 --seed 0

makes the trials, prints those that went wrong, with what makes them again, and counts the others.
``--calls``, ``--networks`` and ``--kinds`` choose those whose names begin so.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import jax
from tests.ordinary.networks import NETWORKS
from tests.ordinary.trials import covering, draw, outcomes

BLOCKS = 20


def main() -> None:
    """Print every failure and, at the end, how many trials came to what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    parser.add_argument("--fixed", action="store_true", help="the fixed draws of the quick tests")
    parser.add_argument("--closed", action="store_true", help="only networks in closed form")
    parser.add_argument("--block", type=int, help=f"only each {BLOCKS}th network, from this one")
    parser.add_argument("--slow", type=float, default=10.0, help="seconds beyond which to print")
    for what in ("calls", "networks", "kinds"):
        parser.add_argument(f"--{what}", default="", help="only those whose names begin so")
    wanted = parser.parse_args()
    jax.config.update("jax_disable_most_optimizations", True)  # as in tests: conftest.py
    counts: Counter[str] = Counter()
    among = None if wanted.block is None else tuple(NETWORKS)[wanted.block :: BLOCKS]
    drawn = [draw(seed, among) for seed in range(wanted.seed, wanted.seed + wanted.draws)]
    if wanted.fixed:
        drawn = covering()
    # Trials with one network follow one another: they share what is compiled.
    chosen = (
        trial
        for trial in sorted(drawn, key=lambda trial: (trial.network, trial.call))
        if trial.call.startswith(wanted.calls)
        and trial.network.startswith(wanted.networks)
        and trial.kind.startswith(wanted.kinds)
        and not (wanted.closed and NETWORKS[trial.network].curved)
    )
    began = last = time.process_time()
    try:
        for trial, what in outcomes(chosen):
            counts[what.split(":")[0] if what.startswith("FAULT") else what] += 1
            now = time.process_time()
            if what.startswith("FAULT"):
                print(f"{trial}\n    {what}", flush=True)
            if now - last > wanted.slow:
                print(f"{trial}\n    took {now - last:.0f} s", flush=True)
            last = now
    except KeyboardInterrupt:
        print("interrupted")
    print(f"{sum(counts.values())} trials in {time.process_time() - began:.0f} processor seconds")
    for what, count in counts.most_common():
        print(f"{count:6d}  {what}")
    if counts["FAULT"]:
        raise SystemExit(1)


main()
