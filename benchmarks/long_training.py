"""Long training at infinite width: seconds and memory against the number of steps T.

    python benchmarks/long_training.py                  # some minutes
    python benchmarks/long_training.py one-layer deep   # some of the cases

Each row is a process of its own: its processor seconds without imports, and by how much its memory
grew at the peak while it solved. The exponent is that of the seconds in T, without those of the
shortest run, which mostly compiles. Trained networks of three widths are compared with the limit
at the end of the longest run; the distance of single ones falls as one over the root of the width.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

import largen as lg
from largen.experiments.digits import digits

# Name: hidden layers, activation, rate, options of the theory, steps.
CASES = {
    "one-layer": (1, "tanh", 0.02, {"particles": 256}, (1_000, 10_000, 100_000)),
    "one-layer-closed": (1, "linear", 0.02, {}, (1_000, 10_000, 100_000)),
    "deep": (3, "tanh", 0.02, {"method": "sweep", "particles": 512, "replicates": 2},
             (100, 1_000, 10_000)),
    "deep-dense": (3, "relu", 0.02, {"method": "dense", "particles": 256, "replicates": 2},
                   (100, 1_000, 10_000)),
    "deep-closed": (3, "linear", 0.02, {"method": "closed"}, (100, 1_000, 10_000)),
}  # fmt: skip
SAMPLES = 6
WIDTHS, SEEDS = (32, 64, 128), 8


def run_of(name, steps):
    """Return the run of a case: some threes and eights."""
    layers, activation, rate, _, _ = CASES[name]
    net = lg.mlp(layers, activation)
    data = digits(SAMPLES, 4, classes=(3, 8))
    return lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(rate), steps=steps)


def solve(name, steps):
    """Return the limit of a case, with kernels at the first and the last step only."""
    layers, _, _, options, _ = CASES[name]
    theory = (lg.theories.MeanField if layers == 1 else lg.theories.DeepMeanField)(
        **options, progress=False
    )
    return lg.solve(run_of(name, steps), theory=theory, throw=False)


def peak():
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(name, steps):
    """Solve a case and print what it took; the first, short solution compiles and imports."""
    solve(name, 10)
    before, begin = peak(), time.process_time()
    limit = solve(name, steps)
    seconds = time.process_time() - begin
    found = {"seconds": seconds, "grown": peak() - before, "status": str(limit.status)}
    if steps == CASES[name][-1][-1]:
        found["apart"] = apart(name, steps, limit)
    print(json.dumps(found))


def apart(name, steps, limit):
    """Return the distances of mean outputs of networks from the limit at the last step."""
    size, rows = np.linalg.norm(limit.f_test[-1]), []
    for width in WIDTHS:
        nets = lg.train(run_of(name, steps), width=width, seeds=SEEDS, key=0, progress=False)
        each = nets.f_test[:, -1]
        off = np.linalg.norm(each - limit.f_test[-1], axis=-1) / size
        rows.append((width, float(off.mean()), float(off.std(ddof=1) / len(off) ** 0.5)))
    return rows


def main():
    """Run all cases, or those that are named."""
    words = sys.argv[1:]
    if words[:1] == ["--one"]:
        child(words[1], int(words[2]))
        return
    print("case                    T   seconds   grown MB   exponent   status")
    for name in words or CASES:
        taken = []
        for steps in CASES[name][-1]:
            call = [sys.executable, __file__, "--one", name, str(steps)]
            found = json.loads(subprocess.run(call, capture_output=True, check=True).stdout)
            taken.append(found["seconds"] - taken[0] if taken else found["seconds"])
            power = f"{np.log10(taken[2] / taken[1]):10.2f}" if len(taken) == 3 else 10 * " "
            print(
                f"{name:18s} {steps:7d} {found['seconds']:9.1f} {found['grown']:10.0f} {power}   "
                f"{found['status']}",
                flush=True,
            )
            for width, off, error in found.get("apart", ()):
                print(
                    f"   networks of width {width:5d}: {off:.2%} ± {error:.2%} from the limit at T"
                )


if __name__ == "__main__":
    main()
