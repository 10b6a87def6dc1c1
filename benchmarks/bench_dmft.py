"""The deep mean-field limit: seconds, error and memory, beside networks of the same width.

    python benchmarks/bench_dmft.py            # four minutes
    python benchmarks/bench_dmft.py --large    # with the large cases, some minutes
    python benchmarks/bench_dmft.py --scaling  # in samples, steps, layers and neurons, one by one
    python benchmarks/bench_dmft.py --whole    # as solve() has them, with their error; five minutes

Processor seconds of all threads, without compilation; the error is the spread of one set of
neurons, relative to the residuals Δ of the whole trajectory. ``network`` is one finite network
with as many neurons, trained by the same steps in the same run. Matrices are known by their
directions, or stored where the case says so. Whole solutions are told with compilation, and without
it where a second call takes little; their error is the one that they report. ``clock`` is the
wall-clock of that call, and ``one by one`` with one replicate after the other. Every case has a
process of its own, whose largest memory is told, Python and compilation included.

Two threads that share a core are both charged while one waits for the other: on such a machine
``taskset -c 0`` in front counts what one core takes, about half.
"""

import argparse
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

import largen as lg
from largen.theories.chains.problem import posed_by
from largen.theories.mean_field.deep.estimation import memory as replicate_memory
from largen.theories.mean_field.deep.estimation.averages import means_and_errors
from largen.theories.mean_field.deep.estimation.replicates import _random
from largen.theories.mean_field.deep.estimation.settings import NumericalSettings
from largen.theories.mean_field.deep.sweep.schedule import descent
from largen.theories.mean_field.engine.parallel import one_thread_of_blas
from largen.theories.mean_field.record_times import NOTHING

SMALL = {
    # samples, inputs, rate, steps, hidden layers, activation, neurons
    "toy": (10, 25, 0.5, 100, 3, "tanh", 2048),
    "toy, more neurons": (10, 25, 0.5, 100, 3, "tanh", 8192),
    "five layers": (10, 25, 0.5, 100, 5, "tanh", 2048),
    "50 samples": (50, 100, 2.0, 100, 3, "tanh", 2048),
    "relu": (20, 40, 0.1, 100, 3, "relu", 2048),
    "relu, 50 samples, stored": (50, 100, 0.045, 100, 3, "relu", 1024),
}
BASE = (10, 50, 0.5, 50, 3, "tanh", 1024)
SCALING = {
    "samples": [(p, 2 * p + 30, 0.05 * p, *BASE[3:]) for p in (10, 20, 40, 80)],
    "steps": [(*BASE[:3], t, *BASE[4:]) for t in (50, 100, 200, 400)],
    "layers": [(*BASE[:4], l, *BASE[5:]) for l in (3, 6, 12, 24)],
    "neurons": [(*BASE[:6], n) for n in (1024, 2048, 4096, 8192)],
}
LARGE = {
    "1000 steps": (50, 100, 2.0, 1000, 3, "tanh", 2048),
    "200 samples": (200, 400, 4.0, 100, 3, "tanh", 4096),
    "100 samples, five layers": (100, 200, 2.0, 300, 5, "tanh", 2048),
}
WHOLE = {
    # particles, replicates
    "toy": (4096, 5),
    "50 samples": (2048, 2),
    "1000 steps": (1024, 2),
    "200 samples": (2048, 3),
    "100 samples, five layers": (2048, 2),
}


def run_of(samples, inputs, rate, steps, layers, activation):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((samples, inputs))
    x *= np.sqrt(inputs) / np.linalg.norm(x, axis=1, keepdims=True)
    data = lg.Dataset(x.astype(np.float32), np.sign(rng.standard_normal(samples)))
    net = lg.mlp(layers, activation, weight_std=2**0.5 if activation == "relu" else 1.0)
    return lg.Run(net, lg.mean_field(1.0), data, optimizer=lg.gd(rate), steps=steps)


def seconds(function):
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


def measure(case, replicates, stored):
    *description, neurons = case
    run = run_of(*description)
    posed = posed_by(run).problem
    settings = NumericalSettings(
        1e-2, neurons, 1, neurons, "variance_reduced", 0.05, np.float32, dense=stored
    )
    with one_thread_of_blas():
        (first, _), *found = (
            seconds(lambda seed=seed: _random(posed, run, NOTHING, settings, seed, descent(run)))
            for seed in range(1 + replicates)
        )
    taken = min(t for t, _ in found)
    f, of_mean = means_and_errors(posed, run, [swept for _, swept in found])["f"]
    delta = np.linalg.norm(run.data.y_train - f[..., 0])
    error = np.linalg.norm(of_mean) * replicates**0.5 / delta
    memory = peak()
    lg.train(run, width=neurons, seeds=1, key=0, progress=False)
    network, _ = seconds(lambda: lg.train(run, width=neurons, seeds=1, key=0, progress=False))
    return first - taken, taken, error, found[0][1].ranks.max(initial=0), network, memory


def solve(run, particles, replicates, key):
    """Return the error that a whole solution reports, relative to its residuals Δ."""
    found = lg.solve(
        run, rtol=1e-2, particles=particles, replicates=replicates, key=key, progress=False
    )
    return np.linalg.norm(found.f_train_error) / np.linalg.norm(run.data.y_train - found.f_train)


def alone(function, *args):
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args).result()


def peak():
    """Return the largest memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def whole(name):
    """Return seconds of a first and of a second call, the error and the memory of a case.

    Of the second call also wall-clock seconds, and those with one replicate after the other.
    """
    one = partial(solve, run_of(*(SMALL | LARGE)[name][:-1]), *WHOLE[name])
    first, error = seconds(partial(one, 0))
    memory = peak()
    if name not in SMALL:
        return first, None, None, None, error, memory
    begin = time.perf_counter()
    again, _ = seconds(partial(one, 1))
    together = time.perf_counter() - begin
    replicate_memory.AT_ONCE = 0
    begin = time.perf_counter()
    one(1)
    return first, again, together, time.perf_counter() - begin, error, memory


def table_of_whole():
    print("case                      neurons  first call  again  clock  one by one  error  peak MB")
    for name, (particles, replicates) in WHOLE.items():
        first, *others, error, memory = alone(whole, name)
        again, together, apart = (f"{each:.1f}s" if each else "" for each in others)
        print(
            f"{name:25} {f'{replicates} × {particles}':>8} {first:9.1f}s {again:>6} "
            f"{together:>6} {apart:>11} {error:6.2%} {memory:8.0f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    if options.whole:
        table_of_whole()
        return
    cases = {} if options.scaling else SMALL | (LARGE if options.large else {})
    for name, row in SCALING.items() if options.scaling else ():
        at = ("samples", None, None, "steps", "layers", None, "neurons").index(name)
        cases |= {f"{name} = {case[at]}": case for case in row}
    print("case                      neurons  compile   sweep   error   rank  network  peak MB")
    for name, case in cases.items():
        compiled, taken, error, rank, network, memory = alone(
            measure, case, options.replicates, name.endswith("stored")
        )
        print(
            f"{name:25} {case[-1]:7} {compiled:7.1f}s {taken:6.2f}s {error:6.2%} {rank:6} "
            f"{network:7.2f}s {memory:8.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
