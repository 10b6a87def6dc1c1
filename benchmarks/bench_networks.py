"""Finite networks: seeds one after the other against all at once, and the NTK against Jacobians.

Run as ``python benchmarks/bench_networks.py``; about a minute. With ``--torch``, a thousand small
networks instead, against plain PyTorch that trains one after the other. Ratios are of the same run.
"""

import argparse
import itertools
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
        mapped, compiling = seconds(at_once, plan, numbers, keys)
        batched, _ = seconds(at_once, plan, numbers, keys[None])
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
    network = lg.networks.finite_network(net, lg.ntk(), width=width, inputs=inputs)
    x = np.random.default_rng(0).normal(size=(samples, inputs)).astype(np.float32)
    params, x = jax.device_put((network.init(0), x))

    @jax.jit
    def from_jacobian(params):
        jacobian = jax.jacrev(lambda p: network.outputs_of(p, x))(params)
        rows = [leaf.reshape(samples, -1) for leaf in jax.tree.leaves(jacobian)]
        return sum(jnp.matmul(row, row.T) for row in rows)

    structured, _ = seconds(lambda: lg.networks.empirical_ntk(net, params, x), repeat=20)
    dense, _ = seconds(from_jacobian, params)
    print(
        f"\nNTK, 3 hidden layers, N={width}, D={inputs}, {samples} samples: "
        f"{1e3 * structured:.1f} ms; Jacobian {1e3 * dense:.0f} ms; ratio {dense / structured:.0f}"
    )


def seconds_of_both_clocks(function):
    """Return wall-clock and processor time of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu])


def beside_torch(networks, measured, steps=50, inputs=64, width=32, samples=100):
    """Gradient descent of MLPs with all samples: by lg.train, and the usual loop of PyTorch.

    PyTorch trains a few of the networks only, on one thread, and its time is scaled. lg.train may
    use more threads, so that the ratio of processor time is the one to read.
    """
    import torch

    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(samples, inputs)).astype(np.float32)
    y = np.sign(x[:, 0])
    print(
        f"\n{networks} networks of width {width}, {inputs} inputs, {samples} samples, {steps} steps"
    )
    print(f"of PyTorch {measured} are trained, and their time is scaled")
    print("layers  lg.train s  PyTorch s  ratio  ratio of processor time  compiling s")
    for layers in (1, 2):
        run = lg.Run(
            lg.mlp(layers, "relu"),
            lg.mean_field(),
            lg.Dataset(x, y),
            optimizer=lg.gd(0.1),
            steps=steps,
        )

        def together(seeds, run=run):
            return lg.train(run, width=width, seeds=seeds, key=0, record=(), progress=False)

        def one_by_one(count, layers=layers):
            images, labels = torch.as_tensor(x), torch.as_tensor(y)[:, None]
            for _ in range(count):
                sizes = [inputs] + [width] * layers
                hidden = [
                    part
                    for a, b in itertools.pairwise(sizes)
                    for part in (torch.nn.Linear(a, b), torch.nn.ReLU())
                ]
                model = torch.nn.Sequential(*hidden, torch.nn.Linear(width, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for _ in range(steps):
                    optimizer.zero_grad()
                    torch.nn.functional.mse_loss(model(images), labels).backward()
                    optimizer.step()

        first = seconds_of_both_clocks(lambda: together(networks))
        ours = seconds_of_both_clocks(lambda: together(networks))
        one_by_one(2)
        theirs = seconds_of_both_clocks(lambda: one_by_one(measured)) * networks / measured
        ratio = theirs / ours
        print(
            f"{layers:6d} {ours[0]:11.2f} {theirs[0]:10.1f} {ratio[0]:6.1f} {ratio[1]:24.1f} "
            f"{first[1] - ours[1]:12.1f}",
            flush=True,
        )


def main():
    """Print tables of milliseconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true", help="only beside PyTorch")
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--measured", type=int, default=50, help="networks that PyTorch trains")
    given = parser.parse_args()
    if given.torch:
        beside_torch(given.networks, given.measured)
        return
    print("layers  width  seeds  one by one   batched  ratio  GFlop/s  compile s")
    training(1, ((32, 64), (256, 32), (1024, 16)))
    training(2, ((32, 64), (64, 64), (128, 32), (256, 16), (512, 8), (1024, 4)))
    tangent_kernel()


if __name__ == "__main__":
    main()
