"""Which theory describes a run at infinite width, and its solution."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from largen.dmft import DEEP, ONE_HIDDEN_LAYER
from largen.errors import InvalidInput, LargenError, NoTheory, one_of
from largen.kernels import KERNEL_LIMIT
from largen.parameterizations.classification.report import MEANING
from largen.runs import Run, Theory, Trajectory

THEORIES: tuple[Theory, ...] = (KERNEL_LIMIT, ONE_HIDDEN_LAYER, DEEP)


def by_name(name: str) -> Theory:
    """Return an implemented theory.

    Raises
    ------
    InvalidInput
        If there is none of that name.
    """
    theories = {theory.name: theory for theory in THEORIES}
    return theories[one_of("theory", name, theories)]


def choose(run: Run, options: Iterable[str] = ()) -> Theory:
    """Return the first implemented theory that covers a run, if possible with these options.

    Raises
    ------
    NoTheory
        If none does; the message says of each what is missing, and of the scaling which limit it
        has.
    """
    covering, missing = None, []
    for theory in THEORIES:
        covers, why = theory.verdict(run)
        if covers and not _lacking(theory, options):
            return theory
        if covers:
            covering = covering or theory
        missing.append(f"  {theory.name}: {why}")
    if covering:
        return covering
    said = "\n".join([*missing, *_class_of(run)])
    raise NoTheory(f"no implemented theory covers this run.\n{said}")


def _class_of(run: Run) -> list[str]:
    """Return which limit the scaling has by its exponents, whether or not it can be solved."""
    try:
        found = run.param.classify(run.net, run.optimizer)
    except LargenError:
        return []
    words = (MEANING[found.kind], *found.violated, *found.notes)
    return [f"  By its exponents the scaling is {found.kind}: {'; '.join(words)}."]


def solve(run: Run, *, theory: str | None = None, throw: bool = True, **options: Any) -> Trajectory:
    """Solve a run at infinite width.

    The parameterization decides the limit. If features stand still, networks follow their
    neural tangent kernel, and the trajectory is the mean over initialisations (``f_train``,
    ``f_test``) with its deviation (``f_train_std``, ``f_test_std``). If features move at order
    one, the limit is a mean field, and all networks follow the same trajectory.

    Parameters
    ----------
    run
        What is trained, and how.
    theory
        The name of the theory to use; by default the first that covers the run and has the
        options that are given. The result's ``theory`` and ``reason`` say which one it was, and
        why.
    throw
        Whether a divergence is raised, or returned in the result's ``status``.
    options
        Of the theory: for ``"kernel"`` see :func:`largen.kernels.limit.solve`, for
        ``"mean field, one hidden layer"``
        :func:`largen.dmft.one_hidden_layer.solution.solve`, for ``"mean field, deep"``
        :func:`largen.dmft.deep.solution.solve`.

    Returns
    -------
    Trajectory
        Without an axis of seeds.

    Raises
    ------
    NoTheory
        If no implemented theory covers the run; the message names what is missing.
    NoRule
        If the theory that was asked for does not know a layer.
    NumericalFailure
        If the dynamics diverges, with the result until then and what to try.
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
    """
    if not isinstance(run, Run):
        raise InvalidInput(f"run: wanted an lg.Run, got {type(run).__name__}.")
    if theory is None:
        chosen = choose(run, options)
    else:
        chosen = by_name(theory)
        chosen.covers(run)
    for option in _lacking(chosen, options):
        _refuse(option, chosen, run)
    return chosen.solve(run, throw=throw, **options)


def _options(theory: Theory) -> set[str]:
    return set(inspect.signature(theory.solve).parameters) - {"run", "throw"}


def _lacking(theory: Theory, options: Iterable[str]) -> list[str]:
    """Return the options that a theory does not have."""
    return [option for option in options if option not in _options(theory)]


def _refuse(option: str, chosen: Theory, run: Run) -> None:
    """Raise for an option that a theory does not have, and name the one that has it."""
    for other in THEORIES:
        if option in _options(other) and other.verdict(run)[0]:
            raise InvalidInput(
                f"{option}: is no option of the theory {chosen.name!r}, but of {other.name!r}, "
                f"which covers this run as well: pass theory={other.name!r}."
            )
    one_of(f"option of the theory {chosen.name!r}", option, _options(chosen))
