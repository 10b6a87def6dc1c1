"""The limit of infinite width and depth without noise: blocks of one matrix, or, α = 1, of several.

Averages are means over quasi-random neurons of the stream, and over neurons of the blocks of
several matrices at each node of depth. Independent sets of neurons give the error. The equations
are in ``block_fields``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from largen.arrays import precision as in_precision
from largen.compilation import Sooner
from largen.errors import NumericalFailure
from largen.theories.chains.normalized import elementwise
from largen.theories.mean_field.deep.matrices.by_directions import Matrices, Precision
from largen.theories.mean_field.deep.matrices.fresh_vectors import initial, orthonormal
from largen.theories.mean_field.deep.matrices.row_buffers import capacity_for
from largen.theories.mean_field.deep.sweep.smoothness import smooth
from largen.theories.mean_field.deep.sweep.state import fill_side
from largen.theories.mean_field.deep.sweep.variance_reduction import (
    new_directions,
    pull_back_at,
    values_at,
)
from largen.theories.mean_field.engine.parallel import Tell, ignore_progress, part
from largen.theories.mean_field.engine.statistics import mean_and_error
from largen.theories.mean_field.infinite_depth.block_fields import (
    BlockConstants,
    BlockModel,
    BlockState,
    Moving,
    backward,
    descend,
    forward,
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
from largen.theories.mean_field.infinite_depth.training_loop import (
    Loop,
    run_through,
    tangent_kernel,
    train_until,
)

PAIRS = 4  # sets that are solved on both grids where φ' jumps, for blocks of one matrix
USUAL = 10  # directions for each column that most runs of smooth activations do not exceed


class Start(NamedTuple):
    """Neurons at initialisation."""

    fields: np.ndarray
    readout: np.ndarray
    # inputs, outputs: directions and images of each matrix; empty for blocks of one matrix.
    inputs: list[tuple[np.ndarray, np.ndarray]]
    outputs: list[tuple[np.ndarray, np.ndarray]]
    biases: np.ndarray  # b of each matrix
    # Fresh Gaussian vectors of the layer behind each matrix; later images are orthogonal to them.
    anchors: np.ndarray


def blocks_limit(
    # network, training, record_at: the network, its training, and times at which kernels are
    # recorded.
    network: NeuronNetwork,
    training: Training,
    record_at: Sequence[int] = (),
    *,
    # particles, replicates: number of neurons in a set, for the stream and for each layer of the
    # blocks at a node; and number of sets.
    particles: int = 8192,
    replicates: int = 4,
    # Numbers of nodes of depth, and of the coarser grid beside which the error of depth is found.
    # Where φ' jumps, neurons cross the jump between nodes, and neurons of blocks differ between
    # nodes, so that two grids differ by sampling errors, too: there several sets are solved on both
    # grids, otherwise one.
    grids: tuple[int, int] = (3, 2),
    # Relative size of the part of features and gradients outside their bases that is neglected.
    tolerance: float = 1e-3,
    dtype: Any = np.float32,  # precision of the neurons
    key: int = 0,  # random key of the sets of neurons
    sample_neurons: int = 0,  # number of neurons of the first set whose h and g are recorded
    tell: Tell = ignore_progress,  # called with the finished fraction
    # Solutions by set and number of nodes, of calls that differ in replicates and grids only; those
    # that are lacking are added.
    known: dict[tuple[int, int], Found] | None = None,
) -> DepthEstimate:
    """Solve with several independent sets of neurons."""
    network, known = by_size(network), {} if known is None else known
    nodes, coarse = grids
    pairs = replicates if len(network.maps) > 1 else min(PAIRS, replicates)
    pairs = 1 if analytic(network) else pairs
    wanted = [(i, n) for i in range(replicates) for n in (coarse, nodes) if n == nodes or i < pairs]
    for done, (i, n) in enumerate(wanted):
        now = part(tell, done, len(wanted))
        now(0.0)
        if (i, n) not in known:
            rng = source_of(key, i)
            start = begin(network, training, particles, (n, nodes), tolerance, rng, dtype)
            random = jax.random.key(int(rng.integers(2**31)))
            what = network, training, record_at, start, n, tolerance, random, sample_neurons
            known[i, n] = solve(*what, now)
    tell(1.0)
    found = [known[i, nodes] for i in range(replicates)]
    apart = [known[i, coarse].outputs - known[i, nodes].outputs for i in range(pairs)]
    depth = beyond_chance(*mean_and_error(np.stack(apart)))
    mean, error = mean_and_error(np.stack([one.outputs for one in found]))
    kernels, spread = mean_kernels(found)
    tau = np.concatenate([[0.0], gauss(nodes).nodes, [1.0]])
    ranks = np.max([one.ranks for one in found], axis=0)
    return DepthEstimate(mean, np.hypot(error, depth), depth, kernels, spread, tau, ranks)


def analytic(network: NeuronNetwork) -> bool:
    """Whether neurons are analytic in depth: the same at all nodes, without jumps of φ'."""
    phi = *network.phi, network.phi_out
    return len(network.maps) == 1 and all(smooth(elementwise(each)) for each in phi)


