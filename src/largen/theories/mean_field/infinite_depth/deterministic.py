"""The limit of infinite width and depth for branches L^(−α), α > ½, of one matrix each.

Averages over neurons are means over quasi-random neurons; several independent sets of neurons give
the error. The equations at the nodes of depth are in ``neuron_fields``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from largen.arrays import precision as in_precision
from largen.theories.chains.normalized import elementwise
from largen.theories.mean_field.deep.matrices.by_directions import TOGETHER, Precision, Side
from largen.theories.mean_field.deep.matrices.row_buffers import capacity_for
from largen.theories.mean_field.deep.sweep.smoothness import smooth
from largen.theories.mean_field.engine.statistics import mean_and_error
from largen.theories.mean_field.infinite_depth.depth_grid import gauss
from largen.theories.mean_field.infinite_depth.estimates import (
    DepthEstimate,
    DepthKernels,
    Found,
    beyond_chance,
    mean_kernels,
    source_of,
)
from largen.theories.mean_field.infinite_depth.neuron_fields import (
    Moving,
    NeuronConstants,
    NeuronModel,
    NeuronState,
    backward,
    descend,
    forward,
    has_room,
)
from largen.theories.mean_field.infinite_depth.neuron_network import (
    NeuronNetwork,
    Training,
    by_size,
    neurons,
)
from largen.theories.mean_field.infinite_depth.training_loop import (
    Loop,
    run_through,
    tangent_kernel,
    train_until,
)

FIRST_ROWS = 256
PAIRS = 4  # sets that are solved on both grids where φ' jumps


def deterministic_limit(
    # network, training, record_at: the network, its training, and times at which kernels are
    # recorded.
    network: NeuronNetwork,
    training: Training,
    record_at: Sequence[int] = (),
    *,
    particles: int = 8192,
    replicates: int = 4,
    # nodes, coarse: number of nodes of depth, and that of the grid beside which the error of depth
    # is found, by default one less. Where φ' jumps, neurons cross the jump between nodes, each with
    # an error of its own that is part of the sampling error: there a few sets are solved on both
    # grids, otherwise one.
    nodes: int = 3,
    coarse: int | None = None,
    # Relative size of the part of features and gradients outside their bases that is neglected.
    tolerance: float = 1e-3,
    dtype: Any = np.float32,  # precision of the neurons
    key: int = 0,  # random key of the sets of neurons
    tell: Callable[[float], Any] = lambda done: None,  # called with the finished fraction
    # Solutions by set and number of nodes, of calls that differ in replicates, nodes and coarse
    # only; those that are lacking are added.
    known: dict[tuple[int, int], Found] | None = None,
) -> DepthEstimate:
    """Solve with several independent sets of neurons."""
    network, known = by_size(network), {} if known is None else known
    coarse = nodes - 1 if coarse is None else coarse
    pairs = 1 if analytic(network) else min(PAIRS, replicates)
    wanted = [(i, n) for i in range(replicates) for n in (coarse, nodes) if n == nodes or i < pairs]
    for done, (i, n) in enumerate(wanted):
        tell(done / len(wanted))
        if (i, n) not in known:
            start = neurons(network, particles, source_of(key, i), dtype)
            known[i, n] = solve(network, training, record_at, start, n, nodes, tolerance)
    tell(1.0)
    found = [known[i, nodes] for i in range(replicates)]
    apart = [known[i, coarse].outputs - known[i, nodes].outputs for i in range(pairs)]
    change, by_chance = mean_and_error(np.stack(apart))
    depth = np.abs(change) if pairs == 1 else beyond_chance(change, by_chance)
    mean, spread = mean_and_error(np.stack([one.outputs for one in found]))
    kernels, error = mean_kernels(found)
    tau = np.concatenate([[0.0], gauss(nodes).nodes, [1.0]])
    ranks = np.max([one.ranks for one in found], axis=0)
    return DepthEstimate(mean, np.hypot(spread, depth), depth, kernels, error, tau, ranks)


def analytic(network: NeuronNetwork) -> bool:
    """Whether neurons have no jump of φ' that they could cross between nodes of depth."""
    return smooth(elementwise(network.phi)) and smooth(elementwise(network.phi_out))


def bytes_held(
    network: NeuronNetwork, training: Training, particles: int, nodes: int, dtype: Any
) -> int:
    """Return the bytes that one set of neurons takes, unless its bases have to grow."""
    samples, trained = len(network.fields), len(training.targets)
    rows = min((len(training.rates) + 1) * trained + TOGETHER, FIRST_ROWS)
    each = 2 * capacity_for(rows) + 6 * samples + 6 * trained
    return int(np.dtype(dtype).itemsize * nodes * each * particles)


def solve(
    network: NeuronNetwork,
    training: Training,
    record_at: Sequence[int],
    start: tuple[np.ndarray, np.ndarray],
    nodes: int,
    padded: int,
    tolerance: float,
) -> Found:
    """Train one set of neurons.

    Of the ``padded`` nodes, ``nodes`` are used: one program serves several grids of depth.
    """
    fields, _ = start
    dtype, times = fields.dtype, len(training.rates) + 1
    model = NeuronModel(network.phi, network.phi_out, training.loss, network.output_shape)
    with in_precision(fields):
        trained = len(training.targets)
        batch = trained if training.batches is None else training.batches.shape[1]
        rows = min(times * batch + TOGETHER, FIRST_ROWS)
        state = _begin(network, trained, start, padded, capacity_for(rows), times)
        constants = _constants(network, training, nodes, padded, tolerance, len(fields.T), dtype)
        loop = Loop(
            advance=lambda state, stop: _advance(model, state, constants, stop),
            has_room=lambda state: has_room(state, batch),
            grown=_grown,
            look=lambda state: _look(model, state, constants),
        )
        state, found = run_through(loop, state, record_at, times, training.targets)
        ranks = np.stack([np.asarray(s.rank) for s in (state.features, state.gradients)])
    return found._replace(ranks=ranks)


