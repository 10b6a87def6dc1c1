"""Training ensembles of finite networks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.arrays import integer, precision, random_key, real
from largen.errors import InvalidInput, NumericalFailure
from largen.networks.descent import descend
from largen.networks.flow import flow
from largen.networks.network import FiniteNetwork
from largen.networks.plan import Numbers, Plan, plan_of
from largen.networks.progress import Report, reporter
from largen.networks.records import check_records, variables
from largen.parameterizations import GradientFlow
from largen.runs import Run, Trajectory

# A function of a network, its initial and its trained parameters, and all inputs.
Measure = Callable[[FiniteNetwork, Any, Any, Any], Any]
# A loss that grew by this factor is divergence, before it ends in infinity.
EXPLODED = 1e6
# Chunks that are computed at the same time: one on each core, more only costs memory.
IN_FLIGHT = 2


def train(
    run: Run,
    width: int,
    seeds: int,
    key: Any,
    *,
    record: Iterable[str] = (),
    record_at: Sequence[int] | None = None,
    memory_budget: float = 2**30,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> Trajectory:
    """Train an ensemble of networks of finite width that differ in their initialisation.

    θ ← θ − η₀ρ ∇(1/P) Σ_μ ℓ(f_μ, y_μ) with the rule's rate ρ of each weight (Pehlevan and
    Bordelon's lecture notes, §2), or what the run's optimizer does instead. Training takes place
    in the precision of the run's data. One program, compiled once for a width, trains one seed
    after the other on CPUs (whose caches hold one network, but not many) and many at a time on
    accelerators.

    Parameters
    ----------
    run
        What to train, on what, and how.
    width
        N.
    seeds
        Number of networks, at least 1.
    key
        ``jax.random.key(seed)`` or an integer. Network i starts from ``fold_in(key, i)``: the
        same for any number of seeds and any memory budget.
    record
        Kernels to keep as well: ``"features"``, ``"gradients"``, ``"ntk"``.
    record_at
        Entries of the trajectory at which they are kept; the first and the last by default.
    memory_budget
        Bytes that the ensemble may use at a time; it is trained in chunks that fit.
    throw
        Whether to raise if a network diverged; otherwise the trajectory says so.
    progress
        Whether to show a bar; by default in terminals, after two seconds. A function is called
        with the numbers of trained and of all networks.

    Returns
    -------
    Trajectory
        Outputs and losses with a leading axis ``seed``, at every step. Recorded are

        * ``feature_kernel (seed, record, layer, sample, sample_2)``: Φˡ = φ(hˡ)·φ(hˡ)/N,
        * ``gradient_kernel``, with the same axes: Gˡ = gˡ·gˡ/N with g = √N γ ∂f/∂h, for
          several outputs with the axes ``output, output_2``. Within residual branches it is
          divided by the square of the branch factor: behind a branch's last affine map, h is the
          stream. Of several positions Φ is the mean over those that enter the next affine map,
          behind pooling, and G the sum over all,
        * ``ntk (seed, record, sample, sample_2)`` and ``ntk_test``: see
          :func:`largen.empirical_ntk`; weighted by the rates of gradient descent also if the
          optimizer is another one,

        with the coordinates ``record_step`` and ``layer`` = 1 … L.

    Raises
    ------
    InvalidInput
        If an argument is not what it should be.
    NumericalFailure
        If a network diverged: an output is not finite, or its training loss ended a million
        times above the initial one. The error's ``result`` holds the trajectory.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=1.0), steps=10)
    >>> nets = lg.train(run, width=32, seeds=4, key=0, record=["ntk"])
    >>> nets.f_train.shape, nets.ntk.shape
    ((4, 11, 3), (4, 2, 3, 3))
    """
    if not isinstance(run, Run):
        raise InvalidInput(f"run: wanted an lg.Run, got {run!r}.")
    width = integer("width", width, at_least=1)
    seeds = integer("seeds", seeds, at_least=1)
    key = random_key(key)
    memory_budget = real("memory_budget", memory_budget, above=0)
    records, record_at_checked = check_records(run, record, record_at)
    with precision(run.data.x_train):
        plan, numbers = plan_of(run, width, records, record_at_checked)
        with reporter(progress, f"width {width}") as report:
            f, kept = in_chunks(plan, numbers, key, seeds, memory_budget, report)
    samples = plan.samples
    trajectory = Trajectory.of(
        run,
        f[:, :, :samples],
        f[:, :, samples:],
        theory="finite",
        reason=f"{seeds} trained networks of width {width}",
        seeds=seeds,
        width=width,
        extra=variables(plan, kept),
    )
    return _checked(run, trajectory, throw)


def in_chunks(
    plan: Plan,
    numbers: Numbers,
    key: Any,
    seeds: int,
    memory_budget: float,
    report: Report,
    measure: Measure | None = None,
) -> tuple[np.ndarray, Any]:
    """Train all seeds, in chunks of equal size; return outputs, and records or measurements."""
    together = 1 if jax.default_backend() == "cpu" else None
    kept, working = _bytes(plan, numbers)
    if together:
        fit = min((memory_budget / IN_FLIGHT - working) / kept, 8)
    else:
        fit = memory_budget / IN_FLIGHT / (kept + working)
    chunk = even_chunk(seeds, int(max(fit, 1)))
    done: list[Any] = []
    waiting: deque[Any] = deque()

    def collect():
        done.append(jax.tree.map(np.asarray, waiting.popleft()))
        report(min(len(done) * chunk, seeds), seeds)

    for start in range(0, seeds, chunk):
        # The last chunk is filled up with further seeds, which are dropped.
        keys = [jax.random.fold_in(key, seed) for seed in range(start, start + chunk)]
        waiting.append(_train(plan, together, numbers, jnp.stack(keys), measure=measure))
        if len(waiting) == IN_FLIGHT:
            collect()
    while waiting:
        collect()
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:seeds], *done)


def even_chunk(seeds: int, limit: int) -> int:
    """Return the chunk of at most ``limit`` seeds that wastes the fewest, and is the largest."""
    limit = min(seeds, limit)
    return min(range((limit + 1) // 2, limit + 1), key=lambda size: (-seeds % size, -size))


@partial(jax.jit, static_argnums=(0, 1), static_argnames="measure")
def _train(
    plan: Plan, together: int | None, numbers: Numbers, keys, measure: Measure | None = None
):
    numbers = jax.tree.map(jnp.asarray, numbers)
    dtype = numbers.x.dtype
    flows = isinstance(plan.optimizer, GradientFlow)

    def one(key):
        start = plan.network.draw(key, dtype)
        learnt = flow(plan, start, numbers) if flows else descend(plan, start, numbers, noise(key))
        outputs, records, end = learnt
        return outputs, records if measure is None else measure(plan.network, start, end, numbers.x)

    def noise(key):
        return jax.random.fold_in(key, 1)

    return lax.map(one, keys) if together == 1 else jax.vmap(one)(keys)


def _bytes(plan: Plan, numbers: Numbers) -> tuple[float, float]:
    """Return the bytes of one network's results and, roughly, of its training."""
    network, (rows, item) = plan.network, (len(numbers.x), numbers.x.dtype.itemsize)
    samples, outputs = plan.samples, network.outputs or 1
    places = [row.site for row in plan.table.rows if row.kind == "weight"]
    sites = sum(site.copies for site in places)
    neurons = network.width * sum(float(site.copies * site.width_ratio) for site in places)
    kernel = samples**2 * outputs**2
    sizes = {"features": sites * samples**2, "gradients": sites * kernel}
    sizes["ntk"] = kernel + samples * (rows - samples) * outputs**2
    kept = plan.entries * rows * outputs + len(plan.record_at) * sum(
        sizes[name] for name in plan.records
    )
    probes = 2 * outputs if plan.records else 0
    copies = 12 if isinstance(plan.optimizer, GradientFlow) else 6
    working = copies * network.parameters + (4 + probes) * rows * neurons
    return item * kept, item * working


