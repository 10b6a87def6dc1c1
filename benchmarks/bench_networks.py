"""Finite networks: seeds one after the other against all at once, and the NTK against Jacobians.

Run as ``python benchmarks/bench_networks.py``; about a minute. Ratios are of the same run.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg
from largen.networks.chunks import at_once
from largen.networks.plan import plan_of

STEPS = 20


def seconds(function, *args, repeat=3):
    """Best time of a few, compilation apart."""
    begin = time.perf_counter()
    jax.block_until_ready(function(*args))
    first = time.perf_counter() - begin
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - begin)
    return min(times), first - min(times)


def training(hidden_layers, sizes):
    """Milliseconds per step of an ensemble on 100 training and 100 test samples of 64 inputs."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 64)).astype(np.float32)
    y = np.sign(draw.normal(size=200)).astype(np.float32)
    data = lg.Dataset(x[:100], y[:100], x[100:], y[100:])
    net = lg.mlp(hidden_layers, "tanh")
    run = lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(0.5), steps=STEPS)
    for width, seeds in sizes:
        plan, numbers = plan_of(run, width, (), ())
        keys = jax.random.split(jax.random.key(0), seeds)
        mapped, compiling = seconds(at_once, plan, True, numbers, keys)
        batched, _ = seconds(at_once, plan, False, numbers, keys)
        flops = STEPS * seeds * width * (400 * 64 + (hidden_layers - 1) * 800 * width + 200 * 64)
        print(
            f"{hidden_layers:6d} {width:6d} {seeds:6d} {1e3 * mapped / STEPS:9.2f} "
            f"{1e3 * batched / STEPS:9.2f} {batched / mapped:7.2f} {flops / mapped / 1e9:8.0f} "
            f"{compiling:9.2f}",
            flush=True,
        )


def tangent_kernel(width=512, inputs=784, samples=100):
    """Milliseconds of the NTK of three hidden layers."""
    net = lg.mlp(3, "relu")
    network = lg.finite_network(net, lg.ntk(), width=width, inputs=inputs)
    x = np.random.default_rng(0).normal(size=(samples, inputs)).astype(np.float32)
    params, x = jax.device_put((network.init(0), x))

    @jax.jit
    def from_jacobian(params):
        jacobian = jax.jacrev(lambda p: network.outputs_of(p, x))(params)
        rows = [leaf.reshape(samples, -1) for leaf in jax.tree.leaves(jacobian)]
        return sum(jnp.matmul(row, row.T) for row in rows)

    structured, _ = seconds(lambda: lg.empirical_ntk(net, params, x), repeat=20)
    dense, _ = seconds(from_jacobian, params)
    print(
        f"\nNTK, 3 hidden layers, N={width}, D={inputs}, {samples} samples: "
        f"{1e3 * structured:.1f} ms; Jacobian {1e3 * dense:.0f} ms; ratio {dense / structured:.0f}"
    )


if __name__ == "__main__":
    print("layers  width  seeds  one by one   batched  ratio  GFlop/s  compile s")
    training(1, ((32, 64), (256, 32), (1024, 16)))
    training(2, ((32, 64), (64, 64), (128, 32), (256, 16), (512, 8), (1024, 4)))
    tangent_kernel()
