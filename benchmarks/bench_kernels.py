"""Kernels and closed-form gradient flow: seconds and memory, and ratios to a peer's figures.

    python benchmarks/bench_kernels.py                                # all cases
    python benchmarks/bench_kernels.py --only fc_relu_4000 --peer peer.json

The file is also an adapter (``NAME``, ``configure``, ``build``) for a script that times kernels
of other libraries by the same protocol: every case in a process of its own, one call that
compiles, then five that are timed; processor seconds of all threads, because machines are shared.
``--peer`` takes the JSON that such a script wrote, with ``results`` of ``case``, ``dtype``,
``cpu_median_s``, ``rss_before_mb``, ``peak_mb``. Figures of another day compare with care.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

NAME = "largen"
W_STD, B_STD, HIDDEN, INPUTS = 2.0**0.5, 0.1, 3, 784
REPEATS = 5
TIMES = [1e-2, 1e-1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10000.0]

CASES = {
    **{
        f"fc_{act}_{n}": {"kind": "fc", "act": act, "n": n}
        for act in ("relu", "erf")
        for n in (1000, 2000, 4000)
    },
    "num_tanh_500": {"kind": "fc", "act": "tanh", "n": 500},
    "deep_relu_500": {"kind": "deep", "act": "relu", "n": 500, "hidden": 80},
    "cnn_flatten_100": {"kind": "cnn", "act": "relu", "n": 100, "size": 32, "top": "flatten"},
    "cnn_gap_20": {"kind": "cnn", "act": "relu", "n": 20, "size": 16, "top": "gap"},
    "mse_flow_2000": {"kind": "mse", "act": "relu", "n": 2000, "m": 500, "reuse": False},
    "mse_flow_2000_again": {"kind": "mse", "act": "relu", "n": 2000, "m": 500, "reuse": True},
    "low_rank_20000": {"kind": "low_rank", "act": "relu", "n": 20_000, "m": 1000, "repeats": 1},
    "solve_20000": {"kind": "solve", "act": "relu", "n": 20_000, "m": 1000, "repeats": 1},
}


def configure(dtype):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # JAX diagonalises by SciPy's OpenBLAS, whose waiting threads spin and count as processor
    # time: with two threads a decomposition of 2000 samples costs up to ten times as much of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def versions():
    import jax

    import largen

    return {"largen": largen.__version__, "jax": jax.__version__}


def network(act, hidden=HIDDEN):
    import largen as lg

    layers = [lg.Dense(weight_std=W_STD, bias_std=B_STD), lg.Activation(act)] * hidden
    return lg.serial(*layers, lg.Dense(weight_std=1.0))


def convolutional(act, top, hidden=HIDDEN):
    import largen as lg

    conv = lg.Conv((3, 3), weight_std=W_STD, bias_std=B_STD)
    end = lg.GlobalAvgPool() if top == "gap" else lg.Flatten()
    return lg.serial(*[conv, lg.Activation(act)] * hidden, end, lg.Dense(weight_std=1.0))


def build(case, spec, data):
    """Return what is timed: no arguments, a dictionary of arrays.

    Samples of kernels are put on the device here, as the peer's are: JAX has started before
    memory is measured.
    """
    import jax.numpy as jnp

    import largen as lg
    from largen.arrays import precision

    if spec["kind"] in ("fc", "deep", "cnn"):
        act, hidden = spec["act"].removesuffix("_num"), spec.get("hidden", HIDDEN)
        images = spec["kind"] == "cnn"
        net = convolutional(act, spec["top"], hidden) if images else network(act, hidden)
        with precision(data["x"]):
            x = jnp.asarray(data["x"])
        return lambda: lg.kernel(net, x)._asdict()
    if spec["kind"] == "mse":
        return flow(spec, data)
    if spec["kind"] in ("low_rank", "solve"):
        return many_samples(spec["kind"], network(spec["act"]), data)
    raise NotImplementedError(case)


def many_samples(how, net, data):
    """Predictions from 20 000 samples: by 1000 landmarks, or with the whole matrix in memory."""
    import largen as lg

    x, x_test, y = (data[name] for name in ("x", "x_test", "y"))

    def by_landmarks():
        given = lg.regression.large.low_rank_posterior(net, x, y, noise=0.1, landmarks=1000)
        return {"mean": given.predict(x_test).mean}

    def by_conjugate_gradients():
        found = lg.regression.large.solve_kernel(
            lg.nngp_kernel(net, x), y, noise=0.1, rank=300, rtol=1e-4
        )
        return {"mean": lg.nngp_kernel(net, x_test, x) @ found.weights}

    return by_landmarks if how == "low_rank" else by_conjugate_gradients


def flow(spec, data):
    """Gradient flow from f(0) = 0 at all times, kernels given."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import largen as lg
    from largen.arrays import precision
    from largen.kernels import modes

    net, x = network("relu"), data["x"]
    train, test = lg.ntk_kernel(net, x), lg.ntk_kernel(net, data["x_test"], x)
    start = np.zeros((1, len(x), 1), x.dtype), np.zeros((1, len(test), 1), x.dtype)
    with precision(x):
        kept = modes.decompose(jnp.asarray(train), jnp.asarray(test)) if spec["reuse"] else None

    def timed():
        with precision(x):
            found = kept or modes.decompose(jnp.asarray(train), jnp.asarray(test))
            factors = modes.flow_factors(found.values, jnp.asarray(data["t"]) / len(x))
            y, f0 = jnp.asarray(data["y"]), (jnp.asarray(f) for f in start)
            f_train, f_test = jax.block_until_ready(modes.outputs(found, factors, y, *f0))
            return {"fx_train": f_train[0], "fx_test": f_test[0]}

    return timed


