"""How many networks of random matrices, of how many neurons, and the error that is left."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import jax
import numpy as np

from largen.arrays import integer, random_key, real
from largen.dmft.deep.averages import Estimate
from largen.dmft.deep.checkpoint import Checkpoint
from largen.dmft.deep.effort import Effort
from largen.dmft.deep.innovations import MODES
from largen.dmft.deep.method import (
    MEMORY_BUDGET,
    METHODS,
    check_memory,
    chosen,
    wanted_particles,
)
from largen.dmft.deep.neurons import check_divisible, counts, unit_for
from largen.dmft.deep.problem import Problem, covers, problem
from largen.dmft.deep.replicates import LEAST_TOLERANCE, Stopped, closed, sampled
from largen.dmft.deep.start import fewest
from largen.dmft.deep.state import Kept
from largen.dmft.recorded import NOTHING, Recorded
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.networks.progress import Report, reporter
from largen.parameterizations import temperature_of
from largen.runs import Run, Trajectory

NAME = "mean field, deep"
# Single precision is exact enough beside the sampling error, unless little error is wanted or
# f = ⟨zφ⟩/γ₀ is a small difference.
SINGLE = 3e-4
SMALL_GAMMA = 0.03
OF_WIDTH, NETWORKS = 256, 64  # of the networks whose fluctuations are measured


def solve(
    run: Run,
    *,
    method: str = "auto",
    rtol: float = 3e-3,
    particles: int | None = None,
    replicates: int | None = None,
    max_particles: int = 2**17,
    mode: str = "variance_reduced",
    memory_budget: float = MEMORY_BUDGET,
    record_at: Sequence[int] | None = None,
    record_pairs: Sequence[tuple[int, int]] = (),
    test_kernel: bool = False,
    sites: int = 0,
    fluctuations: bool = False,
    checkpoint: str | PathLike[str] | None = None,
    key: Any = 0,
    progress: bool | Report | None = None,
    throw: bool = True,
) -> Trajectory:
    """Solve the mean-field limit of a fully connected, convolutional or residual network.

    The equations of dynamical mean-field theory (Pehlevan and Bordelon's lecture notes, (65),
    corrected: A⁰ = Bᴸ = 0, and B at equal times is kept) are causal: one sweep in time solves
    them, without iteration. Gradient descent is exact at any step size; gradient flow is
    extrapolated from three lengths of steps. Expectations are
    averages over neurons, whose random matrices W(0) are not stored but answer what they are
    asked; A and B are never formed. Independent replicates give the error. Linear networks
    have closed equations instead, which are solved exactly.

    Convolutions share their weights between positions a of a sample (Bordelon et al., Depthwise
    hyperparameter transfer in residual networks, (134)-(135)): a Gaussian matrix for each place k
    of the window,

        hˡ⁺¹(a) = σ Σ_k W_k Σ_b T_k(a, b) φ(hˡ(b)),   K = Φᴸ + Σ_l Σ_ab Gˡ(a, b) Φˡ⁻¹(a, b),

    with strides, padding, dilation, linear pooling behind activations, ``Flatten`` and transposed
    convolutions all in T. What a step costs grows with samples × positions as it does with samples
    in fully connected networks; memory grows with the window, too.

    Residual networks (Bordelon et al., Depthwise hyperparameter transfer in residual networks,
    (40), corrected: the update within a branch's gradient carries L^(−1/2), which is printed
    without) have the branch's factor in σ and one set of neurons for all layers of the stream.

    Parameters
    ----------
    run
        The run: ``lg.mean_field(gamma)`` or what is equivalent to it.
    method
        ``"closed"``: the closed equations of linear networks. ``"sweep"``: random matrices that
        are known by the directions in which they were asked. ``"dense"``: networks that are
        stored, variance-reduced, of two widths, extrapolated in 1/N as far as their fluctuations
        allow; for activations like relu, whose gradients keep asking in new directions, and for
        Langevin noise.
        ``"auto"`` takes the first if it applies, and the last if there will be more directions
        than neurons.
    rtol
        Wanted error of the whole trajectory of outputs, relative: |error|/|f|. More replicates
        are spent until it is reached.
    particles
        N, the neurons of a layer in each replicate; with ratios of widths, per unit of width. By
        default at least 2048 in the narrowest layer, and 16 for every sample (and position); for
        dense networks at least 1024, and 8 for every sample. Half of these are of half that width.
    replicates
        How many; by default at least 4, and as many as ``rtol`` takes.
    max_particles
        Most neurons of a layer to spend on all replicates together. If they do not reach
        ``rtol``, the result says so in its notes.
    mode
        ``"variance_reduced"``: what is exact at initialisation in the limit is made exact.
        ``"finite_width"``: every replicate has the exact law of a network of width
        ``particles``, whose matrices need not be stored.
    memory_budget
        Bytes that one replicate may take, 4 GiB by default, beside the program itself. Several
        are computed at the same time, one for each core, if they fit into it together, and into
        a GiB; the numbers do not depend on that.
    record_at
        Entries of the trajectory at which kernels are kept; the first and the last by default.
    record_pairs
        Pairs (t, s) of entries between which Φˡ(t, s) and Gˡ(t, s) are kept. Features and
        gradients of an entry are remembered until the last entry that is paired with it.
    test_kernel
        Whether to keep the tangent kernel between test and training samples, too.
    sites
        Of how many neurons of each layer h, g and z are kept, on training samples. They are draws
        from the single-site process, correlated from time to time and from layer to layer of a
        residual stream only.
    fluctuations
        Whether to measure how networks of finite width vary, on 64 networks of width 256 (or the
        fewest neurons that there may be) with the exact law of that width.
    checkpoint
        A file, such as ``"limit.npz"``, that keeps what is done after each replicate, and a
        folder beside it (``"limit.npz.states"``) with the state of each sweep, written every
        minute, at its end, and if it has to stop. The same call takes it up from there, with the
        same result, or spends more on it where ``replicates`` or ``max_particles`` ask for more.
        So does a longer run that agrees so far (more ``steps``, or ``times``; a schedule with the
        same rates until then), with the result that it would have had from the start. States
        take about as much room as one replicate takes memory, for each replicate. Closed
        equations need none.
    key
        Of the random matrices.
    progress
        Whether to show a bar; by default in terminals, after two seconds. A function is called
        with the percentages that are done and to be done of all replicates, from one thread at a
        time; what it raises ends the solution.
    throw
        Whether a diverged solution is raised or returned.

    Returns
    -------
    Trajectory
        ``f_train``, ``f_test`` and losses, with

        * ``f_train_error``, ``f_test_error``, of the same axes: the standard error of the mean
          of the replicates, with what is not known of directions (and lengths of steps) that
          were left out: the effect of directions is measured on one replicate and, for smooth
          activations, added to the mean; for linear networks that of the closed equations;
        * ``f_train_std``, ``f_test_std`` in the mode ``"finite_width"``: the deviation of one
          network;
        * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``,
          and ``ntk``, ``(record, sample, sample_2)``; of several positions Φ is the mean over
          those that the next map meets, behind pooling, ⟨φ(h(a))φ(h(a))⟩ at equal ones, and G
          the sum, as in :func:`largen.train`; with several outputs the latter two have
          ``output, output_2`` behind. ``record_step`` says where they were recorded;
        * with ``record_pairs``, ``feature_kernel_pair`` ⟨φ(hˡ_μ(t))φ(hˡ_ν(s))⟩ and
          ``gradient_kernel_pair`` ⟨gˡ_μ(t)gˡ_ν(s)⟩, ``(pair, layer, sample, sample_2)``, the
          first sample at t and the second at s; ``pair_step`` and ``pair_step_2`` are t and s;
        * on request ``ntk_test (record, test_sample, sample)``, and ``site_h``, ``site_g`` and
          ``site_z`` with axes ``(record, layer, site, sample)``: hˡ, gˡ and zˡ of single neurons,
          gˡ = φ'(hˡ)zˡ, to which a residual stream adds the gˡ⁺¹ behind it; with an axis
          ``position`` behind where layers have several, NaN where one has fewer;
        * ``feature_kernel_error`` and so on, of the same axes: the standard error of the mean of
          the replicates, with what is not known of directions that were left out;
        * ``f_train_fluctuation``, ``f_test_fluctuation`` with ``fluctuations`` or in the mode
          ``"finite_width"``: √N times the deviation of a network of width N, which does not
          depend on N to leading order. :func:`largen.compare` sets it beside the distances.

    Raises
    ------
    NoTheory
        If the run is not covered.
    InvalidInput
        For an argument that cannot be meant.
    NumericalFailure
        If training diverges, or directions outgrow the memory budget on the way; its ``result``
        is the trajectory until there.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(3, "linear"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=60)
    >>> limit = solve(run)
    >>> limit.f_train[-1].round(6).tolist()
    [1.0, -1.0]
    """
    reason = covers(run)
    mode, method = one_of("mode", mode, MODES), one_of("method", method, METHODS)
    budget = real("memory_budget", memory_budget, above=0)
    rtol = real("rtol", rtol, above=0)
    max_particles = integer("max_particles", max_particles, at_least=1)
    alone = np.array(run.entries("record_at", record_at), dtype=int)
    recorded = Recorded(alone, run.pairs("record_pairs", record_pairs))
    posed = problem(run)
    sites = integer("sites", sites, at_least=0)
    if particles is not None:
        particles = integer("particles", particles, at_least=1)
    steps = len(run.times) - 1
    if mode == "finite_width" and method != "sweep":
        if method != "auto":
            raise InvalidInput(f"mode: {mode!r} is for method='sweep', got method={method!r}.")
        method = "sweep"
    if temperature_of(run.optimizer):
        method = _with_noise(run, method, mode, fluctuations)
    method = chosen(method, posed, steps, particles, sites > 0)
    particles = particles or wanted_particles(method, posed)
    check_divisible(posed, particles, 2 if method == "dense" else 1)
    narrowest = min(counts(posed, particles))
    if narrowest < fewest(posed):
        places, least = max(posed.positions), unit_for(posed, fewest(posed))
        each = f" of {places} positions" if places > 1 else ""
        raise InvalidInput(
            f"particles: wanted at least {least} for {posed.total} samples{each}, got {particles}."
        )
    kept = Kept(bool(test_kernel), sites)
    if kept.sites > narrowest:
        raise InvalidInput(f"sites: wanted at most the {narrowest} particles, got {sites}.")
    if replicates is not None:
        replicates = integer("replicates", replicates, at_least=1)
    stopped = None
    if method == "closed":
        estimate = closed(posed, run, recorded, kept)
    else:
        single = rtol >= SINGLE and posed.gamma >= SMALL_GAMMA
        effort = Effort(
            rtol=rtol,
            particles=particles,
            replicates=replicates,
            max_particles=max_particles,
            mode=mode,
            tolerance=float(np.clip(5 * rtol, LEAST_TOLERANCE, 0.05)),
            dtype=np.float32 if single else np.float64,
            dense=method == "dense",
            budget=budget,
            kept=kept,
        )
        check_memory(method, posed, particles, effort.dtype, budget)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))))
        with reporter(progress, "mean field") as report:
            effort = effort._replace(report=report)
            saved = None
            if checkpoint is not None:
                options = {
                    "method": method,
                    "mode": mode,
                    "number of particles": particles,
                    "rtol": (effort.tolerance, str(effort.dtype)),
                    "choice of test_kernel or sites": kept,
                    "key": np.asarray(jax.random.key_data(random_key(key))),
                }
                saved = Checkpoint(checkpoint, run, options, recorded)
            try:
                estimate = sampled(posed, run, recorded, effort, rng, saved)
            except Stopped as failure:
                estimate, stopped = failure.estimate, str(failure)
    spread = None
    if mode == "finite_width" and estimate.f_std is not None:
        spread = particles**0.5 * estimate.f_std
    elif fluctuations and stopped is None and np.isfinite(estimate.f).all():
        spread = _spread(posed, run, key, progress)
    result = _trajectory(run, posed, estimate, spread, recorded, reason, rtol)
    if stopped is not None:
        result = Trajectory(result.to_xarray().assign_attrs(status="out of memory"), run)
        if throw:
            raise NumericalFailure(f"{stopped} throw=False returns what was computed.", result)
        return result
    finite = np.isfinite(estimate.f).all(axis=(1, 2))
    if throw and not finite.all():
        first = int(np.argmin(finite))
        raise NumericalFailure(
            f"the mean-field limit diverges: outputs escape before entry {first} (time "
            f"{run.times[first]:g}). Lower the learning rate or gamma, or pass throw=False to "
            "get what was computed.",
            result,
        )
    return result


def _with_noise(run: Run, method: str, mode: str, fluctuations: bool) -> str:
    """Return the method that has a rule for Langevin noise."""
    if method in ("sweep", "closed") or mode == "finite_width" or fluctuations:
        raise InvalidInput(
            f"method: {run.optimizer} adds another random matrix at every step, which matrices "
            "that are known by the directions in which they were asked (method 'sweep', 'closed', "
            "mode='finite_width', fluctuations=True) cannot follow. Use method='dense' or 'auto'."
        )
    return "dense"


def _spread(posed: Problem, run: Run, key: Any, progress: Any) -> np.ndarray:
    """Return √N times the deviation of f, measured on networks of width N."""
    width = unit_for(posed, max(OF_WIDTH, fewest(posed)))
    effort = Effort(0.02, width, NETWORKS, width, "finite_width", 0.03, np.float32)
    rng = np.random.default_rng([1, *np.asarray(jax.random.key_data(random_key(key)))])
    with reporter(progress, f"width {width}") as report:
        found = sampled(posed, run, NOTHING, effort._replace(report=report), rng)
    assert found.f_std is not None
    return width**0.5 * found.f_std


def _trajectory(
    run: Run,
    posed: Problem,
    estimate: Estimate,
    spread: np.ndarray | None,
    recorded: Recorded,
    reason: str,
    rtol: float,
) -> Trajectory:
    dtype, p = run.data.x_train.dtype, posed.samples
    out = ("output",) if run.output_shape else ()
    pair = ("output", "output_2") if run.output_shape else ()

    def shaped(f: np.ndarray) -> np.ndarray:
        return f.reshape(*f.shape[:2], *run.output_shape).astype(dtype)

    def named(what: str, f: np.ndarray) -> dict[str, Any]:
        return {
            f"f_train_{what}": (("step", "sample", *out), shaped(f[:, :p])),
            f"f_test_{what}": (("step", "test_sample", *out), shaped(f[:, p:])),
        }

    extra = named("error", estimate.f_error)
    if estimate.f_std is not None:
        extra |= named("std", estimate.f_std)
    if spread is not None:
        extra |= named("fluctuation", spread)
    if estimate.kernels:
        space = ("position",) if max(posed.positions) > 1 else ()
        axes = {
            "feature_kernel": ("layer", "sample", "sample_2"),
            "gradient_kernel": ("layer", "sample", "sample_2", *pair),
            "ntk": ("sample", "sample_2", *pair),
            "ntk_test": ("test_sample", "sample", *pair),
            "site_h": ("layer", "site", "sample", *space),
            "site_g": ("layer", "site", "sample", *space, *out),
            "site_z": ("layer", "site", "sample", *space, *out),
        }
        extra["layer"] = (("layer",), np.arange(1, posed.hidden_layers + 1))
        if len(recorded.alone):
            extra["record_step"] = (("record",), recorded.alone)
        if len(recorded.pairs):
            extra |= {"pair_step": (("pair",), recorded.pairs[:, 0])}
            extra |= {"pair_step_2": (("pair",), recorded.pairs[:, 1])}
        for name, array in (estimate.kernels | estimate.sites).items():
            plain = name.removesuffix("_error")
            leading = "pair" if plain.endswith("_pair") else "record"
            named_axes = (leading, *axes[plain.removesuffix("_pair")])
            extra[name] = (named_axes, array.astype(dtype))
    error = estimate.relative_error
    note = estimate.how
    if not np.isnan(error):
        note = f"{note}; estimated error of the outputs {error:.1e} of their size"
        if error > rtol:
            note += f", more than rtol={rtol:g}: raise max_particles for more"
    return Trajectory.of(
        run,
        shaped(estimate.f[:, :p]),
        shaped(estimate.f[:, p:]),
        theory=NAME,
        reason=reason,
        extra=extra,
        notes=(note,),
    )
