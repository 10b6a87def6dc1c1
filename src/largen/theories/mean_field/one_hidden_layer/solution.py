"""The options of the theory, and the trajectory of its solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput, one_of
from largen.interrupts import interruptible
from largen.progress import Report, reporter
from largen.runs import Posed, Run, Theory, Trajectory
from largen.runs.records import check_descent
from largen.runs.theory import set_fields
from largen.scalars import numpy_generator
from largen.theories.mean_field.answers import (
    bounded,
    error_in_words,
    judged,
    kernel_variables,
    output_variables,
    split_outputs,
)
from largen.theories.mean_field.one_hidden_layer import fluctuations as response
from largen.theories.mean_field.one_hidden_layer.dynamics import Records
from largen.theories.mean_field.one_hidden_layer.methods import (
    METHODS,
    Method,
    OneLayerEstimate,
    Particles,
    estimate,
)
from largen.theories.mean_field.one_hidden_layer.problem import OneLayerProblem, posed_by
from largen.theories.mean_field.options import Sampling, WantedKernels, check_shared, wanted_kernels

SHARPNESS = ("sharpness",)
# The variables that the sharpness becomes.
CURVED: tuple[str, ...] = ("hessian_sharpness", "single_neuron", "gradient_curvature")


@dataclass(frozen=True, kw_only=True)
class MeanField(Theory):
    """The mean-field limit of networks with one hidden layer.

    It is the limit of runs in ``lg.mean_field(gamma)`` or an equivalent parameterization (Pehlevan
    and Bordelon's lecture notes, eq. (64)). Discrete-time gradient descent is exact at any step
    size, and not an approximation of gradient flow: the measure of weights evolves as μ ← T(μ)
    (Golikov, *Towards a general theory of infinite-width limits of neural classifiers*, Theorem 1).
    Gradient flow is the Wasserstein gradient flow of the measure (Hanin's primer, §4.1). RMSProp
    and Adam move each weight of a neuron by averages of its own gradient.

    Parameters
    ----------
    method
        ``"closed"``: the closed equations of linear φ, exact to rounding. ``"quadrature"``: the
        trapezoidal rule over the Gaussian variables of a neuron, when there are at most 3 of
        them (the rank of K⁰ and the outputs; for adaptive optimizers the inputs and the outputs)
        and weights are Gaussian. ``"particles"``: a finite set of neurons that represents the
        measure, which applies to every run.
        ``"auto"`` takes the first of these that applies and reaches ``rtol``.
    rtol
        Target relative error of the whole trajectory of outputs, |error|/|f|.
    max_particles
        The largest number of neurons. If it does not suffice for ``rtol``, the status of the
        result is ``"inaccurate"``.
    particles
        The number of neurons of each of 8 replicates, whatever the error; the method is then
        ``"particles"``. By default the number is increased until ``rtol`` is reached.
    sampling
        The distribution of particles. ``"variance_reduced"``: scrambled Sobol points (``particles``
        is a power of two), with both signs of the read-out. ``"finite_width"``: independent
        neurons, so that each replicate is a network of width ``particles``; the error then falls
        only as one over the root of the number of neurons.
    record
        What to record, as in :func:`largen.train`: ``"feature_kernel"``, ``"gradient_kernel"``,
        ``"ntk"`` (among training samples, and between test and training samples), ``"sharpness"``.
        By default all kernels among training samples.
    record_at
        Time indices of the trajectory at which kernels are recorded; the first and the last by
        default.
    record_pairs
        Pairs (t, s) of time indices between which Φ(t, s) and G(t, s) are recorded. The neurons at
        these times are kept in memory. ``"all"``: all pairs of the times of ``record_at``, or of
        all times without it; :meth:`largen.Trajectory.between_times` returns them as an array.
    fluctuations
        Whether to compute the fluctuations of networks of finite width by linear response: see
        ``fluctuations.py``. This applies to gradient descent, and takes matrices over all time
        indices and samples.
    key
        The key of the particles: a JAX key or an integer.
    progress
        Progress in replicates: a bar or lines if None, as in :func:`largen.train`; or a function
        of (done, total).

    Notes
    -----
    The trajectory has ``f_train``, ``f_test`` and losses, with

    * ``f_train_error``, ``f_test_error``, with the same axes: for particles the standard
      error of the mean over independent replicates, for quadrature the difference of two
      grids, for closed equations the rounding error or the tolerance of the integrator; and
      for quadrature and particles likewise ``…_error`` of every kernel;
    * for particles ``f_train_margin``, ``f_test_margin``: half of the 95 % interval, by Student's
      distribution of the number of replicates;
    * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``,
      and ``ntk``, ``(record, sample, sample_2)``; on request ``ntk_test``, ``(record, test_sample,
      sample)``; with several outputs all but Φ have further axes ``output, output_2``.
      ``record_step`` contains their time indices. For adaptive optimizers, whose training does not
      follow the tangent kernel, there is no ``ntk``;
    * with ``record="sharpness"``, by particles and under gradient descent, ``hessian_sharpness
      (record)``: the largest eigenvalue of the loss's Hessian in units of the rate, as in
      :func:`largen.train`; and ``single_neuron (record)``, the largest fraction of its eigenvector
      in one neuron. Where this is not small, as early in training, the eigenvalue grows with the
      number of neurons, and has no limit; and ``gradient_curvature (record)``, the curvature along
      the gradient, which has one;
    * with ``record_pairs``, ``feature_kernel_pair`` and ``gradient_kernel_pair``, ``(pair,
      layer, sample, sample_2)``, the first sample at t and the second at s; ``pair_step`` and
      ``pair_step_2`` are t and s;
    * with ``fluctuations``, ``f_train_fluctuation`` and ``f_test_fluctuation``, with the axes
      of f: √N times the standard deviation of the outputs of a network of width N, to leading
      order; and ``f_train_fluctuation_covariance (step, sample, sample_2)``, N times their
      covariance. :func:`largen.compare` compares them with the distances of networks.
      ``f_train_drawn_fluctuation`` and ``f_test_drawn_fluctuation`` are those of N neurons drawn
      independently from the limit's law at each time, the N^(−1/2) of Barron's approximations
      (Hanin's primer, §4.1.1). Without a read-out bias, the difference of the squares is N times
      the covariance of zφ(h)/γ₀ between two neurons of a trained network, which vanishes in the
      limit (§4.1.2: propagation of chaos).

    Raises
    ------
    InvalidInput
        For an invalid option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=60)
    >>> limit = lg.solve(run, theory=lg.theories.MeanField(rtol=1e-3))
    >>> limit.f_train[-1].round(6).tolist()
    [1.0, -1.0]
    """

    name: ClassVar[str] = "mean field, one hidden layer"
    papers: ClassVar[tuple[str, ...]] = (
        "mei2018mean",
        "golikov2020towards",
        "pehlevan2023lecture",
        "hanin2026primer",
    )

    method: Method = "auto"
    rtol: float = 2e-3
    max_particles: int = 2**18
    particles: int | None = None
    sampling: Sampling = "variance_reduced"
    record: str | Sequence[str] | None = None
    record_at: Sequence[int] | None = None
    record_pairs: Sequence[tuple[int, int]] | Literal["all"] = ()
    fluctuations: bool = False
    key: Any = 0
    progress: bool | Report | None = None

    def __post_init__(self):
        one_of("method", self.method, METHODS)
        check_shared(self, fewest=2, more=SHARPNESS)
        if self.particles is None:
            return
        if self.sampling == "variance_reduced" and self.particles & (self.particles - 1):
            raise InvalidInput(f"particles: wanted a power of two, got {self.particles}.")
        if self.method == "auto":
            set_fields(self, method="particles")
        if self.method != "particles":
            raise InvalidInput(
                f"particles: are for method='particles', got method={self.method!r}."
            )

    @classmethod
    def pose(cls, run: Run) -> Posed[OneLayerProblem]:
        """Return the problem of a single neuron that a run poses.

        Raises
        ------
        NoTheory
            If features do not move at order one (d ≠ ½), if there is not exactly one hidden layer,
            or if a weight's update vanishes or diverges with the width.
        NoRule
            For a layer that is neither affine nor an activation.
        """
        return posed_by(run)

    @interruptible()
    def solve(self, posed: Posed[OneLayerProblem], *, throw: bool = True) -> Trajectory:
        """Solve the mean-field limit of a network with one hidden layer."""
        run, problem = posed.run, posed.problem
        times = self.record_at, self.record_pairs
        wanted = wanted_kernels(run, self.record, *times, more=SHARPNESS)
        if SHARPNESS[0] in wanted.names:
            check_descent("record", run.optimizer)
        if self.record is not None and "ntk" in wanted.names and run.optimizer.adaptive:
            raise InvalidInput(
                f"record: {run.optimizer} does not follow the NTK, and the limit has none; take "
                "'feature_kernel' and 'gradient_kernel'."
            )
        if self.fluctuations:
            response.check(run, problem)
        # The precision of the neurons depends on their error only, not on the data's precision.
        with precision(np.zeros((), np.float64)):
            drawn = Particles(self.sampling, self.particles)
            with reporter(self.progress, "mean field") as report:
                found = estimate(
                    problem,
                    run,
                    self.method,
                    self.rtol,
                    self.max_particles,
                    wanted,
                    self.key,
                    drawn,
                    report,
                )
            varies = None
            if self.fluctuations and found.finite:
                rng = numpy_generator(self.key)
                varies = response.fluctuations(problem, run, rng)
        result = _trajectory(posed, found, varies, wanted, self.rtol)
        return bounded(run, np.concatenate([found.f_train, found.f_test], 1), result, throw)


def _kernels(run: Run, records: Records, wanted: WantedKernels) -> dict[str, np.ndarray]:
    """Return kernels by name, with a leading axis of records or pairs."""

    def of_outputs(kernel: Any) -> np.ndarray:
        return kernel if run.output_shape else kernel[..., 0, 0]

    found: dict[str, Any] = {}
    if len(wanted.recorded.alone):
        found["feature_kernel"] = records.feature_kernel[:, None]
        found["gradient_kernel"] = of_outputs(records.gradient_kernel)[:, None]
        if not run.optimizer.adaptive:
            found["ntk"] = of_outputs(records.ntk)
            if records.ntk_test is not None:
                found["ntk_test"] = of_outputs(records.ntk_test)
    if records.sharpness is not None:
        found |= dict(zip(CURVED, np.asarray(records.sharpness).T, strict=True))
    if records.feature_kernel_pair is not None:
        found["feature_kernel_pair"] = records.feature_kernel_pair[:, None]
        found["gradient_kernel_pair"] = of_outputs(records.gradient_kernel_pair)[:, None]
    return found


def _trajectory(
    posed: Posed[OneLayerProblem],
    found: OneLayerEstimate,
    varies: response.Fluctuations | None,
    wanted: WantedKernels,
    rtol: float,
) -> Trajectory:
    run = posed.run

    def whole(parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts, axis=1)

    f, error = (
        whole((found.f_train, found.f_test)),
        whole((found.f_train_error, found.f_test_error)),
    )
    margin = None if found.margins is None else whole(found.margins)
    extra = output_variables(run, "error", error)
    if margin is not None:
        extra |= output_variables(run, "margin", margin)
    kernels = _kernels(run, found.records, wanted)
    if found.record_errors is not None:
        errors = _kernels(run, found.record_errors, wanted)
        kernels |= {f"{name}_error": kernel for name, kernel in errors.items()}
    extra |= kernel_variables(run, kernels, wanted, np.array([1]), dict.fromkeys(CURVED, ()))
    if varies is not None:
        drawn = whole((varies.drawn_train, varies.drawn_test))
        extra |= output_variables(run, "fluctuation", whole((varies.train, varies.test)))
        extra |= output_variables(run, "drawn_fluctuation", drawn)
        pair = ("output", "output_2") if run.output_shape else ()
        covariance = varies.covariance if pair else varies.covariance[..., 0, 0]
        extra["f_train_fluctuation_covariance"] = (
            ("step", "sample", "sample_2", *pair),
            covariance.astype(run.data.x_train.dtype),
        )
    result = Trajectory.of(
        run,
        *split_outputs(run, f),
        theory=MeanField.name,
        reason=posed.reason,
        extra=extra,
        notes=(error_in_words(found.how, f, error, margin, rtol),),
    )
    return judged(result, f, error, margin, rtol)
