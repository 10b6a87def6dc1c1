"""Ensembles of small networks against what the machine can do: a roofline of ``lg.train``.

    python benchmarks/roofline.py                     # 10⁴ networks of some shapes, minutes
    python benchmarks/roofline.py --networks 1000

In the same process, per second of one processor, which other work on the machine changes little:
the bandwidth of copying an array that no cache holds, the arithmetic of a large product of
matrices, both in single precision, and the training of an ensemble. A step of one network takes 6
operations for each weight of a layer and training sample, 4 in the first layer, whose inputs have
no gradient, and 2 for each test sample; it has to read and to write each weight once. What takes
longer at the machine's best binds. The last column is the share of the best arithmetic that bare
products of matrices of these shapes reach, one after the other in one program: what is lost there
is lost in small products themselves, and the rest around them.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg

SHAPES = (  # hidden layers, inputs, width, training samples
    (1, 16, 32, 20), (1, 64, 64, 100), (2, 64, 64, 100), (2, 64, 128, 100), (1, 64, 512, 100),
)  # fmt: skip
STEPS = 50


def best(function, *args, repeat=5):
    """Best seconds of a few, compilation apart."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        jax.block_until_ready(function(*args))
        times.append(time.process_time() - begin)
    return min(times)


def bandwidth(megabytes=256):
    """Return bytes per second, read and written, of x ↦ 1.5 x."""
    x = jnp.ones(megabytes * 2**18, jnp.float32)
    return 2 * x.nbytes / best(jax.jit(lambda x: 1.5 * x), x)


def arithmetic(size=2048):
    """Return operations per second of a product of matrices, the best of XLA's and of NumPy's."""
    x = jnp.ones((size, size), jnp.float32)
    seconds = best(jax.jit(lambda x: x @ x), x)
    y = np.ones((size, size), np.float32)
    return 2 * size**3 / min(seconds, best(lambda y: y @ y, y))


def work(layers, inputs, width, samples, tests=1):
    """Return operations and bytes of a step of one network."""
    first, hidden, last = inputs * width, (layers - 1) * width**2, width
    operations = samples * (4 * first + 6 * (hidden + last)) + 2 * tests * (first + hidden + last)
    return operations, 2 * 4 * (first + hidden + last)


def trained(layers, inputs, width, samples, networks):
    """Return seconds of the training of all networks, without compiling."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(samples + 1, inputs)).astype(np.float32)
    y = np.sign(x[:, 0])
    data = lg.Dataset(x[:samples], y[:samples], x[samples:], y[samples:])
    net = lg.mlp(layers, "relu")
    run = lg.Run(net, lg.mean_field(), data, optimizer=lg.gd(0.1), steps=STEPS)
    options = {"width": width, "key": 0, "record": (), "progress": False}
    lg.train(run, seeds=networks, **options)  # compiles
    begin = time.process_time()
    lg.train(run, seeds=networks, **options)
    return time.process_time() - begin


def bare(layers, inputs, width, samples, repeat=2000):
    """Return operations per second of the products of a step alone."""
    draw = np.random.default_rng(0)
    sizes = [(inputs, width), *[(width, width)] * (layers - 1)]
    weights = [jnp.asarray(draw.normal(size=s), jnp.float32) / s[0] for s in sizes]
    x = jnp.asarray(draw.normal(size=(samples, inputs)), jnp.float32)

    def step(_, weights):
        h, inputs_of = x, []
        for w in weights:
            inputs_of.append(h)
            h = h @ w
        moved = []
        for k, (w, a) in enumerate(zip(weights[::-1], inputs_of[::-1], strict=True), 1):
            moved.append(w - 1e-6 * (a.T @ h))
            h = h if k == len(weights) else h @ w.T
        return moved[::-1]

    run = jax.jit(lambda weights: jax.lax.fori_loop(0, repeat, step, weights))
    each = sum((4 if k == 0 else 6) * samples * a * b for k, (a, b) in enumerate(sizes))
    return repeat * each / best(run, weights)


def main():
    """Print a table of shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=10_000)
    networks = parser.parse_args().networks
    rate, speed = bandwidth(), arithmetic()
    print(f"copying {rate / 1e9:.1f} GB/s, products of matrices {speed / 1e9:.0f} GFlop/s")
    print(
        "layers  inputs  width  samples  networks  seconds  GFlop/s  GB/s  binds       share  bare"
    )
    for shape in SHAPES:
        seconds = trained(*shape, networks)
        operations, moved = (STEPS * networks * each for each in work(*shape))
        bound = {"arithmetic": operations / speed, "bandwidth": moved / rate}
        binds = max(bound, key=lambda name: bound[name])
        print(
            f"{shape[0]:6d} {shape[1]:7d} {shape[2]:6d} {shape[3]:8d} {networks:9d} {seconds:8.1f} "
            f"{operations / seconds / 1e9:8.1f} {moved / seconds / 1e9:5.1f}  {binds:10s} "
            f"{bound[binds] / seconds:6.0%} {bare(*shape) / speed:5.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
