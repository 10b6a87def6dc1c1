"""The methods of solution, and the error of each."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from largen.errors import InvalidInput
from largen.memory import check_fits
from largen.parameterizations import temperature_of
from largen.progress import Report
from largen.runs import Run
from largen.scalars import numpy_generator
from largen.theories.mean_field.engine.movement import Attempt, Units, solve_in_units
from largen.theories.mean_field.engine.statistics import (
    NORMAL,
    margin,
    mean_and_error,
    widening,
)
from largen.theories.mean_field.one_hidden_layer import neurons as sets
from largen.theories.mean_field.one_hidden_layer.dynamics import Records
from largen.theories.mean_field.one_hidden_layer.problem import LINEAR, OneLayerProblem
from largen.theories.mean_field.one_hidden_layer.training import train
from largen.theories.mean_field.options import NO_KERNELS, Sampling, WantedKernels

Method = Literal["auto", "closed", "quadrature", "particles"]
METHODS: tuple[Method, ...] = get_args(Method)
# For each kind of sampling, the function that draws neurons, and their name in messages.
DRAWN: dict[Sampling, tuple[Any, str]] = {
    "variance_reduced": (sets.quasi_random, "quasi-random"),
    "finite_width": (sets.independent, "independent"),
}

SINGLE = 1e-4  # smallest ``rtol`` for which particles may be in single precision
FEWEST, REPLICATES = 2048, 8  # smallest number of neurons in a replicate; number of replicates
MOST_GRID_DIMENSIONS = 3
WANTED_OF_GRID = 1e-9  # relative error down to which a grid is refined where this is cheap
SLOW_GAIN = 4.0  # error ratio of one refinement: 2 with a kink; analytic functions square the error
WANTED_OF_FLOW = 1e-10  # relative integration error, for closed equations and quadrature
LEAST_ORDER = 2.6  # order of convergence in the step above which φ counts as smooth
MOST_SUBSTEPS = 2**16


class Particles(NamedTuple):
    """Kind of sampling, and the number of particles per replicate; None if set by the error."""

    sampling: Sampling
    each: int | None


class OneLayerEstimate(NamedTuple):
    """Outputs ``(step, sample, output)``, kernels, errors, and a description of the method.

    With closed equations kernels are exact up to rounding, and have no error estimate.
    """

    f_train: np.ndarray
    f_test: np.ndarray
    records: Records
    f_train_error: np.ndarray
    f_test_error: np.ndarray
    record_errors: Records | None
    how: str
    margins: tuple[np.ndarray, np.ndarray] | None = None  # half of the intervals, for particles
    dtype: Any = np.float64  # the precision of the neurons

    @property
    def finite(self) -> bool:
        """Whether no output overflowed."""
        return bool(np.isfinite(self.f_train).all() and np.isfinite(self.f_test).all())

    @property
    def relative_error(self) -> float:
        """|error| / |f| over all time indices and samples, training and test."""
        return _ratio((self.f_train_error, self.f_test_error), (self.f_train, self.f_test))

    @property
    def f(self) -> np.ndarray:
        """Outputs of training and of test samples."""
        return np.concatenate([self.f_train, self.f_test], 1)

    def with_errors(self, more: np.ndarray) -> OneLayerEstimate:
        """Return the estimate with further errors of all outputs."""
        train, test = np.split(more, [self.f_train.shape[1]], 1)
        margins = self.margins and tuple(
            np.hypot(margin, NORMAL * part)
            for margin, part in zip(self.margins, (train, test), strict=True)
        )
        return self._replace(
            f_train_error=np.hypot(self.f_train_error, train),
            f_test_error=np.hypot(self.f_test_error, test),
            margins=margins,
        )


def estimate(
    posed: OneLayerProblem,
    run: Run,
    method: str,
    rtol: float,
    budget: int,
    wanted: WantedKernels,
    key: Any,
    drawn: Particles,
    report: Report,
) -> OneLayerEstimate:
    """Solve a problem by a method, or by the first that applies and reaches ``rtol``.

    With the precision, and the unit of γ₀, that its movement needs.
    """

    def solved(units: Units, again: bool) -> Attempt[OneLayerEstimate]:
        enlarged, dtype = posed.enlarged(units.boost), units.dtype
        found = _estimate(enlarged, run, method, rtol, budget, wanted, key, drawn, report, dtype)
        return Attempt(found, found.f, found.dtype)

    found, units = solve_in_units(
        run,
        posed.gamma,
        posed.readout_size,
        rtol,
        solved,
        single=SINGLE,
        enlarges=drawn.sampling != "finite_width",
    )
    return found.with_errors(units.error(found.f))


def _estimate(
    posed: OneLayerProblem,
    run: Run,
    method: str,
    rtol: float,
    budget: int,
    wanted: WantedKernels,
    key: Any,
    drawn: Particles,
    report: Report,
    dtype: Any,
) -> OneLayerEstimate:
    """Solve a problem by a method; particles have a given precision."""
    refusals = {name: refusal(posed, run) for name, refusal in REFUSALS.items()}
    if "sharpness" in wanted.names:
        refusals = dict.fromkeys(refusals, "the sharpness is that of particles. Use 'particles'.")
    if refusals.get(method):
        raise InvalidInput(f"method: {refusals[method]}")
    if method == "closed" or (method == "auto" and not refusals["closed"]):
        return solve_closed(posed, run, wanted)
    if method == "quadrature" or (method == "auto" and not refusals["quadrature"]):
        patient = method == "quadrature" or posed.dimensions <= 2
        found = quadrature(posed, run, rtol, budget, wanted, patient)
        if method == "quadrature" or not found.finite or found.relative_error <= rtol:
            return found
    return particles(posed, run, rtol, budget, wanted, key, drawn, report, dtype)


def _no_closed_equations(posed: OneLayerProblem, run: Run) -> str:
    """Why closed equations do not exist; empty if they do."""
    if temperature_of(run.optimizer) > 0:
        return _at_random("closed", run)
    if posed.phi == LINEAR and posed.steps is None:
        return ""
    return (
        "closed equations exist for the linear activation and gradient descent, this run has "
        f"{posed.phi} and {run.optimizer}. Use 'quadrature', 'particles' or 'auto'."
    )


def _no_quadrature(posed: OneLayerProblem, run: Run) -> str:
    """Why there is no quadrature over initial weights; empty if there is."""
    if temperature_of(run.optimizer) > 0:
        return _at_random("quadrature", run)
    if posed.start is not None:
        return (
            "quadrature is over Gaussian weights; those of this run are not. Use 'particles' or "
            "'auto'."
        )
    if posed.dimensions <= MOST_GRID_DIMENSIONS:
        return ""
    return (
        f"quadrature takes at most {MOST_GRID_DIMENSIONS} Gaussian variables, this run has "
        f"{posed.dimensions} (rank {posed.directions} of the inputs, {posed.outputs} "
        f"output{'s' * (posed.outputs > 1)}). Use 'particles' or 'auto'."
    )


def _at_random(method: str, run: Run) -> str:
    return (
        f"{method!r} follows neurons from their initial weights alone, and those of "
        f"{run.optimizer} move at random. Use 'particles' or 'auto'."
    )


REFUSALS = {"closed": _no_closed_equations, "quadrature": _no_quadrature}


def solve_closed(posed: OneLayerProblem, run: Run, wanted: WantedKernels) -> OneLayerEstimate:
    """Solve the closed equations of linear φ, where neurons are linear in their initial state."""
    units = sets.unit_vectors(posed)
    substeps, late = _flow_steps(posed, run, units, WANTED_OF_FLOW, 0.0)
    *f, records = train(posed, run, units, wanted, substeps=substeps)
    rounding = np.finfo(np.float64).eps * (1 + np.arange(len(run.times)))[:, None, None]
    errors = [rounding * np.abs(values) + e for values, e in zip(f, late, strict=True)]
    how = "closed equations of linear φ"
    return OneLayerEstimate(f[0], f[1], records, errors[0], errors[1], None, how)


def quadrature(
    posed: OneLayerProblem, run: Run, rtol: float, budget: int, wanted: WantedKernels, patient: bool
) -> OneLayerEstimate:
    """Refine a grid until two grids agree; their difference is the error of the coarser one.

    If refinement converges slowly, it stops, since particles are then more efficient, unless
    ``rtol`` is not reached and ``patient`` is set.
    """
    step, before = sets.first_step(posed), np.inf
    neurons = sets.grid(posed, step)
    substeps, late = _flow_steps(posed, run, neurons, WANTED_OF_FLOW, rtol / 10)
    *coarse, coarse_records = train(posed, run, neurons, wanted, substeps=substeps)
    while True:
        step /= np.sqrt(2)
        neurons = sets.grid(posed, step)
        *fine, records = train(posed, run, neurons, wanted, substeps=substeps)
        errors = [np.abs(a - b) + e for a, b, e in zip(fine, coarse, late, strict=True)]
        how = f"trapezoidal rule of {len(neurons)} neurons"
        gaps = jax.tree.map(lambda a, b: np.abs(a - b), records, coarse_records)
        found = OneLayerEstimate(fine[0], fine[1], records, errors[0], errors[1], gaps, how)
        error = found.relative_error
        slow = before < SLOW_GAIN * error and (error <= rtol or not patient)
        too_large = 3 * len(neurons) > budget
        if error <= WANTED_OF_GRID or slow or too_large or not found.finite:
            return found
        coarse, coarse_records, before = fine, records, error


def particles(
    posed: OneLayerProblem,
    run: Run,
    rtol: float,
    budget: int,
    wanted: WantedKernels,
    key: Any,
    drawn: Particles,
    report: Report,
    dtype: Any,  # the precision of the neurons
) -> OneLayerEstimate:
    """Average over independent replicates, with more and more neurons until ``rtol`` is reached."""
    draw, called = DRAWN[drawn.sampling]
    rng = numpy_generator(key)
    count, replicates = drawn.each or FEWEST, REPLICATES
    fields = posed.dimensions + len(posed.train) + len(posed.test)
    check_fits(
        8.0 * 6 * count * fields, f"particles: {count} neurons of a replicate", "Take fewer."
    )
    pilot = sets.quasi_random(posed, FEWEST, rng)
    substeps, late = _flow_steps(posed, run, pilot, rtol / 10, rtol / 10)
    noisy = temperature_of(run.optimizer) > 0
    while True:
        samples = []
        for done in range(replicates):
            report(done, replicates)
            neurons, noise = draw(posed, count, rng), int(rng.integers(2**31)) if noisy else 0
            one = train(posed, run, neurons, wanted, substeps=substeps, dtype=dtype, key=noise)
            samples.append(one)
        report(replicates, replicates)
        how = f"{replicates} replicates of {count} {called} neurons"
        found = _replicate(samples, late, how)._replace(dtype=dtype)
        error, spent = found.relative_error * widening(replicates), replicates * count
        enough = drawn.each is not None or error <= rtol or 2 * spent > budget
        if enough or not found.finite:
            return found
        # The error falls at least as one over the square root of the number of neurons.
        further = min(int(spent * np.clip((error / rtol) ** 2 * 1.2, 2, 32)), budget)
        count = 2 ** int(np.log2(further / REPLICATES))
        replicates = further // count


def _replicate(samples: list, late: tuple[Any, Any], how: str) -> OneLayerEstimate:
    """Return the mean over replicates, with its standard error and the integration error."""

    def averaged(which: int) -> Any:
        """Return the means (0) or the standard errors (1)."""
        return jax.tree.map(
            lambda *values: mean_and_error(np.stack(values).astype(np.float64))[which], *samples
        )

    (f_train, f_test, records), (*sampling, of_records) = averaged(0), averaged(1)
    with np.errstate(invalid="ignore", over="ignore"):
        train, test = (np.hypot(s, e) for s, e in zip(sampling, late, strict=True))
    count = len(samples)
    margins = margin(train, sampling[0], count), margin(test, sampling[1], count)
    return OneLayerEstimate(f_train, f_test, records, train, test, of_records, how, margins)


def _flow_steps(
    posed: OneLayerProblem, run: Run, neurons: sets.Neurons, wanted: float, enough: float
) -> tuple[np.ndarray | None, tuple[Any, Any]]:
    """Return the number of flow steps between time indices, and the remaining integration error.

    Steps are divided until the outputs of a set of neurons agree to a relative error ``wanted``, or
    ``enough`` if they do not converge with the order 4 of the method because φ' jumps. For steps h
    and h/m, the error of the finer one is at most their difference over m² − 1, since the order is
    2 on average if φ' jumps.
    """
    if not run.optimizer.continuous:
        return None, (0.0, 0.0)

    def solve(substeps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f_train, f_test, _ = train(posed, run, neurons, NO_KERNELS, substeps=substeps)
        return f_train, f_test

    first = 0.5 * _fastest_time(posed, run, neurons)
    substeps, divisor = np.ceil(np.append(np.diff(run.times), 0.0) / first).astype(int), 2
    before, expected = solve(substeps), np.inf
    while True:
        substeps = divisor * substeps
        now = solve(substeps)
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.abs(now[0] - before[0]), np.abs(now[1] - before[1])
        late = gaps[0] / (divisor**2 - 1), gaps[1] / (divisor**2 - 1)
        gap, error = _ratio(gaps, now), _ratio(late, now)
        done = error <= wanted or (error <= enough and gap > expected)
        if done or divisor * substeps.sum() > MOST_SUBSTEPS:
            return substeps, late
        # The gap estimates the error of the coarser step; the next gap is smaller by a power of
        # the divisor of this step.
        expected = gap / divisor**LEAST_ORDER
        ratio = error / wanted if np.isfinite(error) else 16.0
        divisor = int(2 ** np.clip(np.ceil(np.log2(ratio) / 4), 1, 3))
        before = now


def _fastest_time(posed: OneLayerProblem, run: Run, neurons: sets.Neurons) -> float:
    """Return the time scale of the fastest mode of the tangent kernel at initialisation."""
    weighted = neurons.weights[:, None] * neurons.readout
    h = neurons.directions @ posed.train.T
    features, slopes = np.asarray(posed.phi(h)), np.asarray(posed.phi.derivative(h))
    backward = np.sum(weighted * neurons.readout, axis=1) / posed.outputs
    kernel = posed.out_rate * (neurons.weights[:, None] * features).T @ features
    kernel += (backward[:, None] * slopes).T @ slopes * ((posed.train * posed.rate) @ posed.train.T)
    kernel += posed.out_bias_rate
    rate = run.optimizer.lr * np.linalg.eigvalsh(kernel)[-1] / len(kernel)
    return min(1 / max(rate, 1e-300), float(run.times[-1]))


def _ratio(errors: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]) -> float:
    """Return the norm of the errors over that of the values; 0/0 is 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        above = np.sqrt(sum(np.sum(e**2) for e in errors))
        below = np.sqrt(sum(np.sum(v**2) for v in values))
        return float(above / below) if above else 0.0
