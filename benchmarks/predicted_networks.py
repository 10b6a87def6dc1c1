"""What networks of a width do against what was predicted: pilots, theory, and the limit alone.

    python benchmarks/predicted_networks.py [--networks 1200] [--cases NAME …] > table.md

Odd against even digits of scikit-learn, tanh, gradient descent at the rate 1. For each width,
anchor and time the table has the Wasserstein-1 distance between the law of the test loss and that
of as many networks, of the limit and of the prediction; the distance of two halves of these
networks, halved, as the noise; and the fraction of networks in the predicted interval of 90 %.
Twenty minutes of two cores.
"""

import argparse
import time

import numpy as np

import largen as lg
from largen.experiments.digits import digits
from largen.experiments.predicted_networks.pilots import distance

WIDTHS = (32, 64, 128)
# Hidden layers, parameterization, samples, times, and options of the limit.
CASES = {
    "mean field, one hidden layer": (1, lg.mean_field(), (32, 64), (5, 20, 40), {}),
    "mean field, two hidden layers": (2, lg.mean_field(), (16, 32), (5, 10), {"rtol": 0.1}),
    "kernel, one hidden layer": (1, lg.ntk(), (32, 64), (5, 20, 40), {}),
}
HEAD = ("run, step", "n", "limit", "prediction", "noise", "in 90 %", "status", "s")


def noise_of(losses: np.ndarray) -> np.ndarray:
    """Return half of the distance between halves of an ensemble, (step,)."""
    half, rng = len(losses) // 2, np.random.default_rng(0)
    mixed = [losses[rng.permutation(len(losses))] for _ in range(20)]
    return np.mean([distance(one[:half], one[half:]) / 2 for one in mixed], 0)


def rows_of(name: str, networks: int):
    """Yield the rows of a case, for both anchors."""
    depth, param, samples, times, options = CASES[name]
    optimizer, steps = lg.gd(1.0), times[-1]
    run = lg.Run(lg.mlp(depth, "tanh"), param, digits(*samples), optimizer=optimizer, steps=steps)
    limit = lg.solve(run, **options)
    nets = {n: lg.train(run, width=n, seeds=networks, key=100 + n).loss_test for n in WIDTHS}
    for anchor in ("pilots", "theory"):
        for n, losses in nets.items():
            start = time.perf_counter()
            found = lg.training.predict_networks(
                run, n, anchor=anchor, limit=limit, draws=4000, throw=False
            )
            seconds = time.perf_counter() - start
            alone = distance(found.at_width(10**9).loss_test, losses)
            missed, noise = distance(found.loss_test, losses), noise_of(losses)
            low, high = found.interval()
            held = ((low <= losses) & (losses <= high)).mean(0)
            for t in times:
                numbers = (f"{each[t]:.4f}" for each in (alone, missed, noise, held))
                yield (f"{name}, {anchor}, {t}", n, *numbers, str(found.status), f"{seconds:.0f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=1200)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    given = parser.parse_args()
    print("|".join(("", *HEAD, "")), "|".join(("", *["---"] * len(HEAD), "")), sep="\n")
    for name in given.cases:
        for row in rows_of(name, given.networks):
            print("|".join(("", *map(str, row), "")), flush=True)


if __name__ == "__main__":
    main()
