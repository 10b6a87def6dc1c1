"""The door: what may be asked, and the trajectory that answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from largen.arrays import integer, precision, random_key, real
from largen.dmft.one_hidden_layer import fluctuations as response
from largen.dmft.one_hidden_layer.dynamics import Records
from largen.dmft.one_hidden_layer.methods import METHODS, SAMPLING, Estimate, Particles, estimate
from largen.dmft.one_hidden_layer.problem import covers, problem
from largen.dmft.recorded import Recorded
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.networks.progress import Report, reporter
from largen.runs import Run, Trajectory


def solve(
    run: Run,
    *,
    method: str = "auto",
    rtol: float = 2e-3,
    max_particles: int = 2**18,
    particles: int | None = None,
    sampling: str = "quasi-random",
    record_at: Sequence[int] | None = None,
    record_pairs: Sequence[tuple[int, int]] = (),
    fluctuations: bool = False,
    key: Any = 0,
    progress: bool | Report | None = None,
    throw: bool = True,
) -> Trajectory:
    """Solve the mean-field limit of a network with one hidden layer.

    Discrete-time gradient descent is exact at any step size: it is not an approximation of
    gradient flow. Pehlevan and Bordelon's lecture notes, eq. (64); Golikov, *Towards a general
    theory of infinite-width limits of neural classifiers*, Theorem 1: the measure of weights
    moves as μ ← T(μ). Gradient flow is its Wasserstein gradient flow (Hanin's primer, §4.1).
    RMSProp and Adam move each weight of a neuron by averages of its own gradient.

    Parameters
    ----------
    run
        The run: ``lg.mean_field(gamma)`` or what is equivalent to it, one hidden layer.
    method
        ``"closed"``: the closed equations of linear φ, exact to rounding. ``"quadrature"``: the
        trapezoidal rule over the Gaussian variables of a neuron, when there are at most 3 of
        them (the rank of K⁰ and the outputs; for adaptive optimizers the inputs and the outputs)
        and weights are Gaussian. ``"particles"``: a finite set of neurons that stands for the
        measure, always.
        ``"auto"`` takes the first of these that applies and reaches ``rtol``.
    rtol
        Wanted error of the whole trajectory of outputs, relative: |error|/|f|.
    max_particles
        Most neurons to spend. If they do not reach ``rtol``, the result says so in its notes.
    particles
        With ``method="particles"``: neurons of each of 8 replicates, whatever error they leave.
        By default there are as many as ``rtol`` takes.
    sampling
        ``"quasi-random"``: scrambled Sobol points (then ``particles`` is a power of two), with
        both signs of the read-out. ``"independent"``: each replicate is a network of that width;
        its error falls as the square root of their number only.
    record_at
        Entries of the trajectory at which kernels are kept; the first and the last by default.
    record_pairs
        Pairs (t, s) of entries between which Φ(t, s) and G(t, s) are kept. The neurons of these
        entries are remembered.
    fluctuations
        Whether to compute, by linear response, how networks of finite width vary: see
        :mod:`largen.dmft.one_hidden_layer.fluctuations`. For gradient descent and as many entries
        times samples as fit into a matrix.
    key
        Of the quasi-random neurons.
    progress
        Of replicates: a bar in a terminal if None; or a function of (done, total).
    throw
        Whether a diverged solution is raised or returned.

    Returns
    -------
    Trajectory
        ``f_train``, ``f_test`` and losses, with

        * ``f_train_error``, ``f_test_error``, of the same axes: with particles the standard
          error of the mean of independent replicates, with quadrature the difference of two
          grids, with closed equations the rounding error or the tolerance of the integrator; and
          by quadrature and particles ``…_error`` of every kernel likewise;
        * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``,
          and ``ntk``, ``(record, sample, sample_2)``; with several outputs the latter two have
          ``output, output_2`` behind. ``record_step`` says where they were recorded. Adaptive
          optimizers do not follow the NTK, and have none;
        * with ``record_pairs``, ``feature_kernel_pair`` and ``gradient_kernel_pair``, ``(pair,
          layer, sample, sample_2)``, the first sample at t and the second at s; ``pair_step`` and
          ``pair_step_2`` are t and s;
        * with ``fluctuations``, ``f_train_fluctuation`` and ``f_test_fluctuation``, of the axes
          of f: √N times the standard deviation of the outputs of a network of width N, to leading
          order; and ``f_train_fluctuation_covariance (step, sample, sample_2)``, N times their
          covariance. :func:`largen.compare` sets them beside the networks' distances.

    Raises
    ------
    NoTheory
        If the run is not covered.
    InvalidInput
        For an argument that cannot be meant.
    NumericalFailure
        If training diverges; its ``result`` is the trajectory.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1, "linear"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=60)
    >>> limit = solve(run)
    >>> limit.f_train[-1].round(6).tolist()
    [1.0, -1.0]
    """
    reason = covers(run)
    one_of("method", method, METHODS)
    rtol = real("rtol", rtol, above=0)
    max_particles = integer("max_particles", max_particles, at_least=1)
    one_of("sampling", sampling, SAMPLING)
    if particles is not None:
        particles = integer("particles", particles, at_least=2)
        if sampling == "quasi-random" and particles & (particles - 1):
            raise InvalidInput(f"particles: wanted a power of two, got {particles}.")
        if method != "particles":
            raise InvalidInput(f"particles: are for method='particles', got method={method!r}.")
    alone = np.array(run.entries("record_at", record_at), dtype=int)
    recorded = Recorded(alone, run.pairs("record_pairs", record_pairs))
    posed = problem(run)
    if fluctuations:
        response.check(run, posed)
    # Neurons compute in the precision that their own error asks for, whatever that of the data.
    with precision(np.zeros((), np.float64)):
        drawn = Particles(sampling, particles)
        with reporter(progress, "mean field") as report:
            found = estimate(posed, run, method, rtol, max_particles, recorded, key, drawn, report)
        varies = None
        if fluctuations and found.finite:
            rng = np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))))
            varies = response.fluctuations(posed, run, rng)
    result = _trajectory(run, found, varies, recorded, reason, rtol)
    if throw and not found.finite:
        first = int(np.argmin(np.isfinite(found.f_train).all(axis=(1, 2))))
        raise NumericalFailure(
            f"the mean-field limit diverges: outputs are not finite from entry {first} "
            f"(time {run.times[first]:g}) on. Lower the learning rate or gamma, or pass "
            "throw=False to get what was computed.",
            result,
        )
    return result


def _trajectory(
    run: Run,
    found: Estimate,
    varies: response.Fluctuations | None,
    recorded: Recorded,
    reason: str,
    rtol: float,
) -> Trajectory:
    dtype = run.data.x_train.dtype
    out = ("output",) if run.output_shape else ()
    pair = ("output", "output_2") if run.output_shape else ()

    def shaped(f: np.ndarray) -> np.ndarray:
        return f.reshape(*f.shape[:2], *run.output_shape).astype(dtype)

    def paired(kernel: Any) -> np.ndarray:
        return (kernel if run.output_shape else kernel[..., 0, 0]).astype(dtype)

    samples = ("sample", "sample_2")

    def kernels(records: Records, suffix: str = "") -> dict[str, Any]:
        kept: dict[str, Any] = {}
        if len(recorded.alone):
            features, gradients = records.feature_kernel, paired(records.gradient_kernel)
            kept["feature_kernel"] = (("record", "layer", *samples), features[:, None])
            kept["gradient_kernel"] = (("record", "layer", *samples, *pair), gradients[:, None])
            if not run.optimizer.adaptive:
                kept["ntk"] = (("record", *samples, *pair), paired(records.ntk))
        if len(recorded.pairs):
            features, gradients = records.feature_kernel_pair, records.gradient_kernel_pair
            assert features is not None
            assert gradients is not None
            gradients = paired(gradients)
            kept["feature_kernel_pair"] = (("pair", "layer", *samples), features[:, None])
            kept["gradient_kernel_pair"] = (("pair", "layer", *samples, *pair), gradients[:, None])
        return {name + suffix: (axes, part.astype(dtype)) for name, (axes, part) in kept.items()}

    extra: dict[str, Any] = {
        "f_train_error": (("step", "sample", *out), shaped(found.f_train_error)),
        "f_test_error": (("step", "test_sample", *out), shaped(found.f_test_error)),
    }
    if len(recorded.alone) or len(recorded.pairs):
        extra["layer"] = (("layer",), np.array([1]))
    if len(recorded.alone):
        extra["record_step"] = (("record",), recorded.alone)
    if len(recorded.pairs):
        extra["pair_step"] = (("pair",), recorded.pairs[:, 0])
        extra["pair_step_2"] = (("pair",), recorded.pairs[:, 1])
    extra |= kernels(found.records)
    if found.record_errors is not None:
        extra |= kernels(found.record_errors, "_error")
    if varies is not None:
        extra |= {
            "f_train_fluctuation": (("step", "sample", *out), shaped(varies.train)),
            "f_test_fluctuation": (("step", "test_sample", *out), shaped(varies.test)),
            "f_train_fluctuation_covariance": (
                ("step", *samples, *pair),
                paired(varies.covariance),
            ),
        }
    error = found.relative_error
    note = f"{found.how}; estimated error of the outputs {error:.1e} of their size"
    if error > rtol:
        note += f", more than rtol={rtol:g}: raise max_particles for more"
    return Trajectory.of(
        run,
        shaped(found.f_train),
        shaped(found.f_test),
        theory="mean field, one hidden layer",
        reason=reason,
        extra=extra,
        notes=(note,),
    )
