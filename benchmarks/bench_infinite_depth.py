"""Infinite depth beside a network of 16 blocks: processor seconds, as ratios in one run.

``python benchmarks/bench_infinite_depth.py`` solves the mean-field limit of a residual network
(tanh, 8 samples, 15 steps, outputs to 1 %) at 16 blocks, at infinite depth with branches L^(−1/2)
and L^(−1), and kernels of infinite depth beside those of 30 blocks. Each is solved twice: the
first call compiles.
"""

import math
import time

import numpy as np

import largen as lg

RTOL = 1e-2
SAMPLES, INPUTS, STEPS, RATE = 8, 10, 15, 0.3


def seconds(call):
    """Return processor seconds of a first and of a second call."""
    found, result = [], None
    for _ in range(2):
        start = time.process_time()
        result = call()
        found.append(time.process_time() - start)
    return found, result


def runs():
    rng = np.random.default_rng(0)
    data = lg.Dataset(rng.standard_normal((SAMPLES, INPUTS)), rng.standard_normal(SAMPLES))
    for name, blocks, param in (
        ("16 blocks, L^(-1/2)", 16, lg.depth_mup()),
        ("infinite depth, L^(-1/2)", math.inf, lg.depth_mup()),
        ("infinite depth, L^(-1)", math.inf, lg.complete_p()),
    ):
        net = lg.residual_mlp(blocks, "tanh")
        yield name, lg.Run(net, param, data, optimizer=lg.gd(RATE), steps=STEPS)


def main():
    print(f"{'':28} {'first':>8} {'again':>8} {'ratio':>8}")
    beside = None
    for name, run in runs():
        (first, again), limit = seconds(lambda run=run: lg.solve(run, rtol=RTOL, progress=False))
        assert limit is not None
        beside = beside or again
        error = np.sqrt(np.mean(limit.f_train_error**2) / np.mean(limit.f_train**2))
        print(f"{name:28} {first:8.1f} {again:8.2f} {again / beside:8.2f}   error {error:.1e}")
    x, param = np.random.default_rng(1).standard_normal((2000, 20)), lg.depth_mup()
    beside = None
    for name, blocks in (("kernel, 30 blocks, relu", 30), ("kernel, infinite depth", math.inf)):
        net = lg.residual_mlp(blocks, "relu", bias_std=0.3)
        (first, again), _ = seconds(lambda net=net: lg.kernel(net, x, param=param))
        beside = beside or again
        print(f"{name:28} {first:8.1f} {again:8.2f} {again / beside:8.2f}")


if __name__ == "__main__":
    main()
