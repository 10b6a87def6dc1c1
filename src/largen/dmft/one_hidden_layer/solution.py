"""The choice of neurons, their number, and the error that is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.arrays import integer, precision, random_key, real
from largen.dmft.one_hidden_layer import neurons as sets
from largen.dmft.one_hidden_layer.dynamics import (
    Model,
    Records,
    descend,
    flow,
    prepare,
    sample_weights,
)
from largen.dmft.one_hidden_layer.problem import LINEAR, Problem, covers, problem
from largen.errors import InvalidInput, NumericalFailure, one_of
from largen.parameterizations import GradientFlow
from largen.runs import Run, Trajectory

Method = Literal["auto", "closed", "quadrature", "particles"]
METHODS = ("auto", "closed", "quadrature", "particles")

REPLICATES = 8
MOST_GRID_DIMENSIONS = 3
WANTED_OF_GRID = 1e-9  # relative; refinement goes on to here where it is cheap
SLOW_GAIN = 4.0  # of one refinement: a kink gains 2, an analytic function squares the error


class Estimate(NamedTuple):
    """Outputs, kernels, the error of the outputs, and how they were got."""

    f_train: np.ndarray
    f_test: np.ndarray
    records: Records
    f_train_error: np.ndarray
    f_test_error: np.ndarray
    how: str

    @property
    def finite(self) -> bool:
        """Whether no output overflowed."""
        return bool(np.isfinite(self.f_train).all() and np.isfinite(self.f_test).all())

    @property
    def relative_error(self) -> float:
        """|error| / |f| over all entries and samples, training and test."""
        return _ratio((self.f_train_error, self.f_test_error), (self.f_train, self.f_test))


def solve(
    run: Run,
    *,
    method: Method = "auto",
    rtol: float = 2e-3,
    max_particles: int = 2**18,
    record_at: Sequence[int] | None = None,
    key: Any = 0,
    throw: bool = True,
) -> Trajectory:
    """Solve the mean-field limit of a network with one hidden layer.

    Discrete-time gradient descent is exact at any step size: it is not an approximation of
    gradient flow. Pehlevan and Bordelon's lecture notes, eq. (64); Golikov, Theorem 1.

    Parameters
    ----------
    run
        The run: ``lg.mean_field(gamma)`` or what is equivalent to it, one hidden layer.
    method
        ``"closed"``: the closed equations of linear φ, exact to rounding. ``"quadrature"``: the
        trapezoidal rule over the Gaussian variables of a neuron, when there are at most 3 of
        them (the rank of K⁰ and the outputs). ``"particles"``: quasi-random neurons, always.
        ``"auto"`` takes the first of these that applies and reaches ``rtol``.
    rtol
        Wanted error of the whole trajectory of outputs, relative: |error|/|f|.
    max_particles
        Most neurons to spend. If they do not reach ``rtol``, the result says so in its notes.
    record_at
        Entries of the trajectory at which kernels are kept; the first and the last by default.
    key
        Of the quasi-random neurons.
    throw
        Whether a diverged solution is raised or returned.

    Returns
    -------
    Trajectory
        ``f_train``, ``f_test`` and losses, with

        * ``f_train_error``, ``f_test_error``, of the same axes: with particles the standard
          error of the mean of independent replicates, with quadrature the difference of two
          grids, with closed equations the rounding error or the tolerance of the integrator;
        * ``feature_kernel`` Φ and ``gradient_kernel`` G, ``(record, layer, sample, sample_2)``,
          and ``ntk``, ``(record, sample, sample_2)``; with several outputs the latter two have
          ``output, output_2`` behind. ``record_step`` says where they were recorded.

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
    if method not in METHODS:
        raise one_of("method", method, METHODS)
    rtol = real("rtol", rtol, above=0)
    max_particles = integer("max_particles", max_particles, at_least=1)
    recorded = _record_at(run, record_at)
    posed = problem(run)
    # Neurons compute in the precision that their own error asks for, whatever that of the data.
    with precision(np.zeros((), np.float64)):
        estimate = _estimate(posed, run, method, rtol, max_particles, recorded, key)
    result = _trajectory(run, estimate, recorded, reason, rtol)
    if throw and not estimate.finite:
        first = int(np.argmin(np.isfinite(estimate.f_train).all(axis=(1, 2))))
        raise NumericalFailure(
            f"the mean-field limit diverges: outputs are not finite from entry {first} "
            f"(time {run.times[first]:g}) on. Lower the learning rate or gamma, or pass "
            "throw=False to get what was computed.",
            result,
        )
    return result


