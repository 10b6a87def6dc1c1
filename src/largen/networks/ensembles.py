"""Training ensembles of finite networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from largen.arrays import precision
from largen.bibliography import cites
from largen.errors import NumericalFailure, instance_of
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.networks.chunks import in_chunks
from largen.networks.plan import plan_of
from largen.networks.records import check_records, check_spectra, variables
from largen.progress import Report, reporter
from largen.runs import Run, Status, Trajectory
from largen.scalars import flag, integer, random_key, real

MOST_SEEDS = 10**6
# A loss that grew by this factor counts as divergence, even while it is finite.
EXPLODED = 1e6


@cites("pehlevan2023lecture")
@interruptible()
def train(
    run: Run,
    width: int,
    seeds: int = 1,
    key: Any = 0,
    *,
    record: Iterable[str] = (),
    record_at: Sequence[int] | None = None,
    memory_budget: float = MEMORY_BUDGET,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> Trajectory:
    """Train an ensemble of networks of finite width that differ in their initialisation.

    θ ← θ − η₀ρ ∇(1/P) Σ_μ ℓ(f_μ, y_μ) with the rule's rate ρ of each weight (Pehlevan and
    Bordelon's lecture notes, §2), or the update of the run's optimizer. Training uses the precision
    of the run's data. One program, compiled once for each width, trains on CPUs one network at a
    time, or as many small ones as the caches hold, and on accelerators as many as the memory holds.

    Parameters
    ----------
    run
        The network, its parameterization, the data, the loss and the optimizer.
    width
        N.
    seeds
        Number of networks, at least 1.
    key
        ``jax.random.key(seed)`` or an integer. Network i is drawn from ``fold_in(key, i)``,
        whatever the number of seeds and the memory budget.
    record
        What to record: ``"feature_kernel"``, ``"gradient_kernel"``, ``"ntk"``,
        ``"singular_values"``, ``"sharpness"``, ``"output_hessian"``, ``"input_jacobian"``; under
        :func:`largen.optimizers.feedback_alignment` and :func:`largen.optimizers.hebbian` also
        ``"pseudo_gradient_kernel"``, ``"effective_ntk"``, ``"alignment"``.
    record_at
        Time indices at which kernels are recorded; the first and the last by default.
    memory_budget
        Bytes that the ensemble may use at a time; networks are trained in chunks that fit.
    throw
        Whether to raise if a network diverged; otherwise the trajectory's status reports it.
    progress
        Whether to show a bar; by default in terminals, after two seconds. If a function is given,
        it is called with the number of trained networks and the number of all networks.

    Returns
    -------
    Trajectory
        Outputs and losses with a leading axis ``seed``, at every step. Recorded are

        * ``feature_kernel (seed, record, layer, sample, sample_2)``: Φˡ = φ(hˡ)·φ(hˡ)/N,
        * ``gradient_kernel``, with the same axes: Gˡ = gˡ·gˡ/N with g = √N γ ∂f/∂h, for
          several outputs with the axes ``output, output_2``. Within residual branches it is
          divided by the square of the branch factor: behind a branch's last affine map, h is the
          stream. With several positions, Φ is the mean over those that enter the next affine
          map, after pooling, and G is the sum over all,
        * ``ntk (seed, record, sample, sample_2)`` and ``ntk_test``: see
          :func:`largen.networks.empirical_ntk`; the weights are the rates of gradient descent, also
          with another optimizer,
        * of pseudo-gradients g̃, along which weights move under these rules,
          ``pseudo_gradient_kernel``: G̃ˡ_μν = gˡ_μ·g̃ˡ_ν/N, as G; ``effective_ntk``: the tangent
          kernel with G̃ in place of G, which outputs follow, (training samples only); and
          ``alignment (seed, record, layer, sample)``: the cosine of gˡ and g̃ˡ,
        * ``singular_values (seed, record, weight_layer, value)``: the eight largest of the weights
          between hidden layers times their multipliers, those of a window side by side,
        * for ``"sharpness"`` ``hessian_sharpness (seed, record)``: the largest eigenvalue of
          η₀ρ^½ ∇²ℓ ρ^½, with the mean loss ℓ of training samples and the rule's rates ρ. Below 2
          gradient descent without momentum is stable; and ``gradient_curvature (seed, record)``,
          its curvature η₀ gᵀρ∇²ℓρg/gᵀρg along the gradient g,
        * ``output_hessian (seed, record, sample[, output])``: the spectral norm of ρ^½ ∇²f ρ^½ for
          each training sample, almost everywhere, by 64 steps of Lanczos' method. It is of order
          N^(−1/2) in the kernel limit, up to √log N by the largest of N weights, which is why the
          tangent kernel stands still there (Hanin's primer, §3.2.2), and of order one where
          features learn,
        * ``input_jacobian (seed, record, sample[, jacobian_value])`` and ``input_jacobian_test``:
          the singular values of ∂f/∂x, in decreasing order; of a single output the norm |∂f/∂x|.
          At initialisation its mean square is that of :func:`largen.criticality.input_gradients`,

        with the coordinates ``record_step`` and ``layer`` = 1 … L.

    Raises
    ------
    InvalidInput
        If an argument has a wrong type or value.
    NumericalFailure
        If a network diverged: an output is not finite, or its final training loss is more than a
        million times the initial one. The error's ``result`` holds the trajectory.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.ntk(), data, optimizer=lg.gd(lr=1.0), steps=10)
    >>> nets = lg.train(run, width=32, seeds=4, key=0, record=["ntk"])
    >>> nets.f_train.shape, nets.ntk.shape
    ((4, 11, 3), (4, 2, 3, 3))
    """
    instance_of("run", run, Run, "an lg.Run")
    width = integer("width", width, at_least=1)
    seeds = integer("seeds", seeds, at_least=1, at_most=MOST_SEEDS)
    throw = flag("throw", throw)
    key = random_key(key)
    memory_budget = real("memory_budget", memory_budget, above=0)
    records, record_at_checked = check_records(run, record, record_at)
    with precision(run.data.x_train):
        plan, numbers = plan_of(run, width, records, record_at_checked)
        check_spectra(plan)
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
        extra=variables(plan, kept, run.rates_at(plan.record_at)),
    )
    return _checked(run, trajectory, throw)


def _checked(run: Run, trajectory: Trajectory, throw: bool) -> Trajectory:
    """Flag a trajectory that diverged, and raise."""
    loss = trajectory.loss_train
    with np.errstate(invalid="ignore", over="ignore"):
        bad = ~np.isfinite(trajectory.f_train).all(axis=tuple(range(1, trajectory.f_train.ndim)))
        bad |= ~np.isfinite(trajectory.f_test).all(axis=tuple(range(1, trajectory.f_test.ndim)))
        bad |= ~(loss[:, -1] <= EXPLODED * np.abs(loss[:, 0]).clip(min=np.finfo(loss.dtype).tiny))
    if not bad.any():
        return trajectory.checked(throw)
    flagged = trajectory.with_status(Status.DIVERGED)
    if throw:
        which = ", ".join(map(str, np.flatnonzero(bad)[:8])) + (", …" if bad.sum() > 8 else "")
        hint = (
            "the equation is too stiff to reach the last time; end it earlier"
            if run.optimizer.continuous
            else "lower lr. Full-batch gradient descent on mse is stable below 2P/λ_max, with "
            "λ_max of lg.networks.empirical_ntk on the training inputs"
        )
        raise NumericalFailure(
            f"train: {bad.sum()} of {len(bad)} networks of width {trajectory.width} diverged "
            f"with {run.optimizer} (seeds {which}); {hint}. throw=False returns the trajectory.",
            flagged,
        )
    return flagged
