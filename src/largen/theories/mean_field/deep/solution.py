"""The options of the theory, and its solution by closed equations or replicates of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from largen.errors import InvalidInput, one_of
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET
from largen.parameterizations import temperature_of
from largen.progress import Report
from largen.runs import Posed, Run, Theory, Trajectory
from largen.theories.chains.problem import Problem, posed_by
from largen.theories.mean_field.answers import bounded
from largen.theories.mean_field.deep.answer import trajectory
from largen.theories.mean_field.deep.estimation.averages import Estimate
from largen.theories.mean_field.deep.estimation.memory import check_closed, closed_equations_fit
from largen.theories.mean_field.deep.estimation.replicates import Stopped, solve_closed
from largen.theories.mean_field.deep.method import (
    METHODS,
    Method,
    choose_method,
    records_of,
    wanted_particles,
)
from largen.theories.mean_field.deep.sampled import SINGLE, sampled, settings_for
from largen.theories.mean_field.deep.sweep.initial_kernels import readout_size
from largen.theories.mean_field.deep.sweep.layer_widths import unit_for
from largen.theories.mean_field.deep.sweep.state import Kept
from largen.theories.mean_field.engine.ensembles import (
    Fluctuations,
    measure_fluctuations,
    narrow_width,
)
from largen.theories.mean_field.engine.movement import Attempt, Units, solve_in_units
from largen.theories.mean_field.options import Sampling, check_shared, wanted_kernels

SPECTRA = ("singular_values",)  # records other than kernels
STORED = (
    "record: singular values follow from matrices that are represented by directions, "
    "method='sweep' or 'closed'; stored ones, method='dense', are those of networks, which "
    "lg.train records."
)


@dataclass(frozen=True, kw_only=True)
class DeepMeanField(Theory):
    """The mean-field limit of fully connected, convolutional and residual networks.

    The equations of dynamical mean-field theory (Bordelon and Pehlevan, *Self-consistent dynamical
    field theory*, arXiv 2205.09653; Pehlevan and Bordelon's lecture notes, (65), corrected:
    A⁰ = Bᴸ = 0, and B at equal times is kept) are causal: one sweep in time solves
    them, without iteration. Gradient descent is exact at any step size; gradient flow is
    extrapolated from three lengths of steps. Expectations are averages over neurons. Their random
    matrices W(0) are not stored, but represented by their products with the directions that occur,
    and A and B are never formed. The error is estimated from independent replicates. Linear
    networks have closed equations instead, which are solved exactly.

    Convolutions share their weights between positions a of a sample (Bordelon et al., Depthwise
    hyperparameter transfer in residual networks, (134)-(135)): a Gaussian matrix for each place k
    of the window,

        hˡ⁺¹(a) = σ Σ_k W_k Σ_b T_k(a, b) φ(hˡ(b)),   K = Φᴸ + Σ_l Σ_ab Gˡ(a, b) Φˡ⁻¹(a, b),

    with strides, padding, dilation, linear pooling after activations, ``Flatten`` and transposed
    convolutions all contained in T. The cost of a step grows with samples × positions as it does
    with samples in fully connected networks; memory grows with the size of the window, too.

    Residual networks (Bordelon et al., Depthwise hyperparameter transfer in residual networks,
    (40), corrected: the update within a branch's gradient has a factor L^(−1/2), which is missing
    in print) have the branch's factor in σ, and one set of neurons for all layers of the residual
    stream.

    Layers may be normalised before their activation (:class:`~largen.LayerNorm`,
    :class:`~largen.RMSNorm`, :class:`~largen.layers.BatchNorm`), h̃ = (h − ⟨h⟩)/σ. Gradients pass
    through the averages, [v − ⟨v⟩ − h̃⟨h̃v⟩]/σ with v = φ'(h̃)z. As in :func:`largen.train`, the
    training samples are a batch, and the test samples another one.

    Parameters
    ----------
    method
        ``"closed"``: the closed equations of linear networks. ``"sweep"``: random matrices that
        are represented by the directions that they have acted on. ``"dense"``: networks with stored
        matrices, variance-reduced, of two widths, extrapolated in 1/N as far as their fluctuations
        allow; for activations like relu, whose gradients keep spanning new directions, and for
        Langevin noise.
        ``"auto"`` takes the first if it applies and fits into ``memory_budget`` (for residual
        networks it stores of order L²(4P + 128)² numbers, fewer for few steps), and the last if
        more directions than neurons are expected.
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|. Replicates are added
        until it is reached: until the 95 % interval is ± 1.96 ``rtol``.
    particles
        N, the number of neurons of a layer in each replicate; with ratios of widths, per unit of
        width. By default at least 2048 in the narrowest layer, and 16 for every sample (and
        position); for dense networks at least 1024, and 8 for every sample. Half of the dense
        networks have half that width.
    replicates
        The number of replicates; by default at least 4, and as many as ``rtol`` requires.
    max_particles
        The largest number of neurons of a layer, summed over all replicates. If it does not suffice
        for ``rtol``, the status of the result is ``"inaccurate"``.
    sampling
        ``"variance_reduced"``: averages at initialisation that are known in the limit are made
        exact. ``"finite_width"``: every replicate has the exact distribution of a network of width
        ``particles``, whose matrices need not be stored.
    memory_budget
        The number of bytes that one replicate, or closed equations, may take, in addition to the
        program itself. Several replicates are computed at the same time, one per core, if together
        they fit into the budget and into a GiB; the results do not depend on that.
    record
        Kernels to record, as in :func:`largen.train`: ``"feature_kernel"``, ``"gradient_kernel"``,
        ``"ntk"`` (among training samples, and between test and training samples). By default all of
        them among training samples. ``"singular_values"``: those of hidden weights.
    record_at
        Time indices of the trajectory at which kernels are recorded; the first and the last by
        default.
    record_pairs
        Pairs (t, s) of time indices between which Φˡ(t, s) and Gˡ(t, s) are recorded. Features and
        gradients at a time are kept in memory until the last time that is paired with it.
        ``"all"``: all pairs of the times of ``record_at``, or of all times without it;
        :meth:`largen.Trajectory.between_times` returns them as an array.
    sample_neurons
        The number of neurons of each layer whose h, g and z are recorded, on training samples. They
        are samples of the single-neuron process, correlated in time and between layers of a
        residual stream, and otherwise independent.
    fluctuations
        Whether to measure the fluctuations of networks of finite width, on 1024 networks of width
        128 for up to 32 samples, fewer and wider ones for more samples.
    checkpoint
        A file, such as ``"limit.npz"``, to which finished replicates are written, and beside which
        a folder (``"limit.npz.states"``) contains the state of each sweep, written every minute, at
        its end, and at an interrupt. The same call resumes from these files, with the same result,
        or adds replicates if ``replicates`` or ``max_particles`` are larger. A longer run that
        agrees with the checkpointed one (more ``steps`` or ``times``; a schedule with the same
        initial rates) resumes as well, with the same result as from the start. The states take
        about as much disk space per replicate as one replicate takes memory. Closed equations do
        not use checkpoints.
    key
        The key of the random matrices: a JAX key or an integer.
    progress
        Whether to show a progress bar; by default in terminals, after two seconds. A function is
        called with the completed and the total percentages, summed over replicates, from one thread
        at a time; an exception that it raises ends the solution.

    Notes
    -----
    The trajectory has ``f_train``, ``f_test`` and losses, with

    * ``f_train_error``, ``f_test_error``, with the same axes: the standard error of the mean
      over replicates, combined with the truncation error of omitted directions (and the error of
      finite time steps of gradient flow); the effect of omitted directions is measured on one
      replicate and, for smooth activations, added to the mean. For linear networks it is the
      error of the closed equations;
    * ``f_train_margin``, ``f_test_margin``: half of the 95 % interval, by Student's distribution of
      the number of replicates (± 3.2 standard errors for four, ± 2.0 for many);
    * ``f_train_std``, ``f_test_std`` with ``sampling="finite_width"``: the standard deviation
      of one network;
    * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``,
      and ``ntk``, ``(record, sample, sample_2)``; of several positions Φ is the mean over
      those that the next map reads, after pooling, ⟨φ(h(a))φ(h(a))⟩ at equal positions, and G
      the sum, as in :func:`largen.train`; with several outputs G and K have further axes
      ``output, output_2``. ``record_step`` contains the time indices;
    * with ``record_pairs``, ``feature_kernel_pair`` ⟨φ(hˡ_μ(t))φ(hˡ_ν(s))⟩ and
      ``gradient_kernel_pair`` ⟨gˡ_μ(t)gˡ_ν(s)⟩, ``(pair, layer, sample, sample_2)``, the
      first sample at t and the second at s; ``pair_step`` and ``pair_step_2`` are t and s;
    * on request ``ntk_test (record, test_sample, sample)``, and ``neuron_h``, ``neuron_g`` and
      ``neuron_z`` with axes ``(record, layer, neuron, sample)``: hˡ, gˡ and zˡ of single neurons,
      gˡ = φ'(hˡ)zˡ, to which a residual stream adds the gˡ⁺¹ of the layer above; with a last
      axis ``position`` if layers have several, NaN at positions that a layer does not have;
    * with ``record=["singular_values"]``, ``singular_values (record, weight_layer, value)``, the
      eight largest of the weights (times multiplier) into hidden layers 2 … L, or ``bulk_edge``,
      where the bulk ends, if that is larger, and ``right_overlap`` and ``left_overlap``; see
      :meth:`largen.Trajectory.weight_outliers`;
    * ``feature_kernel_error`` and so on, with the same axes: the standard error of the mean over
      replicates, combined with the truncation error of omitted directions;
    * ``f_train_fluctuation``, ``f_test_fluctuation`` with ``fluctuations`` or
      ``sampling="finite_width"``: √N times the standard deviation of a network of width N,
      which does not depend on N to leading order, and ``f_train_fluctuation_error``,
      ``f_test_fluctuation_error``, its standard errors. :func:`largen.compare` compares it with the
      distances of networks.

    If the directions outgrow the memory budget during the solution, the status is
    ``"out of memory"``.

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(3, "linear"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=60)
    >>> limit = lg.solve(run, theory=lg.theories.DeepMeanField(method="closed"))
    >>> limit.f_train[-1].round(6).tolist()
    [1.0, -1.0]
    """

    name: ClassVar[str] = "mean field, deep"
    papers: ClassVar[tuple[str, ...]] = (
        "bordelon2022self",
        "pehlevan2023lecture",
        "bordelon2023depthwise",
    )

    method: Method = "auto"
    rtol: float = 3e-3
    particles: int | None = None
    replicates: int | None = None
    max_particles: int = 2**17
    sampling: Sampling = "variance_reduced"
    memory_budget: float = MEMORY_BUDGET
    record: str | Sequence[str] | None = None
    record_at: Sequence[int] | None = None
    record_pairs: Sequence[tuple[int, int]] | Literal["all"] = ()
    sample_neurons: int = 0
    fluctuations: bool = False
    checkpoint: str | PathLike[str] | None = None
    key: Any = 0
    progress: bool | Report | None = None

    def __post_init__(self):
        one_of("method", self.method, METHODS)
        check_shared(self, fewest=1, more=SPECTRA)
        if self.sampling == "finite_width" and self.method not in ("auto", "sweep"):
            raise InvalidInput(
                f"sampling: 'finite_width' is for method='sweep', got method={self.method!r}."
            )

    @classmethod
    def pose(cls, run: Run) -> Posed[Problem]:
        """Return the mean-field problem of a run.

        Raises
        ------
        NoTheory
            If features do not move at order one (d ≠ ½), if the network is not a chain of affine
            maps, activations, linear pooling and residual branches of them, or if a weight's update
            vanishes or diverges with the width.
        NoRule
            For a layer that is none of these.
        """
        return posed_by(run)

    @interruptible()
    def solve(self, posed: Posed[Problem], *, throw: bool = True) -> Trajectory:
        """Solve the mean-field limit of a deep network."""
        run, problem = posed.run, posed.problem
        times = self.record_at, self.record_pairs
        record = records_of(problem, self.record, self.sample_neurons)
        wanted = wanted_kernels(run, record, *times, more=SPECTRA)
        outliers = SPECTRA[0] in wanted.names
        method = self._method(run, problem, outliers)
        if outliers and method == "dense":
            raise InvalidInput(STORED)
        kept = Kept(wanted.test, self.sample_neurons, outliers)
        if method == "closed":
            check_closed(problem, self.memory_budget)

        def solved(units: Units, again: bool) -> Attempt[tuple[Estimate, str | None]]:
            """Return an estimate, and the reason if it ends early for lack of memory."""
            enlarged, dtype = replace(problem, gamma=units.boost * problem.gamma), units.dtype
            if method == "closed":
                dtype = np.float64
                try:
                    one = solve_closed(enlarged, run, wanted.recorded, kept, self.memory_budget)
                    found = one, None
                except Stopped as failure:
                    found = failure.estimate, str(failure)
            else:
                settings = settings_for(self, enlarged, method, kept, dtype)
                found = sampled(self, enlarged, run, wanted.recorded, settings, again=again)
            return Attempt(found, found[0].f, dtype, found[1] is None)

        (estimate, stopped), units = solve_in_units(
            run,
            problem.gamma,
            readout_size(problem),
            self.rtol,
            solved,
            single=np.inf if method == "closed" else SINGLE,
            enlarges=self.sampling != "finite_width",
        )
        estimate = estimate.with_errors(units.error(estimate.f))
        spread = self._spread(posed, estimate, stopped)
        result = trajectory(posed, self.name, estimate, spread, wanted, self.rtol)
        return bounded(run, estimate.f, result, throw, stopped=stopped)

    def _method(self, run: Run, problem: Problem, outliers: bool) -> Method:
        """Return the method for a run, ``"auto"`` resolved; dense for outliers only if it must."""
        method = "sweep" if self.sampling == "finite_width" else self.method
        if temperature_of(run.optimizer):
            if method in ("sweep", "closed"):
                raise InvalidInput(
                    f"method: {run.optimizer} adds another random matrix at every step, which "
                    "matrices that are represented by their products (method='sweep', 'closed', "
                    "sampling='finite_width') cannot follow. Use method='dense' or 'auto'."
                )
            method = "dense"
        steps = len(run.times) - 1
        fits = closed_equations_fit(problem, run, self.memory_budget)
        chosen = choose_method(
            method, problem, steps, self.particles, self.sample_neurons > 0, fits
        )
        return "sweep" if outliers and method == "auto" and chosen == "dense" else chosen

    def _spread(
        self, posed: Posed[Problem], estimate: Estimate, stopped: str | None
    ) -> Fluctuations | None:
        """Return the fluctuations of networks of finite width, if requested."""
        if self.sampling == "finite_width" and estimate.f_std is not None:
            particles = self.particles or wanted_particles("sweep", posed.problem)
            std = particles**0.5 * estimate.f_std
            return Fluctuations(std, std / (2 * estimate.replicates - 2) ** 0.5)
        if not self.fluctuations or stopped is not None or not np.isfinite(estimate.f).all():
            return None
        width = unit_for(posed.problem, narrow_width(posed.problem.total))
        return measure_fluctuations(posed.run, width, self.key, self.progress)
