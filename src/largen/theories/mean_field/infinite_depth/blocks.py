"""The limit of infinite width and depth at α = 1 for blocks of several matrices.

Averages are over neurons of the stream, and over neurons of the blocks at each node of depth.
Independent sets of neurons give the error. The equations are in ``block_fields``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from largen.arrays import precision as in_precision
from largen.errors import NumericalFailure
from largen.theories.chains.normalized import LayerActivation
from largen.theories.mean_field.deep.matrices.by_directions import Matrices, Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import initial, orthonormal
from largen.theories.mean_field.deep.matrices.row_buffers import capacity_for
from largen.theories.mean_field.deep.sweep.state import fill_side
from largen.theories.mean_field.deep.sweep.variance_reduction import (
    new_directions,
    pull_back_at,
    values_at,
)
from largen.theories.mean_field.engine.statistics import mean_and_error
from largen.theories.mean_field.infinite_depth.block_fields import (
    BlockConstants,
    BlockModel,
    BlockState,
    Moving,
    backward,
    descend,
    forward,
    has_room,
    room_for,
)
from largen.theories.mean_field.infinite_depth.depth_grid import gauss
from largen.theories.mean_field.infinite_depth.estimates import (
    DepthEstimate,
    DepthKernels,
    Found,
    beyond_chance,
    mean_kernels,
    source_of,
)
from largen.theories.mean_field.infinite_depth.neuron_network import (
    NeuronNetwork,
    Training,
    by_size,
    neurons,
)
from largen.theories.mean_field.infinite_depth.time_filters import MapConstants
from largen.theories.mean_field.infinite_depth.training_loop import (
    Loop,
    run_through,
    tangent_kernel,
    train_until,
)


class BlockNetwork(NamedTuple):
    """A residual network of infinite depth whose blocks have several matrices, α = 1."""

    # Read-in, read-out, and φ in front of the first map. Its block is not used.
    stream: NeuronNetwork
    # phi, maps: φ in front of each map of a block, and the maps, with rates ρ that do not depend on
    # L: 1/L times those of a finite network.
    phi: tuple[LayerActivation, ...]
    maps: tuple[MapConstants, ...]


class Start(NamedTuple):
    """Neurons at initialisation."""

    fields: np.ndarray
    readout: np.ndarray
    # inputs, outputs: directions and images of each matrix.
    inputs: list[tuple[np.ndarray, np.ndarray]]
    outputs: list[tuple[np.ndarray, np.ndarray]]
    biases: np.ndarray  # b of each matrix
    # Fresh Gaussian vectors of the layer behind each matrix; later images are orthogonal to them.
    anchors: np.ndarray


def blocks_limit(
    # network, training, record_at: the network, its training, and times at which kernels are
    # recorded.
    network: BlockNetwork,
    training: Training,
    record_at: Sequence[int] = (),
    *,
    # particles, replicates: number of neurons in a set, for the stream and for each layer of the
    # blocks at a node; and number of sets.
    particles: int = 8192,
    replicates: int = 4,
    # nodes, coarse: number of nodes of depth, and that of the grid beside which the error of depth
    # is found, by default one less. Neurons of blocks are drawn anew at each node, so that two
    # grids differ by sampling errors, too, which are subtracted.
    nodes: int = 3,
    coarse: int | None = None,
    # Relative size of the part of features and gradients outside their bases that is neglected.
    tolerance: float = 1e-2,
    dtype: Any = np.float32,  # precision of the neurons
    key: int = 0,  # random key of the sets of neurons
    tell: Callable[[float], Any] = lambda done: None,  # called with the finished fraction
    # Solutions by set and number of nodes, of calls that differ in replicates, nodes and coarse
    # only; those that are lacking are added.
    known: dict[tuple[int, int], Found] | None = None,
) -> DepthEstimate:
    """Solve with several independent sets of neurons."""
    network = network._replace(stream=by_size(network.stream))
    known, coarse = {} if known is None else known, nodes - 1 if coarse is None else coarse
    wanted = [(i, n) for n in (nodes, coarse) for i in range(replicates)]
    for done, (i, n) in enumerate(wanted):
        tell(done / len(wanted))
        if (i, n) not in known:
            rng = source_of(key, i)
            start = begin(network, training, particles, n, tolerance, rng, dtype)
            random = jax.random.key(int(rng.integers(2**31)))
            known[i, n] = solve(network, training, record_at, start, n, tolerance, random)
    tell(1.0)
    found = [known[i, nodes] for i in range(replicates)]
    mean, error = mean_and_error(np.stack([one.outputs for one in found]))
    rough, its_error = mean_and_error(
        np.stack([known[i, coarse].outputs for i in range(replicates)])
    )
    depth = beyond_chance(rough - mean, np.hypot(error, its_error))
    kernels, spread = mean_kernels(found)
    tau = np.concatenate([[0.0], gauss(nodes).nodes, [1.0]])
    ranks = np.max([one.ranks for one in found], axis=0)
    return DepthEstimate(mean, np.hypot(error, depth), depth, kernels, spread, tau, ranks)


def begin(
    network: BlockNetwork,
    training: Training,
    count: int,
    nodes: int,
    tolerance: float,
    rng: np.random.Generator,
    dtype: Any,
) -> Start:
    """Draw neurons, with images that have their exact second moments at initialisation."""
    stream, precision = network.stream, Precision(1 / count, tolerance)
    fields, readout = neurons(stream, count, rng, dtype)

    h = stream.fields.astype(dtype) @ fields
    none, trained, last = h[:0], len(training.targets), len(network.maps) - 1
    phi_last = network.phi[last]
    # Directions of all gradients on training samples, and their images in the last layer.
    rows = stream.read_out.std * readout
    g = np.concatenate([pull_back_at(stream.phi_out, h[:trained], row) for row in rows])
    seen = new_directions(g, precision)[0] if last and 8 * len(g) <= count else none
    inputs, outputs, biases, anchors = [], [], [], []
    for _ in range(nodes):
        x, answers = h, none
        for k, (phi, map_) in enumerate(zip(network.phi, network.maps, strict=True)):
            basis, c, _ = new_directions(values_at(phi, x), precision)
            images, bias = np.zeros_like(basis), np.zeros_like(h[:1])
            outputs.append((seen, answers) if k == last and len(seen) else (none, none))
            if k == last:
                anchors.append(none)
            else:
                size = len(basis) + 1
                rows = initial(size + len(seen), count, "variance_reduced", rng, dtype)
                known = orthonormal(rows[:size], none)
                images, bias = known[1:], known[:1]
                x = map_.std * (c.T @ images) + map_.bias_std * bias
                if k + 1 == last and len(seen):
                    avoid = np.concatenate([known, values_at(phi_last, x)])
                    # Then responses are 0 at initialisation, if there are enough neurons.
                    turned = [pull_back_at(phi_last, x[:trained], row) for row in known]
                    turned = np.concatenate(turned)
                    if 4 * len(turned) <= count:
                        avoid = np.concatenate([avoid, turned])
                    answers = orthonormal(rows[size:], avoid.astype(np.float64)).astype(dtype)
                anchors.append(np.concatenate([known, answers]))
            inputs.append((basis, images))
            biases.append(bias)
    most = max(len(rows) for rows in anchors)
    anchors = [np.pad(rows, ((0, most - len(rows)), (0, 0))) for rows in anchors]
    return Start(fields, readout, inputs, outputs, np.concatenate(biases), np.stack(anchors))


def solve(
    network: BlockNetwork,
    training: Training,
    record_at: Sequence[int],
    start: Start,
    nodes: int,
    tolerance: float,
    key: Any,
) -> Found:
    """Train one set of neurons."""
    stream, times = network.stream, len(training.rates) + 1
    model = BlockModel(network.phi, stream.phi_out, training.loss, stream.output_shape, nodes)
    trained, columns = len(training.targets), len(stream.fields)
    batch = trained if training.batches is None else training.batches.shape[1]
    with in_precision(start.fields):
        state = _begin(network, training, start, nodes, (columns, batch), times, key)
        constants = _constants(network, training, start, nodes, tolerance)
        loop = Loop(
            advance=lambda state, stop: _check_room(_advance(model, state, constants, stop)),
            has_room=lambda state: has_room(state, columns, batch),
            grown=_grown,
            look=lambda state: _look(model, state, constants),
        )
        state, found = run_through(loop, state, record_at, times, training.targets)
        ranks = state.matrices.ranks.T
    return found._replace(ranks=ranks)


def _check_room(state: BlockState) -> BlockState:
    """Return the state; raises if a step has added more directions than there was room for."""
    for side in (state.matrices.inputs, state.matrices.outputs):
        if int(side.rank.max()) > side.basis.shape[1]:
            raise NumericalFailure(
                "mean field, infinite depth: a single step needs products of a block's matrices "
                f"with {int(side.rank.max())} directions, more than arrays have room for. Lower "
                "the rate, or take method='sweep'."
            )
    return state


def _begin(network, training, start: Start, nodes: int, asked, times: int, key) -> BlockState:
    stream, (_, count), dtype = network.stream, start.fields.shape, start.fields.dtype
    matrices = nodes * len(network.maps)
    samples, trained = len(stream.fields), len(training.targets)

    def zeros(*shape: int) -> Array:
        return jnp.zeros(shape, dtype)

    # Most runs of smooth activations need at most 10 directions for each column.
    capacities = [capacity_for(min(10, times) * size + room_for(size)) for size in asked]
    inputs, outputs = (
        fill_side(parts, capacity, (count, count), dtype)
        for parts, capacity in zip((start.inputs, start.outputs), capacities, strict=True)
    )
    change = zeros(matrices, capacities[1], capacities[0])
    params = Moving(
        jnp.asarray(start.fields),
        jnp.asarray(start.readout),
        jnp.asarray(start.biases),
        zeros(stream.outputs),
        jnp.ones(matrices, dtype),
    )
    return BlockState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        velocity=jax.tree.map(jnp.zeros_like, params),
        matrices=Matrices(inputs, outputs, change, jnp.zeros_like(change)),
        key=key,
        moved=zeros(2, nodes, samples, count),
        pulled=zeros(2, nodes, trained, count),
        outputs=jnp.full((times, samples, stream.outputs), jnp.nan, dtype),
    )


def _constants(network, training, start: Start, nodes: int, tolerance: float) -> BlockConstants:
    stream, dtype = network.stream, start.fields.dtype

    def real(value) -> Array:
        return jnp.asarray(value, dtype)

    grid, y, out = gauss(nodes), np.asarray(training.targets), stream.read_out
    std, rate, bias_std, bias_rate = (real(column) for column in zip(*network.maps, strict=True))
    rates = Moving(
        real(stream.field_rate)[:, None],
        real(out.rate),
        jnp.tile(bias_rate, nodes)[:, None],
        real(out.bias_rate * out.bias_std**2),
        jnp.tile(rate, nodes),
    )
    return BlockConstants(
        fields=real(stream.fields),
        field_rate=real(stream.field_rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        batches=None if training.batches is None else jnp.asarray(training.batches),
        rise=real(grid.rise),
        whole=real(grid.whole),
        anchors=real(start.anchors),
        std=std,
        rate=rate * std,
        bias_std=bias_std,
        bias_rate=bias_rate * bias_std,
        readout=real([out.std, out.rate, out.bias_rate * out.bias_std**2]),
        gamma=real(stream.gamma),
        momentum=real(training.momentum),
        rates=real(np.append(training.rates, 0.0)),
        decay=jax.tree.map(lambda rate: training.decay * jnp.sign(rate), rates),
        precision=Precision(real(1 / start.fields.shape[1]), real(tolerance)),
        close=real(max(1e-5, 20 * np.finfo(dtype).eps)),
    )


def _grown(state: BlockState) -> BlockState:
    """Return the state with twice the room for directions."""
    matrices = state.matrices
    _, rows, across = matrices.change.shape

    def larger(side):
        more = ((0, 0), (0, side.basis.shape[1]), (0, 0))
        return side._replace(basis=jnp.pad(side.basis, more), images=jnp.pad(side.images, more))

    more = ((0, 0), (0, rows), (0, across))
    assert matrices.velocity is not None
    return state._replace(
        matrices=Matrices(
            larger(matrices.inputs),
            larger(matrices.outputs),
            jnp.pad(matrices.change, more),
            jnp.pad(matrices.velocity, more),
        )
    )


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(model: BlockModel, state: BlockState, constants: BlockConstants, stop) -> BlockState:
    """Train up to a step, or until a basis is full or the outputs have diverged."""
    trained, columns = len(constants.targets), len(constants.fields)
    batch = trained if constants.batches is None else constants.batches.shape[1]
    return train_until(
        lambda state: descend(model, state, constants),
        lambda state: has_room(state, columns, batch),
        state,
        constants.targets,
        stop,
    )


@partial(jax.jit, static_argnums=0)
def _look(model: BlockModel, state: BlockState, constants: BlockConstants) -> DepthKernels:
    """Return kernels between all samples."""
    state, ahead = forward(model, state, constants)
    weight, maps = constants.precision.weight, model.maps
    x = model.phi[0](jnp.concatenate([ahead.first[None], ahead.h, ahead.last[None]]))
    features = weight * jnp.einsum("dkn,dln->dkl", x, x)
    everything = slice(None)

    def pulled(row):
        z = jnp.broadcast_to(constants.readout[0] * row, ahead.last.shape)
        _, back = backward(model, state, constants, ahead, everything, z)
        return jnp.concatenate([back.first[None], back.g, back.last[None]]), back.inner

    g, inner = lax.map(pulled, state.params.readout)
    gradients = weight * jnp.einsum("adkn,bdln->dklab", g, g)
    body: Any = 0.0
    for k in range(maps):
        read = x[1:-1] if k == 0 else model.phi[k](ahead.inner[k - 1 :: maps])
        moved = (
            constants.rate[k] * constants.std[k] * weight * jnp.einsum("mkn,mln->mkl", read, read)
        )
        moved = moved + constants.bias_rate[k] * constants.bias_std[k]
        behind = weight * jnp.einsum("amkn,bmln->mklab", inner[:, k::maps], inner[:, k::maps])
        body = body + jnp.einsum("m,mkl,mklab->klab", constants.whole, moved, behind)
    ntk = tangent_kernel(model, constants, body, gradients[0], model.phi_out(ahead.last))
    return DepthKernels(features, gradients, ntk)
