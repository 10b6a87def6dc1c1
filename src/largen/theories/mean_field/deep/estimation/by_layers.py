r"""The order 1/N of outputs and kernels in training, by the layers whose neurons cause it.

In the sweep with random numbers that belong to neurons (``matrices/by_neurons.py``), the outputs f
of a network are a symmetric function of the n independent neurons of each layer l, each with weight
1/n in averages. To leading order

    E f − f_∞ = Σ_l c_l/N,    Var f = Σ_l V_l/N,

where c_l and V_l are due to the finite number of neurons of layer l alone. Let A_l and B_l be two
disjoint sets of N neurons of the layer, AB_l their union of 2N, and all other layers those of A.
Then, for each layer,

    c_l = N E[ĉ_l],  ĉ_l = f(A) + f(B_l) − 2f(AB_l),    V_l = (N/2) E[(f(A) − f(B_l))²]

up to a further power of 1/N. The part of f that is linear in the fluctuations of a layer cancels in
ĉ_l, whatever the other layers' neurons are, so that the standard deviation of Nĉ_l does not grow
with N, whereas that of N(f − f_∞) grows as √N. No limit is needed.

What is left in ĉ_l is quadratic in the fluctuations of the layer. Its variance is at the same time
the contribution of that quadratic part to (N/2)(f(A) − f(B_l))², Var(Nĉ_l)/N. What two layers cause
together, a product of their fluctuations, is in V_l of both. It is all that is left, to this order,
when all layers are changed at once and each of them alone,

    I = (N/4) E[(f(A) − f(B) − Σ_l (f(A) − f(B_l)))²].

So the share of the next order in Σ V_l, [Σ Var(Nĉ_l)/N + 2I]/Σ V_l, tells whether N is large
enough for the leading order, and N Var f of networks of width N is Σ V_l − I.

For ratios r of widths N is the unit of width. Layers of one residual stream share their neurons,
and count as one group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.arrays import precision as in_precision
from largen.errors import NumericalFailure
from largen.runs import Run
from largen.theories.chains.problem import Problem
from largen.theories.mean_field.deep.estimation.truncation import values_of
from largen.theories.mean_field.deep.matrices.by_directions import Precision
from largen.theories.mean_field.deep.matrices.by_neurons import nothing_known
from largen.theories.mean_field.deep.sweep.advance import COPIES, Swept, advance
from largen.theories.mean_field.deep.sweep.layer_widths import counts
from largen.theories.mean_field.deep.sweep.schedule import descent
from largen.theories.mean_field.deep.sweep.start import begin, gaussian_rows, start_from_rows
from largen.theories.mean_field.deep.sweep.state import Kept, SweepModel
from largen.theories.mean_field.engine.parallel import Tell, one_thread_of_blas, part
from largen.theories.mean_field.engine.replicates import Goal, Replicates, Seeds
from largen.theories.mean_field.engine.statistics import Sums, ratio
from largen.theories.mean_field.record_times import Recorded

FIRST, SECOND, BOTH = "first", "second", "both"  # sets of neurons of a layer: A, B and AB
FEWEST_REPLICATES = 32
TOLERANCE = 0.01  # relative size below which directions are omitted


class Settings(NamedTuple):
    """Numerical settings."""

    width: int  # N, the number of neurons of the sets A and B per unit of width
    dtype: Any  # the precision of the neurons
    kept: Kept  # the variables of a record
    threads: int = 1  # the number of replicates that are computed at the same time
    tolerance: float = TOLERANCE  # the relative size below which directions are omitted
    draws: bool = False  # whether the estimates of the outputs of each replicate are returned


class Coefficient(NamedTuple):
    """c or V of one variable: of each group of layers, ``(group, …)``, their sum, and errors.

    Errors are standard errors of the mean over replicates.
    """

    groups: np.ndarray
    groups_error: np.ndarray
    total: np.ndarray
    total_error: np.ndarray


class Corrections(NamedTuple):
    """The order 1/N of all variables."""

    # shift, variance: c and V by the name of the variable: "f", and those of recorded kernels.
    shift: dict[str, Coefficient]
    variance: dict[str, Coefficient]
    # V_l of the outputs of each replicate, summed over steps and samples, (replicate, group).
    summed: np.ndarray
    # [Σ Var(Nĉ_l)/N + 2I]/Σ V_l, summed over steps and samples of the outputs.
    next_order: float
    quadratic_at: np.ndarray  # Σ Var(Nĉ_l)/N over Σ V_l at each step
    # Of each replicate, (replicate, step, row, output): Σ_l Nĉ_l, and f(A), which is a network of
    # width N. None unless ``draws``.
    drawn: tuple[np.ndarray, np.ndarray] | None


class Replicate(NamedTuple):
    """Estimates of c and V of each group from one set of neurons, by the name of the variable."""

    shift: dict[str, np.ndarray]
    variance: dict[str, np.ndarray]
    outputs: np.ndarray  # f(A)
    joint: float  # an estimate of I, summed over steps and samples


class Totals:
    """Sums over replicates: of each group, and of all of them together."""

    def __init__(self, draws: bool = False) -> None:
        self.shift: dict[str, tuple[Sums, Sums]] = {}
        self.variance: dict[str, tuple[Sums, Sums]] = {}
        self.summed: list[np.ndarray] = []  # V of the outputs, summed over steps and samples
        self.joint = 0.0  # sum of the estimates of I
        self.drawn: tuple[list[np.ndarray], list[np.ndarray]] | None = ([], []) if draws else None

    def __len__(self) -> int:
        return len(self.summed)

    def append(self, found: Replicate) -> None:
        """Add a replicate."""
        for sums, values in ((self.shift, found.shift), (self.variance, found.variance)):
            for name, x in values.items():
                groups, total = sums.setdefault(name, (Sums(), Sums()))
                groups.add(x)
                total.add(x.sum(0))
        v = found.variance["f"]
        self.summed.append(v.reshape(len(v), -1).sum(1))
        self.joint += found.joint
        if self.drawn is not None:
            self.drawn[0].append(found.shift["f"].sum(0))
            self.drawn[1].append(found.outputs)


def groups_of(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Return the groups of hidden layers that share their neurons; layers are counted from 0."""
    streams = np.array(problem.streams)
    return tuple(tuple(np.flatnonzero(streams == s).tolist()) for s in range(streams.max() + 1))


