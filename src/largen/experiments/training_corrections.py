"""Networks whose features move, to order 1/width: mean shift and variance, by layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from largen.bibliography import cites
from largen.errors import NoTheory, OutOfMemory, instance_of
from largen.interrupts import interruptible
from largen.memory import MEMORY_BUDGET, check_fits
from largen.parameterizations import temperature_of
from largen.programs import Normalise, written_out
from largen.programs.refusals import first
from largen.progress import Report, reporter
from largen.results import DataResult
from largen.results.labels import long_name
from largen.runs import Run
from largen.scalars import integer, random_key, real
from largen.text import aligned
from largen.theories.chains.problem import Problem, posed_by
from largen.theories.mean_field.deep.estimation.by_layers import (
    Coefficient,
    Corrections,
    Settings,
    bytes_of,
    corrections,
    groups_of,
)
from largen.theories.mean_field.deep.matrices.by_neurons import MOST_COLUMNS, MOST_DIRECTIONS
from largen.theories.mean_field.deep.sweep.initial_kernels import readout_size
from largen.theories.mean_field.deep.sweep.layer_widths import check_divisible
from largen.theories.mean_field.deep.sweep.state import Kept
from largen.theories.mean_field.engine.movement import guessed_dtype
from largen.theories.mean_field.engine.parallel import cores
from largen.theories.mean_field.options import NO_KERNELS, WantedKernels, wanted_kernels

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

WHAT = "lg.training.width_corrections_in_training"
MOST_REPLICATES = 10**5
LARGE_NEXT_ORDER = 0.2
ROUNDING = 3e-3  # largest relative error of outputs by rounding, times 3


@cites("bordelon2023dynamics")
@dataclass(frozen=True, repr=False)
class WidthCorrectionsInTraining(DataResult):
    """The order 1/N of training; made by :func:`width_corrections_in_training`.

    Attributes
    ----------
    data
        Σ_l c_l: ``f_train_shift (step, sample[, output])``; Σ_l V_l: ``f_train_variance``; the
        same of each group of layers with a leading axis ``group``: ``f_train_shift_of_layers``,
        ``f_train_variance_of_layers``; and of ``f_test`` and recorded kernels
        (``feature_kernel_shift (record, layer, sample, sample_2)``, …). Each has its standard
        error, ``…_error``. The coordinate ``group`` names the hidden layers that share their
        neurons, counted from 1: single layers, or those of a residual stream. Attributes are
        ``width``, the number ``replicates``, and ``next_order``.
    shares, shares_error
        The fraction of Σ V that the neurons of each group cause, summed over all steps and
        samples, and its standard error, ``(group,)``.
    """

    data: xarray.Dataset
    shares: np.ndarray
    shares_error: np.ndarray

    @property
    def next_order(self) -> float:
        """The share in the measured V of the fluctuations' next order, 1/N times a constant.

        It is estimated from the part of f that is quadratic in the fluctuations of single layers,
        and from what two layers cause together, which V_l of both contain.
        """
        return float(self.data.attrs["next_order"])

    @property
    def relative_errors(self) -> dict[str, float]:
        """|error|/|value| of the shift and of the variance on training samples."""
        names = {"shift": "f_train_shift", "variance": "f_train_variance"}
        return {
            what: float(
                np.linalg.norm(self.data[f"{name}_error"].values)
                / np.linalg.norm(self.data[name].values)
            )
            for what, name in names.items()
        }

    def _figure(self) -> Figure:
        """Draw shift and variance against time, and their parts by layers."""
        from largen.plots import training_corrections_figure

        return training_corrections_figure(self.data)

    def __repr__(self) -> str:
        data, errors = self.data, self.relative_errors
        shift = data["f_train_shift_of_layers"]
        root = np.sqrt((shift**2).mean([a for a in shift.dims if a != "group"]).values)
        rows = [["neurons of", "share of N Var f", "rms of N shift"]]
        for name, share, error, c in zip(
            data["group"].values, self.shares, self.shares_error, root, strict=True
        ):
            rows.append([f"layer {name}", f"{share:.1%} ± {error:.1%}", f"{c:.3g}"])
        lines = [
            f"WidthCorrectionsInTraining: {data.attrs['run']}",
            f"  {data.attrs['replicates']} replicates of width {data.attrs['width']}; relative "
            f"error of the shift {errors['shift']:.1%}, of the variance {errors['variance']:.1%}; "
            f"next order {self.next_order:.1%} of the variance",
            *aligned(rows),
        ]
        if self.next_order > LARGE_NEXT_ORDER:
            lines.append("  the next order in 1/width is not small: take a larger width")
        return "\n".join(lines)


@interruptible()
def width_corrections_in_training(
    run: Run,
    *,
    width: int = 64,
    rtol: float = 0.1,
    replicates: int | None = None,
    max_replicates: int = 1000,
    record: str | Sequence[str] = (),
    record_at: Sequence[int] | None = None,
    key: Any = 0,
    memory_budget: float = MEMORY_BUDGET,
    progress: bool | Report | None = None,
) -> WidthCorrectionsInTraining:
    r"""Return mean shift and variance of networks whose features move, to order 1/N, by layers.

    In the mean-field limit all networks follow one trajectory f_∞. Networks of width N have

        E f_N = f_∞ + (1/N) Σ_l c_l + O(N⁻²),    Var f_N = (1/N) Σ_l V_l + O(N⁻²),

    (Bordelon and Pehlevan, Dynamics of finite width kernel and prediction fluctuations in mean
    field neural networks, 2023), where c_l and V_l are due to the finite number of neurons of
    hidden layer l alone. They are measured without the limit, in networks whose random numbers
    belong to single neurons: with disjoint sets A and B of N neurons of layer l, and their union AB
    of 2N,

        c_l = N E[f(A) + f(B) − 2f(AB)],    V_l = (N/2) E[(f(A) − f(B))²].

    The fluctuations of f to leading order cancel in c_l, so that its error does not grow with N.
    The same holds for kernels. The exact distribution of a network of width N is sampled for
    A; with ratios of widths, N is the unit of width, and layer l has r_l N neurons.

    V_l/ΣV is the share of the variance that vanishes if the averages over layer l become exact. It
    is not the effect of a change of width ratios alone, which change the limit, too, if features
    move, because forward and backward passes through a matrix share its random numbers.

    For ten Gaussian samples, three layers of tanh and 50 steps, 760 replicates give V to 3.6 % and
    c to 11 % at width 64 in 123 seconds on two cores, and to 3.5 % and 9.6 % at width 128 in 170
    seconds; V to 5 % takes 380 of them. Replicates run on all cores. The next order is 13 % of the
    variance at width 64, 6 % at 128 and 3 % at 256. It can be larger: where features move more
    or there are more samples than in this example, take a larger width.

    Parameters
    ----------
    run
        A fully connected, convolutional or residual network in a parameterization whose features
        move at order one; gradient descent with a number of steps, with any of minibatches,
        momentum, weight decay and schedules.
    width
        N of the sets A and B. The result's ``next_order`` says whether it is large enough.
    rtol
        Target of the relative errors of Σ c_l and Σ V_l, |error|/|value| over all steps and
        samples. Replicates are added until both are reached.
    replicates
        The number of replicates, each of 2L + 1 networks; by default as many as ``rtol`` requires.
        The relative error of one entry of V_l is about √(2/replicates).
    max_replicates
        The largest number of replicates.
    record, record_at
        Kernels, and the time indices, as in :func:`largen.train`.
    key
        ``jax.random.key(seed)`` or an integer.
    memory_budget
        Bytes; it limits the number of replicates that are computed at the same time.
    progress
        Whether to show a bar; by default in terminals, after two seconds. A function is called
        with the completed and the total percentages, summed over replicates.

    Raises
    ------
    InvalidInput
        If an argument is invalid.
    NoTheory
        For gradient flow, Langevin noise, and runs that have no mean-field limit of this kind;
        and if all outputs are 0, such as at inputs 0 without biases.
    NumericalFailure
        If a network diverges.
    OutOfMemory
        If a replicate exceeds the memory budget.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(2, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=2)
    >>> result = lg.training.width_corrections_in_training(run, width=16, replicates=8)
    >>> result.shares.shape, round(float(result.shares.sum()), 6)
    ((2,), 1.0)
    """
    instance_of("run", run, Run, "an lg.Run")
    run.check_one_output("lg.training.width_corrections_in_training")
    wanted = wanted_kernels(run, record, record_at, ())
    width = integer("width", width, at_least=1)
    rtol = real("rtol", rtol, above=0)
    if replicates is not None:
        replicates = integer("replicates", replicates, at_least=2, at_most=MOST_REPLICATES)
    max_replicates = integer("max_replicates", max_replicates, at_least=2, at_most=MOST_REPLICATES)
    seed = np.asarray(jax.random.key_data(random_key(key)))
    memory_budget = real("memory_budget", memory_budget, above=0)
    problem = problem_of(run)
    check_divisible(problem, width, name="width")
    settings = _settings(run, problem, width, Kept(test=wanted.test), memory_budget)
    with reporter(progress, f"order 1/width at {width}") as report:
        result = corrections(
            problem,
            run,
            wanted.recorded,
            settings,
            np.random.default_rng(seed),
            rtol,
            replicates,
            max_replicates,
            report,
        )
    shares, error = _shares(result.summed)
    return WidthCorrectionsInTraining(_dataset(run, problem, wanted, width, result), shares, error)


def drawn_corrections(
    run: Run, width: int, replicates: int, key: Any, progress: bool | Report | None, what: str
) -> Corrections:
    """Return the order 1/N of the outputs with the estimates of each replicate, for ``what``."""
    problem = problem_of(run, what)
    check_divisible(problem, width, name="pilot_width")
    settings = _settings(run, problem, width, Kept(test=False), MEMORY_BUDGET)._replace(draws=True)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    with reporter(progress, f"order 1/width at {width}") as report:
        given = problem, run, NO_KERNELS.recorded, settings, rng
        return corrections(*given, np.inf, replicates, replicates, report)


def problem_of(run: Run, what: str = WHAT) -> Problem:
    """Return the problem whose order 1/N is known, for ``what``."""
    if run.optimizer.continuous:
        raise NoTheory(
            f"{what}: follows gradient descent step by step, not {run.optimizer}; take lg.gd with "
            "small steps."
        )
    if temperature_of(run.optimizer):
        raise NoTheory(
            f"{what}: {run.optimizer} adds noise to whole matrices, which does not belong to "
            "neurons; measure networks: lg.train(run, width=…, seeds=…)."
        )
    problem = posed_by(run).problem
    if problem.normalized:
        raise NoTheory(
            f"{what}: {first(written_out(run.program), Normalise)} takes averages over a layer's "
            "neurons, which are not weighted here; measure networks: lg.train(run, width=…, "
            "seeds=…)."
        )
    # Beyond these numbers, columns and directions would share their random numbers.
    steps, columns = len(run.times) - 1, problem.columns * problem.outputs
    if steps > MOST_DIRECTIONS or columns > MOST_COLUMNS:
        raise NoTheory(
            f"{what}: takes up to {MOST_DIRECTIONS} steps, and up to {MOST_COLUMNS} samples times "
            f"positions times outputs; got {steps} and {columns}."
        )
    return problem


def _settings(run: Run, problem: Problem, width: int, kept: Kept, budget: float) -> Settings:
    dtype = guessed_dtype(run, problem.gamma, readout_size(problem), ROUNDING)
    needed = bytes_of(problem, width, dtype)
    check_fits(needed, f"width: networks of width {2 * width}", "Take a smaller width.")
    if needed > budget:
        raise OutOfMemory(
            f"memory_budget: networks of width {2 * width} take about {needed:.2g} bytes, and the "
            f"budget is {budget:.2g}; take a smaller width, or raise it."
        )
    at_once = min(cores(), int(budget // needed)) if jax.default_backend() == "cpu" else 1
    return Settings(width, dtype, kept, max(at_once, 1))


def _shares(summed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means of columns over the sum of all means, and standard errors by linearisation."""
    mean = summed.mean(0)
    total = mean.sum()
    if not total:
        raise NoTheory(
            f"{WHAT}: all outputs of all networks are 0, and do not fluctuate: inputs vanish, and "
            "there are no biases."
        )
    shares = mean / total
    influence = (summed - shares * summed.sum(1, keepdims=True)) / total
    return shares, influence.std(0, ddof=1) / len(summed) ** 0.5