def inputs(spec, dtype):
    import numpy as np

    draw = np.random.default_rng(0)
    n = spec["n"]
    if spec["kind"] == "cnn":
        x = draw.standard_normal((n, spec["size"], spec["size"], 3))
        x /= np.sqrt((x**2).mean(axis=(1, 2, 3), keepdims=True))
        return {"x": x.astype(dtype)}
    x = draw.standard_normal((n + spec.get("m", 0), INPUTS))
    x /= np.sqrt((x**2).mean(axis=1, keepdims=True))
    data = {"x": x[:n].astype(dtype)}
    if "m" in spec:
        y = draw.standard_normal((n, 1)).astype(dtype)
        data |= {"x_test": x[n:].astype(dtype), "y": y, "t": np.array(TIMES, dtype)}
    return data


def memory_mb(field):
    """Read a field of this process's status; None where the system does not have it."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))
    except (OSError, StopIteration):
        return None


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def measure(case, dtype):
    """Time one case in this process."""
    configure(dtype)
    from jax import block_until_ready

    spec = CASES[case]
    function = build(case, spec, inputs(spec, dtype))
    gc.collect()
    before = memory_mb("VmRSS")
    begin = time.perf_counter()
    block_until_ready(function())
    first = time.perf_counter() - begin
    gc.collect()
    reset_peak()
    wall, cpu = [], []
    for _ in range(spec.get("repeats", REPEATS)):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        block_until_ready(function())
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {
        "impl": NAME,
        "case": case,
        "dtype": dtype,
        "first_s": first,
        "median_s": statistics.median(wall),
        "cpu_median_s": statistics.median(cpu),
        "rss_before_mb": before,
        "peak_mb": memory_mb("VmHWM"),
    }


def peers_figures(path):
    if path is None:
        return {}
    with open(path) as file:
        results = json.load(file)["results"]
    return {(r["case"], r["dtype"]): r for r in results if "cpu_median_s" in r}


def grown(result):
    if result["peak_mb"] is None or result["rss_before_mb"] is None:
        return float("nan")
    return result["peak_mb"] - result["rss_before_mb"]


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", help="cases, or how they begin")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "float64"])
    parser.add_argument("--peer", help="JSON with the peer's figures")
    parser.add_argument("--out", help="where to write ours, as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("RESULT " + json.dumps(measure(*options.one)))
        return
    peers, results = peers_figures(options.peer), []
    print("case                 dtype      cpu s   wall s  first s      MB   cpu/peer's  MB/peer's")
    for case in CASES:
        if options.only and not any(case.startswith(name) for name in options.only):
            continue
        for dtype in options.dtypes:
            command = [sys.executable, os.path.abspath(__file__), "--one", case, dtype]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            line = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
            if not line:
                print(f"{case:20s} {dtype:8s} failed: {done.stderr.strip().splitlines()[-1:]}")
                continue
            ours = json.loads(line[0].removeprefix("RESULT "))
            results.append(ours)
            ratios = ""
            if (peer := peers.get((case, dtype))) is not None:
                ratios = f"{ours['cpu_median_s'] / peer['cpu_median_s']:11.3f}"
                ratios += f"{grown(ours) / grown(peer):11.2f}"
            print(
                f"{case:20s} {dtype:8s} {ours['cpu_median_s']:7.3f}  {ours['median_s']:7.3f}  "
                f"{ours['first_s']:7.2f}  {grown(ours):6.0f} {ratios}",
                flush=True,
            )
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"results": results}, file, indent=1)


if __name__ == "__main__":
    main()