def bytes_held(
    network: NeuronNetwork, training: Training, particles: int, nodes: int, dtype: Any
) -> int:
    """Return the bytes that one set of neurons takes, unless its bases have to grow."""
    samples, trained, maps = len(network.fields), len(training.targets), len(network.maps)
    rows = sum(_capacities(network, training, particles)) * (1 if maps == 1 else 2)
    each = maps * rows + 6 * samples + 6 * trained
    return int(np.dtype(dtype).itemsize * nodes * each * particles)


def _capacities(network: NeuronNetwork, training: Training, count: int) -> tuple[int, int]:
    """Return the first capacities of bases, for features and gradients."""
    maps, samples, batch = len(network.maps), len(network.fields), training.batch
    columns, steps = (batch if maps == 1 else samples, batch), min(USUAL, len(training.rates) + 1)
    room = room_for(maps, samples, batch)
    features, gradients = (
        capacity_for(min(steps * size, count) + more)
        for size, more in zip(columns, room, strict=True)
    )
    return features, gradients


def begin(
    network: NeuronNetwork,
    training: Training,
    count: int,
    # The nodes that are used, and all: one program serves several grids of depth.
    nodes: tuple[int, int],
    tolerance: float,
    rng: np.random.Generator,
    dtype: Any,
) -> Start:
    """Draw neurons, with images that have their exact second moments at initialisation."""
    precision, (used, padded) = Precision(1 / count, tolerance), nodes
    fields, readout = neurons(network, count, rng, dtype)

    h = network.fields.astype(dtype) @ fields
    none, trained, last = h[:0], len(training.targets), len(network.maps) - 1
    unused = (padded - used if last else padded) * len(network.maps)
    # Directions of all gradients on training samples, and their images in the last layer.
    rows = network.read_out.std * readout
    g = np.concatenate([pull_back_at(network.phi_out, h[:trained], row) for row in rows])
    seen = new_directions(g, precision)[0] if last and 8 * len(g) <= count else none
    inputs, outputs, biases, anchors = [], [], [], []
    for _ in range(used if last else 0):
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
                    answers = _apart(rows[size:], known, network.phi[last], x, trained)
                anchors.append(np.concatenate([known, answers]))
            inputs.append((basis, images))
            biases.append(bias)
    empty = none, none if last else none[:, :0]
    inputs, outputs = (side + [empty] * unused for side in (inputs, outputs))
    anchors += [none] * unused
    biases += [np.zeros_like(h[:1])] * unused
    most = max(len(rows) for rows in anchors)
    anchors = [np.pad(rows, ((0, most - len(rows)), (0, 0))) for rows in anchors]
    return Start(fields, readout, inputs, outputs, np.concatenate(biases), np.stack(anchors))


def _apart(rows: np.ndarray, known: np.ndarray, phi: Any, x: np.ndarray, trained: int) -> Any:
    """Return rows orthogonal to those of a layer and to its features φ(x).

    If there are enough neurons, also to its gradients on training samples, the first ones: then
    responses are 0 at initialisation.
    """
    avoid = np.concatenate([known, values_at(phi, x)])
    turned = np.concatenate([pull_back_at(phi, x[:trained], row) for row in known])
    if 4 * len(turned) <= rows.shape[1]:
        avoid = np.concatenate([avoid, turned])
    return orthonormal(rows, avoid.astype(np.float64)).astype(rows.dtype)


def solve(
    network: NeuronNetwork,
    training: Training,
    record_at: Sequence[int],
    start: Start,
    nodes: int,
    tolerance: float,
    key: Any,
    sample_neurons: int = 0,
    tell: Tell = ignore_progress,
) -> Found:
    """Train one set of neurons."""
    times = len(training.rates) + 1
    model = BlockModel(
        network.phi, network.phi_out, training.loss, network.output_shape, sample_neurons
    )
    room = room_for(model.maps, len(network.fields), training.batch)
    with in_precision(start.fields):
        state = _begin(network, training, start, times, key)
        constants = _constants(network, training, start, nodes, tolerance)
        loop = Loop(
            advance=lambda state, stop: _check_room(_advance(model, state, constants, stop)),
            has_room=lambda state: state.matrices.has_room(*room),
            grown=_grown,
            look=lambda state: _look(model, state, constants),
        )
        state, found = run_through(loop, state, record_at, times, training.targets, tell)
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