def _dataset(
    run: Run, problem: Problem, wanted: WantedKernels, width: int, results: Corrections
) -> xarray.Dataset:
    import xarray

    P, dtype = problem.samples, run.data.x_train.dtype
    out = ("output",) if run.output_shape else ()
    pair = ("output", "output_2") if run.output_shape else ()
    axes = {
        "f_train": ("step", "sample", *out),
        "f_test": ("step", "test_sample", *out),
        "feature_kernel": ("record", "layer", "sample", "sample_2"),
        "gradient_kernel": ("record", "layer", "sample", "sample_2", *pair),
        "ntk": ("record", "sample", "sample_2", *pair),
        "ntk_test": ("record", "test_sample", "sample", *pair),
    }
    variables: dict[str, Any] = {}

    def add(name: str, what: str, results: Coefficient) -> None:
        for part, array, lead in (
            (what, results.total, ()),
            (f"{what}_error", results.total_error, ()),
            (f"{what}_of_layers", results.groups, ("group",)),
            (f"{what}_of_layers_error", results.groups_error, ("group",)),
        ):
            about = {"long_name": f"width times the {part.replace('_', ' ')}: {long_name(name)}"}
            variables[f"{name}_{part}"] = ((*lead, *axes[name]), array.astype(dtype), about)

    for what, coefficients in (("shift", results.shift), ("variance", results.variance)):
        for name, one in coefficients.items():
            if name != "f":
                if wanted.has(name):
                    add(name, what, one)
                continue
            for part, rows in (("f_train", slice(P)), ("f_test", slice(P, None))):
                add(part, what, _samples(one, rows, run.output_shape))
    groups = [", ".join(str(l + 1) for l in group) for group in groups_of(problem)]
    coordinates: dict[str, Any] = {
        "step": np.arange(len(run.times)),
        "time": ("step", run.times),
        "group": groups,
    }
    if len(wanted.recorded.alone):
        coordinates["record_step"] = ("record", wanted.recorded.alone)
        coordinates["layer"] = np.arange(1, problem.hidden_layers + 1)
    attributes = {
        "run": repr(run),
        "net": repr(run.net),
        "width": width,
        "replicates": len(results.summed),
        "next_order": results.next_order,
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _samples(coefficient: Coefficient, rows: slice, output_shape: tuple[int, ...]) -> Coefficient:
    """Return a coefficient of some samples, ``([group,] step, sample[, output])``."""

    def chosen(x: np.ndarray) -> np.ndarray:
        x = x[..., rows, :]
        return x if output_shape else x[..., 0]

    return Coefficient(*map(chosen, coefficient))