def bytes_of(problem: Problem, width: int, dtype: Any) -> float:
    """Return an estimate of the bytes that one replicate takes, without the program itself."""
    longest, layers = max(counts(problem, 2 * width)), problem.hidden_layers
    columns, taps = problem.columns, problem.taps
    stored = (layers - 1) * ((1 + 2 * taps) * longest**2 + 2 * (1 + taps) * columns * longest)
    passing = 4 * layers * problem.total * max(problem.positions) * problem.outputs * longest
    rows = layers * (problem.outputs + 1 + taps * columns + columns) * longest
    return np.dtype(dtype).itemsize * COPIES * (stored + passing + rows)


def corrections(
    # problem, run, recorded, settings: the problem, the run, the times of records and the numerical
    # settings.
    problem: Problem,
    run: Run,
    recorded: Recorded,
    settings: Settings,
    rng: np.random.Generator,  # source of the replicates' seeds
    rtol: float,  # the target of the relative errors of c and V
    # replicates, most: the number of replicates, or None to determine it from the errors; the
    # largest number.
    replicates: int | None,
    most: int,
    report: Callable[[int, int], object],  # called with the completed and the total percentages
) -> Corrections:
    """Return c and V from as many replicates as a relative error of the outputs requires."""
    plan, totals = _Plan(problem, run, recorded, settings, Seeds(rng)), Totals(settings.draws)
    goal = Goal(rtol, replicates, min(FEWEST_REPLICATES, most), most)
    with one_thread_of_blas():
        Replicates(plan, (), goal, settings.threads, report, results=totals).run()
    shift, variance = totals.shift, totals.variance
    at_steps = (0, *range(2, variance["f"][0].mean.ndim))
    quadratic = shift["f"][0].sample_variance.sum(at_steps) / settings.width
    linear = variance["f"][0].mean.sum(at_steps)
    next_order = quadratic.sum() + 2 * totals.joint / len(totals)
    kept = totals.drawn
    return Corrections(
        {name: _coefficient(*sums) for name, sums in shift.items()},
        {name: _coefficient(*sums) for name, sums in variance.items()},
        np.stack(totals.summed),
        float(_over(next_order, linear.sum())),
        _over(quadratic, linear),
        None if kept is None else (np.stack(kept[0]), np.stack(kept[1])),
    )


def _over(part: Any, whole: Any) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros_like(whole, float), where=whole != 0)


def _coefficient(groups: Sums, total: Sums) -> Coefficient:
    return Coefficient(groups.mean, groups.error, total.mean, total.error)


