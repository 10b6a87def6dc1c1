"""What networks of a width will do: the law of their outputs and losses along training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from largen.errors import InvalidInput, NoTheory, NumericalFailure, instance_of, one_of
from largen.experiments.matching import check_limit, check_matching
from largen.experiments.predicted_networks import theory as by_theory
from largen.experiments.predicted_networks.pilots import (
    Check,
    NextOrder,
    Pilots,
    Samples,
    changes,
    growth,
    self_check,
)
from largen.experiments.predicted_networks.result import PredictedNetworks, predicted
from largen.interrupts import interruptible
from largen.memory import check_fits
from largen.networks import train
from largen.progress import Report, reporter
from largen.runs import Run, Status, Theory, Trajectory
from largen.runs.losses import mean_loss
from largen.scalars import flag, integer, random_key
from largen.theories import by_name, choose, solve
from largen.theories.registry import options_of

WHAT = "lg.training.predict_networks"
MOST_PILOTS = 10**5
MOST_DRAWS = 10**6
NARROWEST = 16  # width of pilots by default
Anchor = Literal["pilots", "theory"]
# Numbers of pilots by default, and those of theory in mean-field and in kernel limits.
TRAINED, REPLICATES, FLUCTUATIONS = 300, 256, 2000
OF_NEURONS = 64  # width of the sets of neurons by default


@interruptible()
def predict_networks(
    run: Run,
    width: int,
    *,
    anchor: Anchor = "pilots",
    pilots: int | None = None,
    pilot_width: int | None = None,
    limit: Trajectory | None = None,
    draws: int = 2000,
    key: Any = 0,
    throw: bool = True,
    progress: bool | Report | None = None,
) -> PredictedNetworks:
    r"""Predict the outputs and losses of networks of a width, from the limit and the order 1/n.

    Networks of width n have, to order 1/n, the mean and the covariance

        E f_n = f_∞ + c/n,    Cov f_n = C_∞ + V/n

    between all samples and times (Bordelon and Pehlevan, *Dynamics of finite width kernel and
    prediction fluctuations in mean field neural networks*, 2023), with C_∞ = 0 in mean-field
    limits. ``pilots`` networks of a width m ≤ n determine c = m(f̄_m − f_∞) and
    V = m(Cov f_m − C_∞): both moments are linear in 1/n between limit and pilots. The law of the
    loss is that of ℓ(f) of Gaussian fluctuations, without an expansion of ℓ: with d_s = f_s − F_s,
    where F_s is what the limit predicts for pilot s, and ρ = m/n,

        f = F_s + ρ d_s + √(ρ − ρ²) ξ,    ξ ~ N(0, Cov d),

    with the same ξ at all samples and times. In the kernel limit, whose networks start at random,
    the law of the limit's loss is drawn from the Gaussian process of initial outputs and not from
    the pilots.

    On 32 and 64 of scikit-learn's digits, one hidden layer of tanh and 40 steps, the Wasserstein
    distance between the laws of the test loss of this and of 1200 networks of width 64 is a tenth
    of the limit's in :func:`largen.mean_field`, and within the noise of 1200 networks. By 30
    pilots, intervals of 90 % hold 82 to 97 %.

    Pilots of half the width are trained as well, from which those of width m are predicted. The
    check fails if N Var differs between the two by more than a factor of 1.4, or the predicted loss
    by more than chance: near the edge of stability networks leave the limit by amounts that are no
    power of the width. It needs about 100 pilots; by 30 only large failures are seen, and one
    stable run in twenty fails. In mean-field limits N Var is compared before the limit is solved.

    ``anchor="theory"`` takes c and V of the expansion in 1/n in the place of pilots. In mean-field
    limits c is that of :func:`width_corrections_in_training`, and V the covariance of the networks
    to which its sets of neurons belong: both are the same for all widths. On the digits above the
    distance from 1200 networks was within twice their noise at widths 64 and 128, with one and with
    two hidden layers. In the kernel limit the fluctuations of kernels come from
    :func:`largen.finite_width.width_fluctuations`, without the part of the NTK's that depends on
    the sizes of its own outputs, and the movement of kernels from 512 networks of width 64, as in
    :class:`largen.theories.FiniteWidth`; it takes smooth fully connected networks in
    :func:`largen.ntk` under the squared error. The status says whether the next order in 1/n is at
    most half of the variance.

    With a kink in φ, in the kernel limit, a part of the mean is of order n^(−1/2), of which the
    linear law in 1/n takes only ρ^(1/2): :class:`largen.theories.FiniteWidth` has the mean.

    :func:`predict_training` predicts one given network instead.

    Parameters
    ----------
    run
        A run that has a limit by :func:`largen.solve`, whose outputs start at order one or vanish
        as N^(−1/2).
    width
        n. The result's :meth:`~PredictedNetworks.at_width` takes others at no cost.
    anchor
        What determines the order 1/n: ``"pilots"``, narrow networks; or ``"theory"``, where it is
        known.
    pilots
        The number of narrow networks of each of two widths, 300 by default. By theory that of
        replicates of :func:`width_corrections_in_training`, 256, and in the kernel limit that of
        sampled kernels, 2000.
    pilot_width
        m, even, at most n; a quarter of n by default, and at least 16. By theory the width of the
        replicates, 64, and in the kernel limit the one at which the expansion is drawn, n.
    limit
        The solution by :func:`largen.solve` of the same run, if it is known already.
    draws
        The number of networks that are drawn.
    key
        ``jax.random.key(seed)`` or an integer.
    throw
        Whether to raise if the self check fails; otherwise the status is ``"inaccurate"``.
    progress
        Whether to show bars; by default in terminals, after two seconds.

    Returns
    -------
    PredictedNetworks
        ``f_test``, ``f_test_std``, draws ``loss_test``; ``.interval(0.9)``, ``.quantiles(levels)``,
        ``.outputs(step)``, ``.at_width(n)``, ``.plot(path)``, ``.to_xarray()``.

    Raises
    ------
    InvalidInput
        If an argument is invalid, or the limit is one of another run.
    NoTheory
        If no theory covers the run, or outputs vanish by another power of the width; by
        ``anchor="theory"`` if its order 1/n is not known.
    NumericalFailure
        If pilots diverge, and if ``throw`` and the self check fails or the next order is large:
        train networks of this width then, or take wider pilots or a lower rate.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "tanh"), lg.mean_field(), data, optimizer=lg.gd(0.5), steps=5)
    >>> found = lg.training.predict_networks(run, 256, pilots=100)
    >>> found.loss_train.shape, found.interval(0.9).shape
    ((2000, 6), (2, 6))
    >>> wider = found.at_width(1024)
    >>> bool(wider.f_train_std[-1, 0] < found.f_train_std[-1, 0])
    True
    """
    instance_of("run", run, Run, "an lg.Run")
    width = integer("width", width, at_least=1)
    anchor = one_of("anchor", anchor, get_args(Anchor))
    if pilots is not None:
        pilots = integer("pilots", pilots, at_least=8, at_most=MOST_PILOTS)
    draws = integer("draws", draws, at_least=8, at_most=MOST_DRAWS)
    throw, key = flag("throw", throw), random_key(key)
    if limit is not None:
        check_limit(instance_of("limit", limit, Trajectory, "the result of lg.solve"), run)
    theory = _theory(run, limit)
    keys = jax.random.split(key, 4)
    wanted = _Wanted(width, pilots, pilot_width, draws, throw, progress)
    find = _by_pilots if anchor == "pilots" else _by_theory
    limit, found, check, m = find(run, theory, limit, wanted, keys)
    seed = np.asarray(jax.random.key_data(keys[3]))
    attrs = {
        "run": repr(run), "net": repr(run.net), "parameterization": str(run.param), "width": width,
        "anchor": "pilots" if anchor == "pilots" else "draws by theory", "pilots": found.number,
        "pilot_width": m, "theory": limit.theory,
    }  # fmt: skip
    coords = {"step": np.arange(len(run.times)), "time": ("step", run.times)}
    result = predicted(found, check, draws, seed, width, coords, attrs)
    if throw and (first := result.unstable_from) is not None:
        raise NumericalFailure(_advice(check, m, first, width), result)
    return result


class _Wanted(NamedTuple):
    """Arguments of :func:`predict_networks`."""

    width: int
    pilots: int | None
    pilot_width: int | None
    draws: int
    throw: bool
    progress: bool | Report | None


# The limit, an ensemble of some width, its check, and the width of the networks that were taken.
_Found = tuple[Trajectory, Pilots, Check | NextOrder, int]


def _by_pilots(
    run: Run, theory: type[Theory], limit: Trajectory | None, wanted: _Wanted, keys: Any
) -> _Found:
    width, pilots, draws = wanted.width, wanted.pilots or TRAINED, wanted.draws
    m, progress = _pilot_width(width, wanted.pilot_width), wanted.progress
    _check_memory(run, pilots, draws, theory.random_outputs)
    f0 = theory().initial_outputs(run, draws, keys[2]) if theory.random_outputs else None
    narrow, wide = _trained(run, (m // 2, m), pilots, keys, progress)
    if f0 is not None and not f0[0].any() and wide.f_train[:, 0].any():
        raise NoTheory(
            f"{WHAT}: initial outputs of networks vanish, but not as N^(-1/2), so that there is no "
            "expansion in 1/N; train networks: lg.train(run, width=…, seeds=…)."
        )
    if limit is None:
        if wanted.throw and f0 is None:
            _check_growth(narrow, wide, width)
        limit = _solved(run, theory, progress)
    check_matching(limit, [narrow, wide])
    half, whole = _ensembles(run, limit, (narrow, wide), f0)
    on = "test" if len(run.data.x_test) else "train"
    seed = np.asarray(jax.random.key_data(keys[3]))
    return limit, whole, self_check(half, whole, on, draws, seed), m


def _by_theory(
    run: Run, theory: type[Theory], limit: Trajectory | None, wanted: _Wanted, keys: Any
) -> _Found:
    by_theory.check(run, theory, WHAT)
    random, progress = theory.random_outputs, wanted.progress
    number = wanted.pilots or (FLUCTUATIONS if random else REPLICATES)
    m = wanted.pilot_width
    if m is None:
        m = wanted.width if random else OF_NEURONS
    m = integer("pilot_width", m, 2, *([wanted.width] if random else []))
    _check_memory(run, number, wanted.draws, random)
    limit = _solved(run, theory, progress) if limit is None else limit
    if random:
        ensemble, check = by_theory.of_kernels(run, limit, m, number, keys[0], WHAT)
        f0 = theory().initial_outputs(run, wanted.draws, keys[2])
    else:
        given = run, limit, m, number, keys[0], progress, WHAT
        (ensemble, check), f0 = by_theory.of_mean_field(*given), None
    (found,) = _ensembles(run, limit, [ensemble], f0)
    samples = {
        on: each._replace(shifts=ensemble.shifts.get(on)) for on, each in found.samples.items()
    }
    return limit, found._replace(samples=samples), check, m


def _solved(run: Run, theory: type[Theory], progress: bool | Report | None) -> Trajectory:
    bar: dict[str, Any] = {"progress": progress} if "progress" in options_of(theory) else {}
    return solve(run, theory=theory, **bar)


def _pilot_width(width: int, pilot_width: int | None) -> int:
    if pilot_width is None:
        m = min(width, max(NARROWEST, width // 4))
        m -= m % 2
    else:
        m = integer("pilot_width", pilot_width, at_least=2)
    if m < 2 or m > width or m % 2:
        raise InvalidInput(
            f"pilot_width: wanted an even number from 2 to the width {width}, got {m}; half of it "
            "is the width of the self check."
        )
    return m


def _theory(run: Run, limit: Trajectory | None) -> type[Theory]:
    theory = _theory_of(run, limit)
    if theory.random_outputs and theory.initial_outputs is Theory.initial_outputs:
        raise NoTheory(
            f"{WHAT}: initial outputs are random, and the limit {theory.name!r} takes a solution "
            "for each of them; train networks: lg.train(run, width=…, seeds=…)."
        )
    return theory


def _theory_of(run: Run, limit: Trajectory | None) -> type[Theory]:
    if limit is None:
        return choose(run)[0]
    if "f_train_shift" in limit:
        raise InvalidInput("limit: wanted that of infinite width, got a mean to order 1/width.")
    if limit.seeds is not None:
        raise InvalidInput("limit: wanted the result of lg.solve, got trained networks.")
    return by_name(limit.theory)


def _check_memory(run: Run, pilots: int, draws: int, random: bool) -> None:
    size = len(run.times) * len(run.data.x) * max(1, int(np.prod(run.output_shape)))
    stored = 3 * pilots + random * 3 * (draws + pilots)
    what = f"pilots: outputs of {pilots} networks" + (f" and {draws} draws" if random else "")
    check_fits(8.0 * stored * size, what, "Take fewer pilots, draws, steps or samples.")


def _trained(
    run: Run, widths: Sequence[int], pilots: int, keys: Any, progress: bool | Report | None
) -> list[Trajectory]:
    """Train the pilots of each width."""
    found = []
    with reporter(progress, "pilots") as report:
        for i, m in enumerate(widths):

            def seen(done: int, _: int, before: int = i * pilots) -> None:
                report(before + done, len(widths) * pilots)

            t = train(run, m, pilots, keys[i], throw=False, progress=seen)
            if t.status is not Status.OK:
                raise NumericalFailure(
                    f"{WHAT}: networks of width {m} diverge. Take a larger pilot_width, or a lower "
                    "rate.",
                    t,
                )
            found.append(t)
    return found


def _check_growth(narrow: Trajectory, wide: Trajectory, width: int) -> None:
    """Raise before the limit is solved if N Var is not the same at both widths."""
    ratio, error = growth(*([t.f_train, t.f_test] for t in (narrow, wide)))
    bad = np.flatnonzero(changes(ratio, error, len(wide.f_train)))
    if len(bad):
        raise NumericalFailure(_advice(None, wide.width or 0, int(bad[0]), width))


def _advice(check: Check | NextOrder | None, m: int, first: int, width: int) -> str:
    if isinstance(check, NextOrder):
        return (
            f"{WHAT}: from time index {first} on, {check.at(width)}: training is near the edge of "
            f"stability, or the width {width} is too small for an expansion. Train networks, "
            f"lg.train(run, width={width}, seeds=…), or take a larger width or a lower rate. "
            "throw=False returns the prediction, which holds before that time."
        )
    return (
        f"{WHAT}: from time index {first} on, pilots of width {m} are not what those of width "
        f"{m // 2} predict: training is near the edge of stability, or the pilots are too narrow. "
        f"Train networks, lg.train(run, width={width}, seeds=…); or take a larger pilot_width, or "
        "a lower rate. throw=False returns the prediction, which holds before that time."
    )


def _ensembles(
    run: Run,
    limit: Trajectory,
    trained: Sequence[Trajectory | by_theory.Ensemble],
    f0: tuple[Any, Any] | None,
) -> list[Pilots]:
    """Return pilots with the limit's predictions for them; ``f0``: draws of initial outputs."""
    kinds = ("train", "test")
    alone = [{on: getattr(limit, f"f_{on}")[None] for on in kinds}] * (len(trained) + 1)
    if f0 is not None:
        limit = limit if limit.run is not None else Trajectory(limit.to_xarray(), run)
        starts = [[getattr(t, f"f_{on}")[:, 0] for t in trained] for on in kinds]
        joined = (np.concatenate([*s, drawn]) for s, drawn in zip(starts, f0, strict=True))
        both = by_name(limit.theory)().condition(limit, *joined)
        ends = np.cumsum([len(t.f_train) for t in trained])
        parts = zip(*(np.split(np.asarray(f), ends) for f in both), strict=True)
        alone = [dict(zip(kinds, part, strict=True)) for part in parts]
    law, found = alone[-1], []
    for t, given in zip(trained, alone, strict=False):
        samples = {
            on: _samples(run, limit, on, getattr(t, f"f_{on}"), given[on], law[on])
            for on in kinds
            if len(getattr(run.data, f"y_{on}"))
        }
        found.append(Pilots(t.width or 0, samples, run.loss, run.output_axes))
    return found


def _samples(
    run: Run, limit: Trajectory, on: str, f: np.ndarray, given: np.ndarray, law: np.ndarray
) -> Samples:
    mean, y = getattr(limit, f"f_{on}"), getattr(run.data, f"y_{on}")
    variance, error = np.zeros_like(mean), np.zeros_like(mean)
    std = f"f_{on}_std"
    if len(law) == 1:
        if f"f_{on}_error" in limit:
            error = np.nan_to_num(getattr(limit, f"f_{on}_error"))
    elif run.loss.linear_residual and std in limit:
        variance = getattr(limit, std) ** 2
    else:
        mean, variance = law.mean(0), law.var(0)
        error = np.sqrt(variance / len(law))
    return Samples(f, given, mean_loss(run.loss, law, y, 1), mean, variance, error, y)
