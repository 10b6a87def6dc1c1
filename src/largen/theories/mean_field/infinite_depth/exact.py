"""Solutions without random matrices: closed equations of linear networks, deterministic neurons.

Both apply to gradient descent, and use the constants of a network of one block, which do not depend
on L.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from largen.arrays import precision as in_precision
from largen.errors import OutOfMemory
from largen.memory import check_fits
from largen.parameterizations import momentum_of
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.averages import Estimate
from largen.theories.mean_field.deep.sweep.kernel_records import (
    RecordedKernels,
    kernel_variables,
    neuron_variables,
)
from largen.theories.mean_field.engine.statistics import GROWTH, margin, ratio, replicates_for
from largen.theories.mean_field.infinite_depth.blocks import analytic, blocks_limit, bytes_held
from largen.theories.mean_field.infinite_depth.estimates import DepthEstimate, Found
from largen.theories.mean_field.infinite_depth.linear_network import LinearNetwork, numbers_held
from largen.theories.mean_field.infinite_depth.neuron_network import NeuronNetwork, Training
from largen.theories.mean_field.infinite_depth.problem import EndlessProblem, network_of_layers
from largen.theories.mean_field.infinite_depth.riccati import linear_limit
from largen.theories.mean_field.options import WantedKernels

SHARES = np.linspace(0, 1, 5)  # shares of the blocks at which closed equations are recorded
MOST_DEPTHS = 40  # nodes of closed equations
FEWEST_SETS = 4  # of deterministic neurons
# Nodes of depth, and those of the grid beside them, for fields that are analytic in depth and for
# others, whose errors fall as a power of the number of nodes.
GRIDS, DOUBLED = tuple((n, n - 1) for n in range(3, 9)), ((4, 2), (8, 4), (16, 8))


class Solved(NamedTuple):
    """An estimate, and the shares τ of the blocks at which its kernels are recorded."""

    estimate: Estimate
    shares: np.ndarray


def linear_network(endless: EndlessProblem) -> LinearNetwork:
    """Return a linear network in the variables of its closed equations."""
    run, net = endless.run, endless.finite(1)
    return LinearNetwork.of(
        net.fields,
        net.field_rate,
        net.maps[:-1],
        net.maps[-1],
        float(endless.alpha),
        run.rates,
        gamma=net.gamma,
        outputs=net.outputs,
        momentum=_momentum(run),
        decay=run.optimizer.weight_decay,
    )


def closed_bytes(endless: EndlessProblem) -> float:
    """Return roughly the bytes that the closed equations of a linear network take."""
    return 8 * numbers_held(linear_network(endless), MOST_DEPTHS // 2)


def solve_linear(
    endless: EndlessProblem, wanted: WantedKernels, rtol: float, budget: float
) -> Solved:
    """Return the solution of the closed equations of a linear network, and its error."""
    run, net, network = endless.run, endless.finite(1), linear_network(endless)
    needed = closed_bytes(endless)
    if needed > budget:
        raise OutOfMemory(
            f"memory_budget: closed equations of {network.times} times take about {needed:.2g} "
            f"bytes, and the budget is {budget:.2g}. Take method='sweep', or raise it."
        )
    check_fits(needed, f"method: closed equations of {network.times} times", "Take 'sweep'.")
    at = wanted.recorded.alone.tolist()
    limit = linear_limit(network, partial(_pull, run), at, rtol=rtol, most_nodes=MOST_DEPTHS)
    p, rows, between = net.samples, _rows(net, wanted), limit.grid.at(SHARES)
    features = np.einsum("dn,rnij->rdij", between, limit.feature_kernel[..., :rows, :p])
    gradients = np.einsum("dn,rnab->rdab", between, limit.gradient_kernel)
    gradients = np.broadcast_to(
        gradients[:, :, None, None], (*features.shape, net.outputs, net.outputs)
    )
    kernels = [
        _kernels(*each) for each in zip(features, gradients, limit.ntk[:, :rows, :p], strict=True)
    ]
    variables = kernel_variables(network_of_layers(net, SHARES), run.output_shape, kernels, [])
    error = limit.error
    assert error is not None
    how = f"closed equations of linear φ on {len(limit.grid.nodes)} nodes of depth"
    return Solved(Estimate(limit.outputs, error, None, variables, how, {}), SHARES)


def deterministic(
    # endless, wanted: the problem, and the quantities to record.
    endless: EndlessProblem,
    wanted: WantedKernels,
    *,
    # rtol, particles, replicates, most: wanted error; number of neurons in a set, number of sets
    # (None: as many as the error needs), and the largest number of neurons in all sets.
    # sample_neurons: number of neurons whose fields are recorded.
    rtol: float,
    particles: int,
    replicates: int | None,
    most: int,
    sample_neurons: int,
    # dtype, key, tell: precision of the neurons; random key of the sets; called with the finished
    # fraction.
    dtype: Any,
    key: int,
    tell: Callable[[float], Any],
) -> Solved:
    """Return the solution with neurons of a stream without noise, and its error.

    Nodes of depth, and sets of neurons, are added until the error is small enough.
    """
    run, net = endless.run, endless.finite(1)
    *maps, read_out = net.maps
    network = NeuronNetwork(
        net.phi[:-1],
        net.phi[-1],
        net.fields,
        net.field_rate,
        maps,
        read_out,
        net.gamma,
        run.output_shape,
    )
    training = Training(
        run.loss,
        run.data.y_train,
        run.rates,
        _momentum(run),
        run.optimizer.weight_decay,
        run.batches,
    )
    several, at = len(maps) > 1, wanted.recorded.alone.tolist()
    grids = GRIDS if analytic(network) else DOUBLED
    tolerance = np.clip(rtol / 10, 1e-6, 1e-3)
    if several:
        grids = GRIDS[:1]  # finer ones do not pay: the error of depth is below that of sampling
        tolerance = np.clip(rtol, 1e-3, 1e-2)
    options: dict[str, Any] = {"particles": particles, "dtype": dtype, "key": key, "tell": tell}
    options |= {"tolerance": float(tolerance), "sample_neurons": sample_neurons}
    limit = partial(blocks_limit, network, training, at, **options)
    pair, *finer = grids
    known: dict[tuple[int, int], Found] = {}
    sets = replicates or FEWEST_SETS
    while True:
        held = bytes_held(network, training, particles, pair[0], dtype)
        check_fits(held, f"particles: {particles} neurons", "Take fewer.")
        found = limit(grids=pair, replicates=sets, known=known)
        depth, whole = (ratio(e, found.outputs) for e in (found.depth_error, found.error))
        if not np.isfinite(found.outputs).all():
            break
        if finer and depth > rtol / 2:
            pair, *finer = finer
            continue
        more = sets_for(rtol, sets, depth, whole, most // particles)
        if replicates or more <= sets:
            break
        sets = more
    variables, neurons = _recorded(net, found, _rows(net, wanted), run.output_shape, sample_neurons)
    how = (
        f"{sets} sets of {particles} quasi-random neurons on {pair[0]} nodes of depth, ranks up to "
        f"{found.ranks.max()}"
    )
    random = np.sqrt(np.maximum(found.error**2 - found.depth_error**2, 0))
    interval = margin(found.error, random, sets) if sets > 1 else None
    estimate = Estimate(found.outputs, found.error, None, variables, how, neurons, interval)
    return Solved(estimate, found.tau)


def _recorded(
    net: Problem,
    found: DepthEstimate,
    rows: int,
    output_shape: tuple[int, ...],
    sample_neurons: int,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return kernels with their errors, and the fields of sample neurons."""
    variables, neurons, layers = {}, {}, network_of_layers(net, found.tau)
    p = net.samples
    for name, kernels in (("", found.kernels), ("_error", found.kernels_error)):
        by_record = [
            _kernels(phi[:, :rows, :p], g[:, :rows, :p], k[:rows, :p], h[:, :p], back[:, :p])
            for phi, g, k, h, back in zip(*kernels, strict=True)
        ]
        each = kernel_variables(layers, output_shape, by_record, [])
        variables |= {f"{kind}{name}": values for kind, values in each.items()}
        if sample_neurons and by_record and not name:
            neurons = neuron_variables(layers, output_shape, by_record)
    return variables, neurons