def _checked(run: Run, trajectory: Trajectory, throw: bool) -> Trajectory:
    """Flag a trajectory that diverged, and raise."""
    loss = trajectory.loss_train
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~np.isfinite(trajectory.f_train).all(axis=tuple(range(1, trajectory.f_train.ndim)))
        bad |= ~np.isfinite(trajectory.f_test).all(axis=tuple(range(1, trajectory.f_test.ndim)))
        bad |= ~(loss[:, -1] <= EXPLODED * np.abs(loss[:, 0]).clip(min=np.finfo(loss.dtype).tiny))
    if not bad.any():
        return trajectory
    dataset = trajectory.to_xarray().assign_attrs(status="diverged")
    flagged = Trajectory(dataset, run)
    if throw:
        which = ", ".join(map(str, np.flatnonzero(bad)[:8])) + (", …" if bad.sum() > 8 else "")
        hint = (
            "the equation is too stiff to reach the last time; end it earlier"
            if isinstance(run.optimizer, GradientFlow)
            else "lower lr. Full-batch gradient descent on mse is stable below 2P/λ_max, with "
            "λ_max of lg.empirical_ntk on the training inputs"
        )
        raise NumericalFailure(
            f"train: {bad.sum()} of {len(bad)} networks of width {trajectory.width} diverged "
            f"with {run.optimizer} (seeds {which}); {hint}. throw=False returns the trajectory.",
            flagged,
        )
    return flagged