def _estimate(
    posed: Problem, run: Run, method: Method, rtol: float, budget: int, recorded, key
) -> Estimate:
    linear = posed.phi == LINEAR
    if method == "closed" and not linear:
        raise InvalidInput(
            f"method: closed equations exist for the linear activation, this one is {posed.phi}. "
            "Use 'quadrature', 'particles' or 'auto'."
        )
    if method == "closed" or (method == "auto" and linear):
        return _closed(posed, run, recorded)
    few = posed.dimensions <= MOST_GRID_DIMENSIONS
    if method == "quadrature" and not few:
        raise InvalidInput(
            f"method: quadrature takes at most {MOST_GRID_DIMENSIONS} Gaussian variables, this "
            f"run has {posed.dimensions} (rank {posed.directions} of the inputs, "
            f"{posed.outputs} output{'s' * (posed.outputs > 1)}). Use 'particles' or 'auto'."
        )
    if method == "quadrature" or (method == "auto" and few):
        found = _quadrature(posed, run, rtol, budget, recorded)
        if method == "quadrature" or not found.finite or found.relative_error <= rtol:
            return found
    return _particles(posed, run, rtol, budget, recorded, key)


def _closed(posed: Problem, run: Run, recorded) -> Estimate:
    units = sets.unit_vectors(posed)
    *f, records = _train(posed, run, units, recorded, tolerance=1e-12)
    if isinstance(run.optimizer, GradientFlow):
        *loose, _ = _train(posed, run, units, recorded, tolerance=1e-10)
        errors = [np.abs(a - b) for a, b in zip(f, loose, strict=True)]
    else:
        rounding = np.finfo(np.float64).eps * (1 + np.arange(len(run.times)))
        errors = [rounding[:, None, None] * np.abs(values) for values in f]
    return Estimate(f[0], f[1], records, errors[0], errors[1], "closed equations of linear φ")


def _quadrature(posed: Problem, run: Run, rtol: float, budget: int, recorded) -> Estimate:
    step, before, gained = sets.first_step(posed), np.inf, np.inf
    *coarse, records = _train(posed, run, sets.grid(posed, step), recorded, tolerance=1e-11)
    while True:
        step /= np.sqrt(2)
        fine_neurons = sets.grid(posed, step)
        *fine, records = _train(posed, run, fine_neurons, recorded, tolerance=1e-11)
        errors = [np.abs(a - b) for a, b in zip(fine, coarse, strict=True)]
        how = f"trapezoidal rule of {len(fine_neurons)} neurons"
        found = Estimate(fine[0], fine[1], records, errors[0], errors[1], how)
        error = found.relative_error
        gained, before = before / max(error, 1e-300), error
        slow = error <= rtol and gained < SLOW_GAIN
        too_large = 3 * len(fine_neurons) > budget
        if error <= WANTED_OF_GRID or slow or too_large or not found.finite:
            return found
        coarse = fine


def _particles(posed: Problem, run: Run, rtol: float, budget: int, recorded, key) -> Estimate:
    rng = np.random.default_rng(np.asarray(jax.random.key_data(random_key(key))))
    # Single precision is exact enough beside the sampling error, unless f = ⟨zφ⟩/γ₀ is a small
    # difference, or little error is wanted.
    single = posed.gamma >= 0.03 and rtol >= 1e-4
    dtype = np.float32 if single else np.float64
    count, replicates = sets.fewest(posed), REPLICATES
    while True:
        samples = [
            _train(
                posed,
                run,
                sets.quasi_random(posed, count, rng),
                recorded,
                tolerance=1e-6,
                dtype=dtype,
            )
            for _ in range(replicates)
        ]
        found = _replicated(samples, f"{replicates} replicates of {count} quasi-random neurons")
        error = found.relative_error
        # The error falls at least as the square root of the number.
        spent = replicates * count
        wanted = min(int(spent * np.clip((error / rtol) ** 2 * 1.2, 2, 32)), budget)
        if not found.finite or error <= rtol or wanted <= spent:
            return found
        count = 2 ** int(np.log2(wanted / REPLICATES))
        replicates = wanted // count


