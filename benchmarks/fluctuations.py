"""Fluctuations at infinite width and depth beside those of wide and deep networks.

    python benchmarks/fluctuations.py > docs/evidence/fluctuations.csv  # a quarter of an hour
    python benchmarks/fluctuations.py 512                               # fewer networks

To leading order N times the variance of an output depends neither on the width N nor, with
branches L^(−1/2), on the depth L (Bordelon et al., Depthwise hyperparameter transfer in residual
networks, Appendix H). ``lg.solve(run, fluctuations=True)`` of infinitely many blocks says it from
narrow networks of few blocks; the mean over four keys is compared with networks of width 256 and 64
blocks: the ratio of sums over samples and steps, with its 95 % interval from all ensembles.
"""

import csv
import math
import sys
import time

import numpy as np

import largen as lg
from largen.experiments.digits import digits

WIDTH, DEPTH, NETWORKS, LIMITS, STEPS = 256, 64, 4096, 4, 8


def run_of(depth):
    """Return the run of residual networks on some threes and eights."""
    data = digits(8, 4, classes=(3, 8))
    net = lg.residual_mlp(depth, "tanh")
    return lg.Run(net, lg.depth_mup(), data, optimizer=lg.gd(0.4), steps=STEPS)


def limit_of(key):
    """Return N Var f at infinite width and depth, summed over samples and steps, and its error.

    Samples and steps of one network vary together: the error of the sum is that of parts which all
    err alike, the largest that it can be.
    """
    theory = lg.theories.InfiniteDepth(fluctuations=True, rtol=3e-2, key=key)
    limit = lg.solve(run_of(math.inf), theory=theory)
    both = [(limit.f_train_fluctuation, limit.f_test_fluctuation),
            (limit.f_train_fluctuation_error, limit.f_test_fluctuation_error)]  # fmt: skip
    std, error = (np.concatenate(parts, 1) for parts in both)
    return float((std**2).sum()), float((2 * std * error).sum())


def networks_of(number):
    """Return N Var f of networks, summed over samples and steps, and its error."""
    nets = lg.train(run_of(DEPTH), WIDTH, seeds=number, key=1, progress=False)
    f = np.concatenate([nets.f_train, nets.f_test], 2).astype(float).reshape(number, -1)
    squares = (WIDTH * number / (number - 1) * (f - f.mean(0)) ** 2).sum(1)
    return float(squares.mean()), float(squares.std(ddof=1)) / number**0.5


def main():
    """Print the ratio and what it took as CSV."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else NETWORKS
    began = time.process_time()
    limits = [limit_of(key) for key in range(LIMITS)]
    middle = time.process_time()
    seen, seen_error = networks_of(number)
    ended = time.process_time()
    said = float(np.mean([value for value, _ in limits]))
    said_error = math.hypot(*(error for _, error in limits)) / LIMITS
    ratio = said / seen
    half = 1.96 * ratio * math.hypot(said_error / said, seen_error / seen)
    row = {
        "networks": f"{number} of width {WIDTH}, {DEPTH} blocks",
        "limit over networks": f"{ratio:.3f}",
        "95 %": f"{ratio - half:.3f} to {ratio + half:.3f}",
        "cpu s of the limit": f"{(middle - began) / LIMITS:.1f}",
        "cpu s of the networks": f"{ended - middle:.0f}",
    }
    writer = csv.DictWriter(sys.stdout, row, lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)


if __name__ == "__main__":
    main()
