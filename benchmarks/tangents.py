"""Tangent kernels of functions and modules, against products with vectors and Jacobians.

Run as ``python benchmarks/tangents.py``, or with ``--torch`` for PyTorch modules; about a minute.
Processor time of the first call, with compilation, and of the best of three more; ratios are of the
same run. Products with vectors are the lines that anyone writes: a backward pass and a derivative
for each column.
"""

import argparse
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np

import largen as lg

DRAW = np.random.default_rng(0)


def weights(*shape):
    return (DRAW.normal(size=shape) / np.prod(shape[:-1]) ** 0.5).astype(np.float32)


def perceptron(p, x):
    return jax.nn.relu(x @ p["a"] + p["bias"]) @ p["b"]


def convolutions(p, x):
    h = x
    for name in ("a", "b", "c"):
        h = jax.lax.conv_general_dilated(
            h, p[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        h = jax.nn.relu(h)
    return h.mean((1, 2)) @ p["out"]


def transformer(p, x):
    for block in p["blocks"]:
        q, k, v = (jnp.einsum("btd,dhk->bthk", x, block[name]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5)
        x = x + jnp.einsum("bhts,bshk,hkd->btd", scores, v, block["o"])
        x = x + jax.nn.relu(x @ block["up"]) @ block["down"]
    return x.mean(1) @ p["out"]


def block(d=64, heads=4):
    names = {name: weights(d, heads, d // heads) for name in "qkv"}
    return {**names, "o": weights(heads, d // heads, d), "up": weights(d, 4 * d),
            "down": weights(4 * d, d)}  # fmt: skip


def cases():
    """Return names, functions, parameters and samples."""
    mlp = {"a": weights(784, 1024), "bias": np.zeros(1024, np.float32), "b": weights(1024, 10)}
    cnn = {"a": weights(3, 3, 3, 32), "b": weights(3, 3, 32, 64), "c": weights(3, 3, 64, 64),
           "out": weights(64, 10)}  # fmt: skip
    former = {"blocks": [block(), block()], "out": weights(64, 10)}
    yield "784-1024-10, 16 samples", perceptron, mlp, weights(16, 784)
    yield "784-1024-10, 64 samples", perceptron, mlp, weights(64, 784)
    yield "three convolutions, 16 samples", convolutions, cnn, weights(16, 16, 16, 3)
    yield "two transformer blocks, 16 samples", transformer, former, weights(16, 16, 64)


def products(f):
    """Return the kernel, column by column."""

    @jax.jit
    def kernel(p, x):
        out = jax.eval_shape(f, p, x)
        _, back = jax.vjp(lambda p: f(p, x), p)

        def column(v):
            return jax.jvp(lambda p: f(p, x), (p,), back(v))[1]

        return jax.lax.map(column, jnp.eye(out.size).reshape(-1, *out.shape), batch_size=16)

    return kernel


def seconds(call):
    """Return the processor time of the first call and the best of three more."""
    times = []
    for _ in range(4):
        begin = time.process_time()
        jax.block_until_ready(call())
        times.append(time.process_time() - begin)
    return times[0], min(times[1:])


def table(rows):
    print(f"{'':36} {'first':>18} {'later':>18} {'ratio':>14} {'peak MB':>8}")
    for name, ours, others in rows:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        ratios = "/".join(f"{b / a:.1f}" for a, b in zip(ours, others, strict=True))
        pairs = (f"{a:8.3f} {b:8.3f} " for a, b in zip(ours, others, strict=True))
        print(f"{name:36} {' '.join(pairs)} {ratios:>14} {peak:8.0f}", flush=True)


def in_jax():
    lg.networks.ntk_of_function(lambda w, x: x @ w, np.ones(3), np.eye(3))
    for name, f, params, x in cases():
        params, x = jax.device_put((params, x))
        ours = seconds(lambda f=f, p=params, x=x: lg.networks.ntk_of_function(f, p, x))
        kernel = products(f)
        yield name, ours, seconds(lambda k=kernel, p=params, x=x: k(p, x))


def in_torch():
    import torch
    from torch import nn
    from torch.func import functional_call, jacrev, vmap

    from largen.transfer.torch import ntk_of_module

    def jacobian(model, x):
        params = {name: p.detach() for name, p in model.named_parameters()}

        def of_sample(p, row):
            return functional_call(model, p, (row[None],))[0]

        rows = vmap(jacrev(of_sample), (None, 0))(params, x)
        parts = [torch.einsum("iak,jbk->ijab", *(r.flatten(2),) * 2) for r in rows.values()]
        return torch.stack(parts).sum(0)

    mlp = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10)).eval()
    cnn = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()  # fmt: skip
    with torch.no_grad():
        ntk_of_module(nn.Linear(2, 2), torch.ones(2, 2))
    for name, model, x in (
        ("784-1024-10, 16 samples", mlp, torch.randn(16, 784)),
        ("784-1024-10, 64 samples", mlp, torch.randn(64, 784)),
        ("three convolutions, 16 samples", cnn, torch.randn(16, 3, 16, 16)),
    ):
        ours = seconds(lambda m=model, x=x: ntk_of_module(m, x).sum().item())
        yield name, ours, seconds(lambda m=model, x=x: jacobian(m, x).sum().item())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", action="store_true", help="PyTorch modules, against Jacobians")
    table(in_torch() if parser.parse_args().torch else in_jax())
