"""A residual network of infinite depth whose neurons are deterministic, and sets of its neurons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from largen.arrays import precision as in_precision
from largen.runs import Loss
from largen.theories.chains.constants import MapConstants
from largen.theories.chains.normalized import LayerActivation
from largen.theories.mean_field.deep.matrices.fresh_vectors import initial, orthonormal


class NeuronNetwork(NamedTuple):
    """A residual network of infinite depth: blocks of one matrix, α > ½, or of several, α = 1."""

    # phi, phi_out: φ in front of each map of a block, and in front of the read-out.
    phi: tuple[LayerActivation, ...]
    phi_out: LayerActivation
    # fields, field_rate: F of all samples, training samples first, h(0) = F a, and ρ of its
    # directions.
    fields: Float[np.ndarray, "sample direction"]
    field_rate: Float[np.ndarray, " direction"]
    # maps, read_out: the maps of a block, with rates ρ that do not depend on L, L^(1−2α) times
    # those of a finite network; and the map of the read-out.
    maps: Sequence[MapConstants]
    read_out: MapConstants
    gamma: float  # γ₀
    output_shape: tuple[int, ...] = ()  # shape of a sample's output

    @property
    def outputs(self) -> int:
        """C."""
        return int(np.prod(self.output_shape, dtype=int))


class Training(NamedTuple):
    """Training: loss, y, η₀ of each step, β, λ₀, and the samples of each step or None."""

    loss: Loss
    targets: Any
    rates: Float[np.ndarray, " step"]
    momentum: float = 0.0
    decay: float = 0.0
    batches: Any = None

    @property
    def batch(self) -> int:
        """The number of samples of a step."""
        return len(self.targets) if self.batches is None else self.batches.shape[1]


def by_size(network: NeuronNetwork) -> NeuronNetwork:
    """Return the network with its directions rotated to the samples' principal ones."""
    if len(set(network.field_rate.tolist())) != 1:
        return network
    u, s, _ = np.linalg.svd(network.fields, full_matrices=False)
    keep = s > 1e-12 * max(s[0], np.finfo(float).tiny)
    keep[0] = True
    return network._replace(fields=(u * s)[:, keep], field_rate=network.field_rate[: keep.sum()])


def neurons(
    network: NeuronNetwork, count: int, rng: np.random.Generator, dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return a and w of quasi-random neurons, with exact second moments and f = 0."""
    outputs, directions = network.outputs, network.fields.shape[1]
    rows = initial(outputs + directions, count, "variance_reduced", rng, np.float64)
    # The first coordinates of the sequence are the most uniform.
    order = np.argsort(-np.sum(network.fields**2, 0), kind="stable")
    readout, fields = rows[:outputs], rows[outputs:][np.argsort(order)]
    fields = orthonormal(fields, fields[:0])
    with in_precision(fields):
        features = np.asarray(network.phi_out(jnp.asarray(network.fields @ fields)))
    readout = orthonormal(readout, np.concatenate([fields, features]))
    return fields.astype(dtype), readout.astype(dtype)
