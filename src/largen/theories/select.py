"""The choice of the theory that describes a run at infinite width, and its solution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from largen.errors import InvalidInput, LargenError, NoRule, NoTheory, instance_of, one_of
from largen.runs import Posed, Run, Theory, Trajectory
from largen.scalars import flag
from largen.text import shown
from largen.theories.registry import by_name, candidates, check_theory, options_of, registered


def solve(
    run: Run,
    *,
    theory: Theory | type[Theory] | str | None = None,
    throw: bool = True,
    **options: Any,
) -> Trajectory:
    """Solve a run at infinite width.

    The parameterization decides the limit. If features stay fixed, networks follow their neural
    tangent kernel, and the trajectory is the mean over initialisations (``f_train``, ``f_test``)
    with the standard deviation over initialisations (``f_train_std``, ``f_test_std``). If features
    move at order one, the limit is a mean-field theory, in which all networks follow the same
    trajectory.

    Parameters
    ----------
    run
        The training run.
    theory
        A theory with its options: an instance of :class:`largen.theories.KernelLimit`,
        :class:`largen.theories.MeanField`, :class:`largen.theories.DeepMeanField`,
        :class:`largen.theories.InfiniteDepth`, :class:`largen.theories.AttentionMeanField`,
        :class:`largen.theories.AdaptiveMeanField`,
        :class:`largen.theories.AdaptiveKernelLimit`, :class:`largen.theories.FiniteWidth`, or of
        your own subclass of :class:`largen.theories.Theory`; or the class or the name of a theory,
        for default options.
        If None, the first registered theory that covers the run and has the given options.
        ``theory`` and ``reason`` of the result give the chosen theory and why it applies.
    throw
        Whether a numerical failure is raised, or returned in the result's ``status``.
    options
        Options of the theory by keyword, instead of an instance: ``lg.solve(run, rtol=1e-3)``.
        Each option is documented at the theory's class.

    Returns
    -------
    Trajectory
        A trajectory without a seed axis; its variables are documented at the theory's class.

    Raises
    ------
    NoTheory
        If no implemented theory covers the run; the message names what is missing.
    NoRule
        If the requested theory does not cover a layer.
    NumericalFailure
        If the dynamics diverges; the error carries the result until then, and its message says what
        to try.
    InvalidInput
        For an unknown theory or option.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=10)
    >>> limit = lg.solve(run)
    >>> limit.theory, limit.f_train.shape
    ('kernel', (11, 3))
    >>> moving = lg.Run(lg.mlp(1, "relu"), lg.mup(), data, optimizer=lg.gd(lr=0.5), steps=10)
    >>> lg.solve(moving, theory=lg.theories.MeanField(rtol=1e-2)).theory
    'mean field, one hidden layer'
    """
    instance_of("run", run, Run, "an lg.Run")
    throw = flag("throw", throw)
    if theory is None:
        kind, posed = choose(run, options)
        record = kind(**_known(kind, run, options))
    else:
        record = _record(theory, run, options)
        posed = record.posed(run)
    result = record.solve(posed, throw=throw)
    wanted = f"a Trajectory of the solve of {type(record).__name__}"
    return instance_of("theory", result, Trajectory, wanted).checked(throw)


def choose(run: Run, options: Iterable[str] = ()) -> tuple[type[Theory], Posed]:
    """Return the first theory that covers a run, preferably with these options, and its problem.

    Options that no theory has, which are refused later, make no difference.

    Raises
    ------
    NoTheory
        If no theory covers the run; the message says why for each theory, and which limit the
        scaling has.
    """
    covering, missing = None, []
    options = () if _unknown(run, options) else options
    for theory in candidates(run):
        try:
            posed = theory.posed(run)
        except (NoTheory, NoRule) as why:
            missing.append(f"  {theory.name}: {why}")
            continue
        if set(options) <= set(options_of(theory)):
            return theory, posed
        covering = covering or (theory, posed)
    if covering:
        return covering
    said = "\n".join([*missing, *_class_of(run)])
    raise NoTheory(f"no implemented theory covers this run.\n{said}")


def _unknown(run: Run, options: Iterable[str]) -> set[str]:
    """Return the options that no theory has, with imports of as few theories as that takes."""
    unknown = set(options)
    theories = candidates(run)
    while unknown and (theory := next(theories, None)):
        unknown -= set(options_of(theory))
    return unknown


def _class_of(run: Run) -> list[str]:
    """Return the limit that the exponents of the scaling imply, solvable or not."""
    from largen.parameterizations.classification import MEANING, classify

    try:
        classification = classify(run.param, run.net, run.optimizer)
    except LargenError:
        return []
    words = (MEANING[classification.kind], *classification.violated, *classification.notes)
    return [f"  By its exponents the scaling is {classification.kind}: {'; '.join(words)}."]


def _record(theory: Any, run: Run, options: dict[str, Any]) -> Theory:
    """Return the requested theory as an instance, with further options."""
    if isinstance(theory, Theory):
        check_theory("theory", type(theory))
        return replace(theory, **_known(type(theory), run, options))  # type: ignore[type-var]
    if isinstance(theory, type):
        check_theory("theory", theory)
        return theory(**_known(theory, run, options))
    if isinstance(theory, str):
        kind = by_name(theory)
        return kind(**_known(kind, run, options))
    raise InvalidInput(
        "theory: wanted a record such as lg.theories.MeanField(rtol=1e-3), or a name, got "
        f"{shown(theory)}."
    )


def _known(theory: type[Theory], run: Run, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options if the theory has them all; otherwise raise, naming a theory that does."""
    for option in options:
        if option in options_of(theory):
            continue
        for other in registered():
            if option in options_of(other) and _covers(other, run):
                raise InvalidInput(
                    f"{option}: is not an option of the theory {theory.name!r}, but of "
                    f"{other.name!r}, which covers this run as well: pass theory={other.name!r}."
                )
        one_of(f"option of the theory {theory.name!r}", option, options_of(theory))
    return options


def _covers(theory: type[Theory], run: Run) -> bool:
    try:
        theory.posed(run)
    except (NoTheory, NoRule):
        return False
    return True