def sets_for(rtol: float, sets: int, depth: float, whole: float, most: int) -> int:
    """Return the number of sets of neurons that an error needs, given the errors of some sets.

    The part by depth does not fall with their number. If it is too large, more sets show whether it
    is one of chance, unless it is far beyond the sampling error.
    """
    left, by_chance = rtol**2 - depth**2, max(whole**2 - depth**2, 0.0)
    if left > 0:
        return replicates_for(left**0.5, sets, by_chance**0.5, min(GROWTH * sets, most))
    return sets if depth**2 > 4 * by_chance else min(2 * sets, most)


def _rows(net: Problem, wanted: WantedKernels) -> int:
    """Return the number of samples whose kernels with the training samples are recorded."""
    return net.total if wanted.test else net.samples


def _momentum(run: Run) -> float:
    return momentum_of(run.optimizer)


def _pull(run: Run, t: int, f: np.ndarray) -> np.ndarray:
    """Return Δ over the number of samples in the batch; 0 for samples outside of it."""
    found, count = np.zeros_like(f), len(run.data.x_train)
    batch = np.arange(count)
    if run.batches is not None:
        batch = run.batches[min(t, len(run.batches) - 1)]
    with in_precision(f):
        y = jnp.asarray(run.data.y_train[batch])
        delta = run.loss.residual(jnp.asarray(f[batch].reshape(-1, *run.output_shape)), y)
    np.add.at(found, batch, np.asarray(delta, np.float64).reshape(len(batch), -1) / len(batch))
    return found


def _kernels(
    features: np.ndarray,
    gradients: np.ndarray,
    tangent: np.ndarray,
    h: np.ndarray | None = None,  # fields of the sample neurons; None for none
    g: np.ndarray | None = None,
) -> RecordedKernels:
    """Return kernels and the fields of sample neurons; z is not recorded, g stands for it."""
    depths, _, p, outputs, _ = gradients.shape
    h = np.zeros((depths, p, 0)) if h is None else h
    g = np.zeros((depths, p, outputs, 0)) if g is None else g
    fields = h[:, :, None], *2 * (g[:, :, :, None],)
    return RecordedKernels(features, gradients, tangent, *fields)
