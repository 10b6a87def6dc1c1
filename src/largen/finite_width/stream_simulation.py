"""The exact distribution of the kernel of networks with residual branches, without weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations import ActivationFunction
from largen.finite_width.batched_draws import cholesky, in_batches
from largen.finite_width.sized_network import Branch, HiddenLayer, SizedNetwork

_AT_ONCE = 2**21  # Gaussian numbers

# φ and width of every layer; those of a branch form a tuple of their own.
_Layers = tuple[tuple[tuple[ActivationFunction, int], ...] | tuple[ActivationFunction, int], ...]


def draw_streams(stream: SizedNetwork, x: np.ndarray, draws: int, key: Any) -> np.ndarray:
    """Draw S of the outputs, (draws, P, P), by h ← h + βN(0, S): n·P numbers a layer."""

    def named(layer: HiddenLayer) -> tuple[ActivationFunction, int]:
        return layer.phi, layer.width

    layers: Any = tuple(
        tuple(map(named, part.inner)) if isinstance(part, Branch) else named(part)
        for part in stream.parts
    )
    constants = [
        (part.square, [(layer.weight, layer.bias) for layer in part.inner])
        if isinstance(part, Branch)
        else (1.0, [(part.weight, part.bias)])
        for part in stream.parts
    ]
    return in_batches(_batch, layers, constants, stream, x, draws, key, _AT_ONCE)


def _batch(given: tuple[_Layers, int], key: Any, first: Any, constants: Any) -> Any:
    """Return the kernels of a batch of networks, (batch, P, P)."""
    (layers, batch), P = given, first.shape[0]
    keys = iter(jax.random.split(key, 1 + sum(len(its) for _, its in constants)))

    def neurons(S: Any, width: int) -> Any:
        noise = jax.random.normal(next(keys), (batch, width, P), first.dtype)
        return jnp.einsum("rna,rba->rnb", noise, cholesky(S))

    def behind(phi: Any, z: Any, weight: Any, bias: Any) -> Any:
        value = phi(z)
        return bias + weight / z.shape[1] * jnp.einsum("rna,rnb->rab", value, value)

    S = jnp.broadcast_to(first, (batch, P, P))
    h = None
    for part, (square, its) in zip(layers, constants, strict=True):
        branch: Any = part if isinstance(part[0], tuple) else (part,)
        if h is None:
            h = neurons(S, branch[0][1])
        z = h
        for number, ((phi, width), constant) in enumerate(zip(branch, its, strict=True)):
            z = z if number == 0 else neurons(S, width)
            S = behind(phi, z, *constant)
        # Behind an affine map of the whole stream all neurons are drawn again.
        h = h + jnp.sqrt(square) * neurons(S, h.shape[1]) if branch is part else None
    return S
