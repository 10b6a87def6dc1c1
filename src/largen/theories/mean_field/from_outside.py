"""Replicates of theories from outside, with what those of the library have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import numpy as np

from largen.arrays import precision
from largen.callables import takes
from largen.errors import InvalidInput, instance_of
from largen.interrupts import check, interruptible
from largen.runs import Posed, Run, Theory, Trajectory
from largen.scalars import flag, integer, random_key, real
from largen.theories.mean_field.answers import (
    bounded,
    error_in_words,
    judged,
    output_variables,
    split_outputs,
)
from largen.theories.mean_field.engine.checkpoint import Checkpoint
from largen.theories.mean_field.engine.parallel import Tell, cores, one_thread_of_blas
from largen.theories.mean_field.engine.replicates import Goal, Replicates, Seeds, watched
from largen.theories.mean_field.engine.statistics import margin, mean_and_error, relative
from largen.theories.mean_field.options import optional_count

FEWEST = 4
RTOL = 1e-2  # of theories without this option
OF_THE_CALL = ("checkpoint", "progress", "replicates")  # options that a checkpoint is not marked by
One = Callable[[np.random.Generator, Tell], Any]


@interruptible()
def solve_by_replicates(
    theory: Theory, posed: Posed, one: One, *, most: int = 1024, throw: bool = True
) -> Trajectory:
    """Return the mean over independent replicates of a theory of one's own, with its errors.

    Replicates are computed at the same time, one for each core, and added until the 95 % interval
    of the outputs is ± 1.96 ``rtol`` of their size. For the ``solve`` of a
    :class:`largen.theories.Theory`, whose options are used by the names that they have in the
    library, if it has them: ``rtol`` (1e-2 otherwise), ``replicates`` (their number, whatever the
    error), ``key``, ``checkpoint`` (a file to which each replicate is written, and from which the
    same call resumes, to the same result), ``progress``.

    Parameters
    ----------
    theory
        The theory with its options.
    posed
        What its ``pose`` returned.
    one
        ``one(rng, tell)``: the outputs of a replicate, (step, sample[, output]), of training
        samples followed by test samples. ``rng``: a NumPy generator of its own. ``tell``: to be
        called with the completed fraction now and then, which shows progress and lets the call be
        interrupted. It runs in threads, in the precision of the data.
    most
        The largest number of replicates.
    throw
        As in :meth:`largen.theories.Theory.solve`.

    Returns
    -------
    Trajectory
        With ``f_train_error``, ``f_test_error``, the standard error of the mean, and
        ``f_train_margin``, ``f_test_margin``, half of the 95 % interval.

    Raises
    ------
    NumericalFailure
        If outputs are not finite, and ``throw``.
    InvalidInput
        For outputs of another shape, or a checkpoint of another run or of other options.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> from dataclasses import dataclass
    >>> from typing import Any, ClassVar
    >>> @dataclass(frozen=True, kw_only=True)
    ... class RandomFeatures(lg.theories.Theory):
    ...     name: ClassVar[str] = "random features"
    ...     rtol: float = 1e-2
    ...     key: Any = 0
    ...     checkpoint: Any = None
    ...     @classmethod
    ...     def pose(cls, run):
    ...         return lg.theories.Posed(run, "it was asked for", None)
    ...     def solve(self, posed, *, throw=True):
    ...         run = posed.run
    ...         def one(rng, tell):
    ...             features = np.tanh(run.data.x @ rng.standard_normal((run.data.inputs, 256)))
    ...             kernel = features @ features[: len(run.data.x_train)].T / 256
    ...             change, f = np.zeros(len(run.data.x_train)), []
    ...             for rate in (*run.rates, 0):
    ...                 f.append(kernel @ change)
    ...                 change = change + rate * (run.data.y_train - f[-1][: len(change)])
    ...             return np.array(f)
    ...         return lg.theories.solve_by_replicates(self, posed, one, throw=throw)
    >>> data = lg.Dataset(np.eye(2), np.array([1.0, -1.0]))
    >>> run = lg.Run(lg.mlp(1), lg.ntk(), data, optimizer=lg.gd(0.5), steps=8)
    >>> limit = lg.solve(run, theory=RandomFeatures(rtol=0.02))
    >>> bool(limit.f_train_error[-1].max() < 0.02)
    True
    """
    instance_of("theory", theory, Theory, "a lg.theories.Theory")
    run = instance_of("posed", posed, Posed, "a lg.theories.Posed").run
    takes("one", one, ("rng", "tell"))
    most, throw = integer("most", most, at_least=FEWEST), flag("throw", throw)
    rtol = real("rtol", getattr(theory, "rtol", RTOL), above=0)
    count = optional_count("replicates", getattr(theory, "replicates", None), 1)
    seed = np.asarray(jax.random.key_data(random_key(getattr(theory, "key", 0))))
    checkpoint, progress = (getattr(theory, name, None) for name in ("checkpoint", "progress"))
    saved = None if checkpoint is None else _checkpoint(theory, run, seed, checkpoint)
    plan = _Plan(one, run, Seeds(np.random.default_rng(seed)))
    with watched(progress, theory.name, checkpoint) as (report, reached), one_thread_of_blas():
        goal = Goal(rtol, count, FEWEST, most, reached=reached)
        replicates = Replicates(plan, Nothing(), goal, cores(), report, saved)
        found = replicates.run(None if saved is None else saved.load()).replicates
    return _answer(theory, posed, found, rtol, throw)


class Nothing(NamedTuple):
    """What these replicates have in common."""


KINDS = (Nothing, np.ndarray | None, np.ndarray)


@dataclass(frozen=True)
class _Plan:
    """Replicates that are computed by a function."""

    one: One
    run: Run
    seeds: Seeds

    def begin(self, tell: Tell) -> tuple[Nothing, None, np.ndarray]:
        """Return the first replicate."""
        return Nothing(), None, self.replicate(Nothing(), 0, tell)

    def replicate(self, common: Nothing, number: int, tell: Tell) -> np.ndarray:
        """Return a replicate, after a check of its shape."""

        def telling(fraction: float) -> None:
            check()
            tell(float(fraction))

        with precision(self.run.data.x_train):
            f = np.asarray(self.one(np.random.default_rng(self.seeds[number]), telling), float)
        wanted = (len(self.run.times), len(self.run.data.x), *self.run.output_shape)
        if f.shape != wanted:
            raise InvalidInput(f"one: wanted outputs of shape {wanted}, got {f.shape}.")
        return f

    def ended(self, result: np.ndarray) -> bool:
        """Whether outputs are finite."""
        return bool(np.isfinite(result).all())

    def error(self, found: list[np.ndarray]) -> float:
        """Return the relative error of the mean."""
        f, error = mean_and_error(np.stack(found))
        return relative(error, f)


def _checkpoint(theory: Theory, run: Run, seed: np.ndarray, path: Any) -> Checkpoint:
    batches = run.batches
    options: dict[str, Any] = {
        "theory": theory.name,
        "number of steps, or other rates or times": (
            np.asarray(run.times if run.steps is None else run.rates).tolist(),
            None if batches is None else np.asarray(batches).tolist(),
        ),
    }
    for field in fields(theory):  # type: ignore[arg-type]
        if field.name not in OF_THE_CALL:
            options[field.name] = seed if field.name == "key" else getattr(theory, field.name)
    return Checkpoint(path, run, options, KINDS)


def _answer(
    theory: Theory, posed: Posed, found: list[np.ndarray], rtol: float, throw: bool
) -> Trajectory:
    """Return the mean of replicates; of the last one alone if it is not finite."""
    run = posed.run
    shown = found if np.isfinite(found[-1]).all() else found[-1:]
    f, error = mean_and_error(np.stack(shown))
    extra, interval = output_variables(run, "error", error), None
    if len(shown) > 1:
        interval = margin(error, error, len(shown))
        extra |= output_variables(run, "margin", interval)
    note = error_in_words(f"{len(shown)} replicates", f, error, interval, rtol)
    result = Trajectory.of(
        run,
        *split_outputs(run, f),
        theory=theory.name,
        reason=posed.reason,
        extra=extra,
        notes=(note,),
    )
    result = judged(result, f, error, interval, rtol)
    return bounded(run, f, result, throw, f"the theory {theory.name!r}")
