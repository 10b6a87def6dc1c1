"""Convolutional kernels with global pooling: by planes, from all pairs of positions, by a peer.

    python benchmarks/bench_planes.py
    python benchmarks/bench_planes.py --peer ~/nt/bin/python --sizes 16 --samples 20
    python benchmarks/bench_planes.py --peer ~/nt/bin/python --output docs/evidence/planes.csv

The same NNGP and NTK three times in one run, each in a process of its own: by planes of
displacement; from all pairs of positions at once, which a pool of window 1 in front of the global
one selects; and by neural-tangents, in a Python that has it (0.6.5 wants ``jax==0.4.24 "numpy<2"
"scipy<1.13"``). A process makes one call that compiles and ``--repeats`` that are timed. Processor
seconds of all threads, their median, are what machines that others use can compare. Memory is the
peak of the timed calls above what the process had before its first, and includes compiled programs.
"""

import argparse
import csv
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

FORMS = ("planes", "pairs", "neural-tangents")
HEAD = ("images", "kernels", "processor s", "MB", "s / planes", "MB / planes", "apart")
W_STD, B_STD = 2.0**0.5, 0.1


def images(size, samples):
    import numpy as np

    x = np.random.default_rng(0).standard_normal((samples, size, size, 3))
    return x / np.sqrt((x**2).mean(axis=(1, 2, 3), keepdims=True))


def by_largen(form, hidden, padding, x):
    import jax

    import largen as lg

    layers = [lg.Conv((3, 3), padding=padding, weight_std=W_STD, bias_std=B_STD)]
    layers = [*layers, lg.Activation("relu")] * hidden
    if form == "pairs":
        layers.append(lg.layers.AvgPool((1, 1)))
    net = lg.serial(*layers, lg.GlobalAvgPool(), lg.Dense())
    with jax.enable_x64(True):
        x = jax.numpy.asarray(x)
    return lambda: jax.block_until_ready(tuple(lg.kernel(net, x)))


def by_neural_tangents(hidden, padding, x):
    import jax
    from neural_tangents import stax  # pyright: ignore[reportMissingImports]

    layers = [stax.Conv(1, (3, 3), padding=padding, W_std=W_STD, b_std=B_STD), stax.Relu()]
    *_, kernel = stax.serial(*layers * hidden, stax.GlobalAvgPool(), stax.Dense(1, 1.0))
    compiled, x = jax.jit(lambda x: kernel(x, None, ("nngp", "ntk"))), jax.numpy.asarray(x)
    return lambda: jax.block_until_ready(tuple(compiled(x)))


def memory_mb(field):
    """Read a field of this process's status."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def measure(form, size, samples, hidden, padding, repeats):
    """Time one form in this process."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    x = images(size, samples)
    if form == "neural-tangents":
        os.environ["JAX_ENABLE_X64"] = "1"
        function = by_neural_tangents(hidden, padding, x)
    else:
        function = by_largen(form, hidden, padding, x)
    gc.collect()
    before, begin = memory_mb("VmRSS"), time.process_time()
    found = function()
    first = time.process_time() - begin
    gc.collect()
    reset_peak()
    wall, cpu = [], []
    for _ in range(repeats):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {
        "form": form,
        "cpu_s": statistics.median(cpu),
        "wall_s": statistics.median(wall),
        "first_cpu_s": first,
        "mb": memory_mb("VmHWM") - before,
        "values": [[float(k[0, 0]), float(k[0, 1]), float(k.sum())] for k in found],
    }


def report(results):
    """Print the figures of all forms and their ratios to the planes'; return them as rows."""
    ours, rows = results[0], []
    for each in results:
        errors = [
            abs(a / b - 1)
            for kernels in zip(each["values"], ours["values"], strict=True)
            for a, b in zip(*kernels, strict=True)
        ]
        ratios = [each[name] / ours[name] for name in ("cpu_s", "wall_s", "mb")]
        print(
            f"{each['form']:16s} {each['cpu_s']:8.3f} {each['wall_s']:8.3f} {each['mb']:8.1f} "
            f"{each['first_cpu_s']:8.2f}  {ratios[0]:8.2f} {ratios[1]:8.2f} {ratios[2]:8.2f}  "
            f"{max(errors):.0e}",
            flush=True,
        )
        rows.append(
            [each["form"], f"{each['cpu_s']:.3g}", f"{each['mb']:.0f}"]
            + [f"{ratios[k]:.2f}" for k in (0, 2)]
            + [f"{max(errors):.0e}"]
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", help="a Python that imports neural-tangents")
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 16])
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=3)
    parser.add_argument("--padding", choices=["SAME", "CIRCULAR"], default="SAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a CSV file for the table")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    fixed = (options.samples, options.hidden, options.padding, options.repeats)
    if options.one:
        print("RESULT " + json.dumps(measure(options.one[0], int(options.one[1]), *fixed)))
        return
    given = [f"--{name}={getattr(options, name)}" for name in ("samples", "hidden", "padding")]
    rows = []
    for size in options.sizes:
        print(f"{options.samples} images of {size} × {size} × 3, {options.hidden} layers, float64")
        print(
            f"{'':16s}    cpu s   wall s       MB  first s   ratios to planes: cpu, wall, MB  apart"
        )
        results = []
        for form in FORMS if options.peer else FORMS[:2]:
            python = options.peer if form == "neural-tangents" else sys.executable
            command = [python, os.path.abspath(__file__), "--one", form, str(size), *given]
            command.append(f"--repeats={options.repeats}")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            line = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
            if not line:
                print(f"{form:16s} failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            results.append(json.loads(line[0].removeprefix("RESULT ")))
        if results:
            images_of = f"{options.samples} of {size} × {size}"
            rows += [[images_of, *row] for row in report(results)]
    if options.output:
        with options.output.open("w", newline="") as file:
            csv.writer(file).writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