def _begin(
    network: NeuronNetwork, trained: int, start, nodes: int, capacity: int, times: int
) -> NeuronState:
    fields, readout = start
    dtype, count = fields.dtype, fields.shape[1]

    def zeros(*shape: int) -> Array:
        return jnp.zeros(shape, dtype)

    def side() -> Side:
        empty = zeros(nodes, capacity, count), zeros(nodes, capacity, 0)
        return Side(*empty, jnp.zeros(nodes, jnp.int32))

    params = Moving(
        jnp.asarray(fields),
        jnp.asarray(readout),
        zeros(nodes, count),
        zeros(network.outputs),
        zeros(nodes, capacity, capacity),
    )
    samples = len(network.fields)
    outputs = jnp.full((times, samples, network.outputs), jnp.nan, dtype)
    velocity = jax.tree.map(jnp.zeros_like, params)
    moved, pulled = zeros(2, nodes, samples, count), zeros(2, nodes, trained, count)
    start = jnp.zeros((), jnp.int32)
    return NeuronState(start, params, velocity, side(), side(), moved, pulled, outputs)


def _constants(
    network: NeuronNetwork,
    training: Training,
    nodes: int,
    padded: int,
    tolerance: float,
    count: int,
    dtype: Any,
) -> NeuronConstants:
    def real(value) -> Array:
        return jnp.asarray(value, dtype)

    grid, y = gauss(nodes), np.asarray(training.targets)
    more = padded - nodes
    block, out, decay = network.block, network.read_out, training.decay
    rates = Moving(
        real(network.field_rate)[:, None],
        real(out.rate),
        real(block.bias_rate),
        real(out.bias_rate * out.bias_std**2),
        real(block.rate),
    )
    return NeuronConstants(
        fields=real(network.fields),
        field_rate=real(network.field_rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        batches=None if training.batches is None else jnp.asarray(training.batches),
        rise=real(np.pad(grid.rise, ((0, more), (0, more)))),
        whole=real(np.pad(grid.whole, (0, more))),
        block=real([block.rate * block.std**2, block.bias_rate * block.bias_std**2]),
        readout=real([out.std, out.rate, out.bias_rate * out.bias_std**2]),
        gamma=real(network.gamma),
        momentum=real(training.momentum),
        rates=real(np.append(training.rates, 0.0)),
        decay=jax.tree.map(lambda rate: decay * jnp.sign(rate), rates),
        precision=Precision(real(1 / count), real(tolerance)),
        close=real(20 * np.finfo(dtype).eps),
    )


def _grown(state: NeuronState) -> NeuronState:
    """Return the state with twice the room for directions."""
    capacity = state.params.change.shape[1]

    def rows(x: Array, axes: tuple[int, ...]) -> Array:
        return jnp.pad(x, [(0, capacity if axis in axes else 0) for axis in range(x.ndim)])

    def larger(side: Side) -> Side:
        return Side(rows(side.basis, (1,)), rows(side.images, (1,)), side.rank)

    params, velocity = (
        part._replace(change=rows(part.change, (1, 2))) for part in (state.params, state.velocity)
    )
    features, gradients = larger(state.features), larger(state.gradients)
    return state._replace(params=params, velocity=velocity, features=features, gradients=gradients)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(
    model: NeuronModel, state: NeuronState, constants: NeuronConstants, stop
) -> NeuronState:
    """Train up to a step, or until a basis is full or the outputs have diverged."""
    batch = len(constants.targets) if constants.batches is None else constants.batches.shape[1]
    return train_until(
        lambda state: descend(model, state, constants),
        lambda state: has_room(state, batch),
        state,
        constants.targets,
        stop,
    )


@partial(jax.jit, static_argnums=0)
def _look(model: NeuronModel, state: NeuronState, constants: NeuronConstants) -> DepthKernels:
    """Return kernels between all samples."""
    ahead, weight = forward(model, state, constants), constants.precision.weight
    h = jnp.concatenate([ahead.first[None], ahead.h, ahead.last[None]])
    x = model.phi(h)
    features = weight * jnp.einsum("dkn,dln->dkl", x, x)

    def pulled(row):
        z = jnp.broadcast_to(constants.readout[0] * row, ahead.last.shape)
        back = backward(model, state, constants, ahead.h, ahead.last, z)
        return jnp.concatenate([back.first[None], back.g, back.last[None]])

    g = lax.map(pulled, state.params.readout)
    gradients = weight * jnp.einsum("adkn,bdln->dklab", g, g)
    moved = constants.block[0] * features[1:-1] + constants.block[1]
    body = jnp.einsum("m,mkl,mklab->klab", constants.whole, moved, gradients[1:-1])
    ntk = tangent_kernel(model, constants, body, gradients[0], model.phi_out(ahead.last))
    return DepthKernels(features, gradients, ntk)