def _begin(
    network: NeuronNetwork, training: Training, start: Start, times: int, key: Any
) -> BlockState:
    count, dtype, number = start.fields.shape[1], start.fields.dtype, len(start.biases)
    nodes = number // len(network.maps)
    samples, trained = len(network.fields), len(training.targets)

    def zeros(*shape: int) -> Array:
        return jnp.zeros(shape, dtype)

    features, gradients = _capacities(network, training, count)
    widths = count, 0 if nodes == number else count
    inputs = fill_side(start.inputs, features, widths, dtype)
    outputs = fill_side(start.outputs, gradients, widths, dtype)
    change = zeros(number, gradients, features)
    params = Moving(
        jnp.asarray(start.fields),
        jnp.asarray(start.readout),
        jnp.asarray(start.biases),
        zeros(network.outputs),
        jnp.ones(number, dtype),
    )
    return BlockState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        velocity=jax.tree.map(jnp.zeros_like, params),
        matrices=Matrices(inputs, outputs, change, jnp.zeros_like(change)),
        key=key,
        moved=zeros(2, nodes, samples, count),
        pulled=zeros(2, nodes, trained, count),
        outputs=jnp.full((times, samples, network.outputs), jnp.nan, dtype),
    )


def _constants(network, training, start: Start, nodes: int, tolerance: float) -> BlockConstants:
    dtype, maps = start.fields.dtype, network.maps

    def real(value) -> Array:
        return jnp.asarray(value, dtype)

    grid, y, out = gauss(nodes), np.asarray(training.targets), network.read_out
    padded = len(start.biases) // len(maps)
    more = (0, padded - nodes)
    std, rate, bias_std, bias_rate = (
        real([getattr(each, name) for each in maps])
        for name in ("std", "rate", "bias_std", "bias_rate")
    )
    rates = Moving(
        real(network.field_rate)[:, None],
        real(out.rate),
        jnp.tile(bias_rate, padded)[:, None],
        real(out.bias_rate * out.bias_std**2),
        jnp.tile(rate, padded),
    )
    rounding = float(20 * np.finfo(dtype).eps)
    return BlockConstants(
        fields=real(network.fields),
        field_rate=real(network.field_rate),
        targets=real(y) if y.dtype.kind == "f" else jnp.asarray(y),
        batches=None if training.batches is None else jnp.asarray(training.batches),
        rise=real(np.pad(grid.rise, (more, more))),
        whole=real(np.pad(grid.whole, more)),
        anchors=real(start.anchors),
        std=std,
        rate=rate * std,
        bias_std=bias_std,
        bias_rate=bias_rate * bias_std,
        readout=real([out.std, out.rate, out.bias_rate * out.bias_std**2]),
        gamma=real(network.gamma),
        momentum=real(training.momentum),
        rates=real(np.append(training.rates, 0.0)),
        decay=jax.tree.map(lambda rate: training.decay * jnp.sign(rate), rates),
        precision=Precision(real(1 / start.fields.shape[1]), real(tolerance)),
        close=real(rounding if len(maps) == 1 else max(1e-5, rounding)),
    )


def _grown(state: BlockState) -> BlockState:
    """Return the state with twice the room for directions."""
    _, gradients, features = state.matrices.change.shape
    return state._replace(matrices=state.matrices.enlarged(2 * features, 2 * gradients))


@partial(Sooner, static_argnums=0, donate_argnums=1)
def _advance(model: BlockModel, state: BlockState, constants: BlockConstants, stop) -> BlockState:
    """Train up to a step, or until a basis is full or the outputs have diverged."""
    batch = len(constants.targets) if constants.batches is None else constants.batches.shape[1]
    room = room_for(model.maps, len(constants.fields), batch)
    return train_until(
        lambda state: descend(model, state, constants),
        lambda state: state.matrices.has_room(*room),
        state,
        constants.targets,
        stop,
    )


@partial(Sooner, static_argnums=0)
def _look(model: BlockModel, state: BlockState, constants: BlockConstants) -> DepthKernels:
    """Return kernels between all samples."""
    state, ahead = forward(model, state, constants)
    weight, maps = constants.precision.weight, model.maps
    h = jnp.concatenate([ahead.first[None], ahead.h, ahead.last[None]])
    x = model.phi[0](h)
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
    some = model.sample_neurons
    g = g[..., :some].transpose(1, 2, 0, 3)
    return DepthKernels(features, gradients, ntk, h[..., :some], g)
