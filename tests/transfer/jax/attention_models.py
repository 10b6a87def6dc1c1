"""Attentions in JAX whose scores no softmax reads, with heads that grow in size."""

import jax
import jax.numpy as jnp
import numpy as np

SETS = np.random.default_rng(1).normal(size=(4, 12, 6)).astype("float32")
HEADS = 2


def init(key, width):
    """Matrices that are applied as x @ W, with entries of variance 1/fan-in."""
    shapes = dict.fromkeys("qkvo", (width, width)) | {"i": (6, width), "out": (width, 3)}
    keys = jax.random.split(key, len(shapes) + 1)
    found = {
        name: jax.random.normal(k, shape) / shape[0] ** 0.5
        for (name, shape), k in zip(shapes.items(), keys, strict=False)
    }
    vectors = 0.1 * jax.random.normal(keys[-1], (2, width // HEADS))
    return {**found, "lambda_q": vectors[0], "lambda_k": vectors[1]}


def heads(p, x):
    h = x @ p["i"]
    h = h / jnp.sqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-6)
    q, k, v = ((h @ p[n]).reshape(*x.shape[:-1], HEADS, -1) for n in "qkv")
    return h, q, k, v


def of_scores(weigh):
    """A forward pass with attention by a function of q·k/√d and v."""

    def apply(p, x):
        h, q, k, v = heads(p, x)
        z = jnp.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
        y = weigh(z, v.transpose(0, 2, 1, 3))
        return (h + y.transpose(0, 2, 1, 3).reshape(h.shape) @ p["o"]).mean(1) @ p["out"]

    return apply


def by_hand(z, v):
    e = jnp.exp(z)
    return e / e.sum(-1, keepdims=True) @ v


def sparsemax(z, v):
    ordered = -jnp.sort(-z, axis=-1)
    number = jnp.arange(1, z.shape[-1] + 1)
    sums = jnp.cumsum(ordered, -1) - 1
    size = (number * ordered > sums).sum(-1, keepdims=True)
    return jax.nn.relu(z - jnp.take_along_axis(sums, size - 1, -1) / size) @ v


def retention(z, v):
    t = jnp.arange(z.shape[-1])
    y = jnp.tril(z * 0.9 ** (t[:, None] - t)) @ v
    return y / jnp.sqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-5)


def linear(p, x):
    """Linear attention with the features elu + 1, normalised by hand."""
    h, q, k, v = heads(p, x)
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    memory = jnp.einsum("bshd,bshm->bhdm", k, v)
    size = jnp.einsum("bthd,bhd->bth", q, k.sum(1)) + 1e-6
    y = jnp.einsum("bthd,bhdm->bthm", q, memory) / size[..., None]
    return (h + y.reshape(h.shape) @ p["o"]).mean(1) @ p["out"]


def memory(p, x):
    """The matrix memory of mLSTM without gates, step by step."""
    h, q, k, v = heads(p, x)
    k, total, sums, outputs = k / k.shape[-1] ** 0.5, 0.0, 0.0, []
    for t in range(4):
        total = 0.9 * total + v[:, t, :, :, None] * k[:, t, :, None, :]
        sums = 0.9 * sums + k[:, t]
        size = jnp.maximum(jnp.abs((sums * q[:, t]).sum(-1, keepdims=True)), 1.0)
        outputs.append(jnp.einsum("bhmd,bhd->bhm", total, q[:, t]) / size)
    y = jnp.stack(outputs, 1).reshape(len(x), 4, -1)
    return (h[:, :4] + y @ p["o"]).mean(1) @ p["out"]


def differential(p, x):
    """Differential attention: λ is a number made of two vectors."""

    def weigh(z, v):
        factor = jnp.exp((p["lambda_q"] * p["lambda_k"]).sum()) - 0.2
        return (jax.nn.softmax(z) - factor * jax.nn.softmax(0.5 * z)) @ v

    return of_scores(weigh)(p, x)


ATTENTIONS = {
    "sigmoid": of_scores(lambda z, v: jax.nn.sigmoid(z - 2.0) @ v),
    "relu": of_scores(lambda z, v: jax.nn.relu(z) / z.shape[-1] @ v),
    "by hand": of_scores(by_hand),
    "sparsemax": of_scores(sparsemax),
    "retention": of_scores(retention),
    "memory": memory,
}