@dataclass(frozen=True)
class _Plan:
    """Replicates of the same networks."""

    problem: Problem
    run: Run
    recorded: Recorded
    settings: Settings
    seeds: Seeds

    def begin(self, tell: Tell) -> tuple[tuple[()], None, Replicate]:
        """Return the first replicate, which says nothing of the others."""
        return (), None, self.replicate((), 0, tell)

    def replicate(self, common: tuple[()], number: int, tell: Tell) -> Replicate:
        """Return a replicate."""
        what = self.problem, self.run, self.recorded, self.settings, self.seeds[number]
        found, width = replicate(*what, tell), self.settings.width
        if not all(np.isfinite(x).all() for x in found.shift.values()):
            raise NumericalFailure(
                f"networks of width {width} or {2 * width} diverge. Lower the learning rate or "
                "gamma, or take a larger width."
            )
        return found

    def ended(self, result: Replicate) -> bool:
        """Whether numbers are finite: others raise."""
        return True

    def error(self, found: Totals) -> float:
        """Return the larger relative error of c and V."""
        totals = (sums["f"][1] for sums in (found.shift, found.variance))
        return max(ratio(each.error, each.mean) for each in totals)


def replicate(
    problem: Problem, run: Run, recorded: Recorded, settings: Settings, seed: int, tell: Tell
) -> Replicate:
    """Return the estimates of c and V from one set of neurons A and B."""
    N, groups, done = settings.width, len(groups_of(problem)), 0
    rng = np.random.default_rng(seed)
    with in_precision(np.zeros((), settings.dtype)):
        raw = gaussian_rows(problem, "finite_width", 2 * N, rng, settings.dtype)
        key = int(rng.integers(2**31))

        def values(sets: Sequence[str]) -> dict[str, np.ndarray]:
            nonlocal done
            of_one = part(tell, done, 2 * groups + 1 + (groups > 1))
            found = _network(problem, run, recorded, settings, raw, key, sets, of_one)
            done += 1
            return {
                name: x.astype(np.float64) for name, x in values_of(problem, run, found).items()
            }

        first = values([FIRST] * groups)
        shifts, variances, alone = [], [], 0.0
        for group in range(groups):
            second, both = (
                values([which if g == group else FIRST for g in range(groups)])
                for which in (SECOND, BOTH)
            )
            shifts.append({n: N * (f + second[n] - 2 * both[n]) for n, f in first.items()})
            variances.append({n: N / 2 * (f - second[n]) ** 2 for n, f in first.items()})
            alone += first["f"] - second["f"]
        joint = 0.0
        if groups > 1:
            together = first["f"] - values([SECOND] * groups)["f"] - alone
            joint = float(N / 4 * (together**2).sum())
    shift, variance = (
        {name: np.stack([one[name] for one in parts]) for name in first}
        for parts in (shifts, variances)
    )
    return Replicate(shift, variance, first["f"], joint)


def _network(
    problem: Problem,
    run: Run,
    recorded: Recorded,
    settings: Settings,
    raw: list[np.ndarray],
    key: int,
    sets: Sequence[str],
    tell: Tell,
) -> Swept:
    """Return the training of the network that has the given sets of neurons, one for each group."""
    N, streams = settings.width, problem.streams
    width = 2 * N if BOTH in sets else N
    own, longest = counts(problem, N), max(counts(problem, width))
    chosen = np.zeros((len(own), longest), int)
    scale = np.zeros((len(own), longest), settings.dtype)
    for l, n in enumerate(own):
        which = sets[streams[l]]
        count = 2 * n if which == BOTH else n
        chosen[l, :count] = np.arange(count) + (n if which == SECOND else 0)
        scale[l, :count] = (n / count) ** 0.5
    rule = Precision(1 / N, settings.tolerance)
    rows = [part[:, each] * size for part, each, size in zip(raw, chosen, scale, strict=True)]
    start = start_from_rows(problem, rows, "finite_width", width, rule)._replace(live=scale)
    columns, training = problem.columns, problem.training_columns * problem.outputs
    gradients = columns * problem.outputs if settings.kept.test else training
    maps = len(problem.maps) - 1
    matrices = nothing_known(maps, problem.taps, longest, (columns, gradients), settings.dtype)
    model = SweepModel.of(problem, run, "by_neurons", settings.kept, max(counts(problem, 2 * N)))
    keys = jax.random.split(jax.random.key(key), max(streams) + 1)
    schedule = descent(run)
    state, constants = begin(problem, run, schedule, start, keys, rule, matrices, chosen=chosen)
    return advance(model, state, constants, problem, schedule, recorded, tell=tell)