def _replicated(samples: list, how: str) -> Estimate:
    def mean(*values):
        return np.mean(np.stack(values).astype(np.float64), 0)

    def error(*values):
        return np.std(np.stack(values).astype(np.float64), 0, ddof=1) / np.sqrt(len(values))

    with np.errstate(invalid="ignore", over="ignore"):
        f_train, f_test, records = jax.tree.map(mean, *samples)
        errors = [error(*values) for values in list(zip(*samples, strict=True))[:2]]
    return Estimate(f_train, f_test, records, errors[0], errors[1], how)


def _train(
    posed: Problem,
    run: Run,
    neurons: sets.Neurons,
    recorded,
    *,
    tolerance: float,
    dtype: Any = np.float64,
) -> tuple[np.ndarray, np.ndarray, Records]:
    """Return outputs ``(step, sample, output)`` and kernels of a set of neurons."""
    model = Model(posed.phi, run.loss, run.output_shape)
    state, constants = prepare(posed, run, neurons, dtype)
    counts = sample_weights(run, dtype)
    at = jnp.asarray(recorded, int)
    if run.steps is None:
        times = jnp.asarray(run.times, dtype)
        out = flow(model, times, state, constants, counts, at, jnp.asarray(tolerance, dtype))
    else:
        out = descend(model, run.steps, state, constants, counts, at)
    return jax.tree.map(np.asarray, out)


def _trajectory(
    run: Run, estimate: Estimate, recorded: np.ndarray, reason: str, rtol: float
) -> Trajectory:
    dtype = run.data.x_train.dtype
    out = ("output",) if run.output_shape else ()
    pair = ("output", "output_2") if run.output_shape else ()

    def shaped(f: np.ndarray) -> np.ndarray:
        return f.reshape(*f.shape[:2], *run.output_shape).astype(dtype)

    def paired(kernel: Any) -> np.ndarray:
        return (kernel if run.output_shape else kernel[..., 0, 0]).astype(dtype)

    records, samples = estimate.records, ("sample", "sample_2")
    extra = {
        "f_train_error": (("step", "sample", *out), shaped(estimate.f_train_error)),
        "f_test_error": (("step", "test_sample", *out), shaped(estimate.f_test_error)),
    }
    if len(recorded):
        extra |= {
            "record_step": (("record",), recorded),
            "layer": (("layer",), np.array([1])),
            "feature_kernel": (
                ("record", "layer", *samples),
                records.feature_kernel[:, None].astype(dtype),
            ),
            "gradient_kernel": (
                ("record", "layer", *samples, *pair),
                paired(records.gradient_kernel)[:, None],
            ),
            "ntk": (("record", *samples, *pair), paired(records.ntk)),
        }
    error = estimate.relative_error
    note = f"{estimate.how}; estimated error of the outputs {error:.1e} of their size"
    if error > rtol:
        note += f", more than rtol={rtol:g}: raise max_particles for more"
    return Trajectory.of(
        run,
        shaped(estimate.f_train),
        shaped(estimate.f_test),
        theory="mean field, one hidden layer",
        reason=reason,
        extra=extra,
        notes=(note,),
    )


def _record_at(run: Run, record_at: Sequence[int] | None) -> np.ndarray:
    last = len(run.times) - 1
    if record_at is None:
        return np.array([0, last])
    wanted = [integer("record_at", entry, at_least=0) for entry in record_at]
    if wanted and max(wanted) > last:
        raise InvalidInput(f"record_at: the last entry is {last}, got {max(wanted)}.")
    return np.unique(np.array(wanted, dtype=int))


def _ratio(errors: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]) -> float:
    """Return the norm of some arrays over that of others; 0/0 is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        above = np.sqrt(sum(np.sum(e**2) for e in errors))
        below = np.sqrt(sum(np.sum(v**2) for v in values))
        return float(above / below) if above else 0.0
