"""Error against processor seconds of the solvers of limits: table and picture.

    python benchmarks/work_precision.py --output docs/evidence    # some minutes

Each solver is called twice with the same settings; the second call, which compiles nothing, is
measured, in processor seconds of all threads. Errors are those of the whole trajectory of outputs,
or of the NTK, relative to its size, of one draw each, so that they scatter. References: for one
hidden layer quadrature (of inputs in two dimensions); for three layers eight replicates of 16384
neurons, for infinite depth eight of 4096 at 16 and 32 blocks, which no measured solver shares; for
the NTK a tolerance of 1e-10. Networks are the mean of an ensemble, a solver of the limit as well.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np

import largen as lg

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator

Rows = list[tuple[str, str, str, float, float]]
SEEDS = 64


def run_of(net, samples=4, inputs=2, steps=20):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, inputs))
    data = lg.Dataset(x, np.sign(rng.standard_normal(samples)))
    return lg.Run(net, lg.mean_field(1.0), data, optimizer=lg.gd(0.5), steps=steps)


def outputs_of_networks(run, width):
    return lg.train(run, width=width, seeds=SEEDS, key=3, progress=False).f_train.mean(0)


def outputs_of_limit(run, theory):
    return lg.solve(run, theory=theory, throw=False).f_train  # errors are measured here


def measured(compute: Callable[[], np.ndarray], reference: np.ndarray) -> tuple[float, float]:
    """Return processor seconds of the second call, and the relative error."""
    compute()
    began = time.process_time()
    found = compute()
    seconds = time.process_time() - began
    return seconds, float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def one_hidden_layer() -> Rows:
    run, theory = run_of(lg.mlp(1, "tanh")), lg.theories.MeanField
    reference = lg.solve(run, theory=theory(method="quadrature", rtol=1e-9)).f_train
    solvers = {
        "quasi-random neurons": [("particles", 2**k, {}) for k in (8, 10, 12, 14)],
        "independent neurons": [
            ("particles", 2**k, {"sampling": "finite_width"}) for k in (8, 10, 12, 14)
        ],
    }
    networks = of_widths(run, 64, 256, 1024)
    return _table("one hidden layer, tanh", run, theory, solvers, reference, networks)


def three_layers() -> Rows:
    run, theory = run_of(lg.mlp(3, "tanh"), inputs=5), lg.theories.DeepMeanField
    reference = lg.solve(
        run, theory=theory(particles=16384, replicates=8, max_particles=2**18, key=11)
    ).f_train
    fixed = {"replicates": 4, "progress": False}
    solvers = {
        "causal sweep": [("particles", 2**k, fixed) for k in (8, 9, 10, 11)],
        "causal sweep, exact distribution": [
            ("particles", 2**k, {**fixed, "sampling": "finite_width"}) for k in (8, 9, 10, 11)
        ],
        "dense, two widths": [("particles", 2**k, {**fixed, "method": "dense"}) for k in (8, 9)],
    }
    networks = of_widths(run, 64, 128, 256)
    return _table("three hidden layers, tanh", run, theory, solvers, reference, networks)


def infinite_depth() -> Rows:
    run = run_of(lg.residual_mlp(math.inf, "tanh"), samples=3, inputs=5, steps=4)
    run = run.with_changes(param=lg.depth_mup())
    theory = lg.theories.InfiniteDepth
    reference = outputs_of_limit(
        run, theory(depths=(16, 32), particles=4096, replicates=8, key=11, progress=False)
    )
    solvers = {
        "causal sweep at two depths": [
            ("particles", 2**k, {"replicates": 4, "progress": False}) for k in (7, 8, 9, 10)
        ]
    }
    networks = {
        f"width={n} depth={d}": (run.with_changes(net=lg.residual_mlp(d, "tanh")), n)
        for n, d in ((32, 8), (64, 16), (128, 32))
    }
    return _table("infinite depth, tanh", run, theory, solvers, reference, networks)


def kernel_of_infinite_depth() -> Rows:
    problem, param = "NTK at infinite depth, tanh", lg.depth_mup()
    net, x = lg.residual_mlp(math.inf, "tanh"), np.random.default_rng(0).normal(size=(20, 5))
    reference = np.asarray(lg.kernel(net, x, param=param, rtol=1e-10).ntk)
    rows: Rows = []

    def ntk_of_networks(width, depth):
        finite = lg.residual_mlp(depth, "tanh")
        return np.asarray(
            lg.networks.monte_carlo_kernel(
                finite, x, width=width, draws=SEEDS, key=5, param=param
            ).ntk
        )

    work = measured(lambda: np.asarray(lg.kernel(net, x, param=param).ntk), reference)
    rows.append((problem, "steps of fixed size", "rtol=1e-3", *work))
    for width, depth in ((32, 8), (64, 16), (128, 32)):
        work = measured(lambda n=width, d=depth: ntk_of_networks(n, d), reference)
        rows.append((problem, f"{SEEDS} networks", f"width={width} depth={depth}", *work))
    print(*rows, sep="\n", flush=True)
    return rows


def of_widths(run, *widths):
    return {f"width={n}": (run, n) for n in widths}


def _table(problem, run, theory, solvers, reference, networks) -> Rows:
    rows = []
    for solver, settings in solvers.items():
        for option, value, fixed in settings:
            record = theory(**{option: value, **fixed})
            work = measured(
                lambda r=record: lg.solve(run, theory=r, throw=False).f_train, reference
            )
            rows.append((problem, solver, f"{option}={value:g}", *work))
            print(*rows[-1], flush=True)
    for setting, (finite, width) in networks.items():
        work = measured(lambda r=finite, n=width: outputs_of_networks(r, n), reference)
        rows.append((problem, f"{SEEDS} networks", setting, *work))
        print(*rows[-1], flush=True)
    return rows


def drawn(rows: Rows):
    """Return the work-precision diagram: a panel for each problem, a line for each solver."""
    problems = list(dict.fromkeys(row[0] for row in rows))
    figure, panels = plt.subplots(2, 2, figsize=(8, 7))
    for panel, problem in zip(panels.flat, problems, strict=False):
        solvers = dict.fromkeys(row[1] for row in rows if row[0] == problem)
        for solver in solvers:
            points = [row[3:] for row in rows if row[:2] == (problem, solver)]
            look = {"color": "0.5", "linestyle": "--"} if "networks" in solver else {}
            panel.loglog(*zip(*points, strict=True), marker="o", ms=3, lw=1, label=solver, **look)
        panel.set(title=problem, xlabel="processor seconds", ylabel="relative error")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
        panel.yaxis.set_minor_formatter("")
        panel.legend(fontsize=7)
    figure.tight_layout()
    return figure


def write(rows: Rows, folder: Path) -> None:
    """Write the table and the picture."""
    with (folder / "work_precision.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("problem", "solver", "setting", "seconds", "error"))
        table.writerows((*row[:3], *(f"{number:.3g}" for number in row[3:])) for row in rows)
    drawn(rows).savefig(folder / "work_precision.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("."), help="folder of table, picture")
    folder = parser.parse_args().output
    folder.mkdir(exist_ok=True)
    rows: Rows = []
    for problem in (one_hidden_layer, three_layers, infinite_depth, kernel_of_infinite_depth):
        rows += problem()
        write(rows, folder)  # after each problem, so that an interrupt loses little


if __name__ == "__main__":
    main()
