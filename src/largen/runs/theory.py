"""The interface of theories of infinite networks to ``lg.solve``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from largen.arrays import floating
from largen.errors import InvalidInput, instance_of
from largen.runs.run import Run
from largen.runs.trajectory import Trajectory

Problem = TypeVar("Problem")


def set_fields(record: Any, /, **values: Any) -> None:
    """Set fields of a frozen record within its ``__post_init__``, for example to checked values."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True)
class Posed(Generic[Problem]):
    """A run that a theory covers, as the problem that it solves.

    Attributes
    ----------
    run
        The run.
    reason
        The reason why the theory applies, which becomes the trajectory's ``reason``.
    problem
        The run as the theory formulates it, with the network read once.
    """

    run: Run
    reason: str
    problem: Problem

    def __post_init__(self):
        instance_of("run", self.run, Run, "an lg.Run")
        instance_of("reason", self.reason, str, "a text")


def initial_outputs(
    limit: Trajectory, f0_train: Any, f0_test: Any
) -> tuple[Run, np.ndarray, np.ndarray]:
    """Return the run of a limit, and initial outputs of networks after a check of their shapes."""
    run = limit.run
    if run is None:
        raise InvalidInput(
            "limit: was loaded from a file, which does not hold the run; solve it again."
        )
    f0_train, f0_test = np.asarray(f0_train), np.asarray(f0_test)
    for name, f0, x in (
        ("f0_train", f0_train, run.data.x_train),
        ("f0_test", f0_test, run.data.x_test),
    ):
        if f0.shape != (*f0_train.shape[:1], len(x), *run.output_shape):
            wanted = ", ".join(map(str, ("seed", len(x), *run.output_shape)))
            raise InvalidInput(f"{name}: wanted shape ({wanted}), got {f0.shape}.")
        if f0.size:
            floating(name, f0)
    return run, f0_train, f0_test


class Theory(ABC):
    """A limit of wide networks: a frozen record of options, and two functions.

    A theory is a subclass that is a frozen dataclass, whose fields are its options, each with a
    default. ``lg.solve(run, theory=record)`` solves a run by it;
    :func:`largen.theories.register` adds it to the theories among which ``lg.solve(run)`` chooses.

    Attributes
    ----------
    name
        The theory's name in results and in ``theory=name``, an attribute of the class.
    random_outputs
        An attribute of the class: whether the limit's outputs depend on a network's random
        initialisation. If so, :meth:`condition` and :meth:`initial_outputs` are defined.
    has_positions
        An attribute of the class: whether it covers networks with an output at each position.
    papers
        An attribute of the class: the papers that :func:`largen.cite` names for its results, as
        BibTeX entries, or as keys of ``largen.bibliography.references()``.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> from dataclasses import dataclass
    >>> from typing import ClassVar
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Untrained(lg.theories.Theory):
    ...     name: ClassVar[str] = "untrained"
    ...     @classmethod
    ...     def pose(cls, run):
    ...         if run.optimizer.lr > 1e-9:
    ...             raise lg.errors.NoTheory("weights move.")
    ...         return lg.theories.Posed(run, "weights are constant", None)
    ...     def solve(self, posed, *, throw=True):
    ...         f = np.zeros((2, len(posed.run.times), 2))
    ...         return lg.Trajectory.of(
    ...             posed.run, *f, theory=self.name, reason=posed.reason
    ...         )
    >>> data = lg.Dataset(np.eye(2), np.ones(2), np.eye(2), np.ones(2))
    >>> still = lg.Run(lg.mlp(1), lg.mean_field(), data, optimizer=lg.gd(1e-12), steps=2)
    >>> lg.solve(still, theory=Untrained()).reason
    'weights are constant'
    """

    name: ClassVar[str]
    random_outputs: ClassVar[bool] = False
    has_positions: ClassVar[bool] = False
    papers: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @abstractmethod
    def pose(cls, run: Run) -> Posed:
        """Return the problem that a run is to this theory, whatever the options.

        Raises
        ------
        NoTheory
            If the theory does not cover the run; the message says what is missing.
        NoRule
            For a layer that it does not know.
        """

    @classmethod
    def posed(cls, run: Run) -> Posed:
        """As :meth:`pose`, but refuse runs with outputs at positions unless ``has_positions``.

        Raises
        ------
        NoTheory
            If the theory has single outputs, and each position of the run has one; and as
            :meth:`pose`.
        NoRule
            As :meth:`pose`.
        """
        if not cls.has_positions:
            run.check_one_output(f"the theory {cls.name!r}")
        return cls.pose(run)

    @abstractmethod
    def solve(self, posed: Posed, *, throw: bool = True) -> Trajectory:
        """Solve what :meth:`pose` returned, with the options of this record.

        Parameters
        ----------
        posed
            The problem.
        throw
            Whether to raise a numerical failure; otherwise the trajectory's status reports it.

        Raises
        ------
        NumericalFailure
            If ``throw``, with the trajectory up to the failure.
        """

    @classmethod
    def covers(cls, run: Run) -> str:
        """Return why the theory is the limit of a run; raises as :meth:`posed` does."""
        return cls.posed(run).reason

    def condition(self, limit: Trajectory, f0_train: Any, f0_test: Any) -> tuple[Any, Any]:
        """Return the limit's predictions for networks whose initial outputs are known.

        Parameters
        ----------
        limit
            A solution by this theory.
        f0_train, f0_test
            Initial outputs, ``(seed, sample[, output])`` and ``(seed, test_sample[, output])``.

        Returns
        -------
        tuple
            Outputs ``(seed, step, sample[, output])`` on training and on test samples.
        """
        raise NotImplementedError(f"outputs are deterministic in the limit {self.name!r}.")

    def initial_outputs(self, run: Run, draws: int, key: Any) -> tuple[Any, Any]:
        """Draw initial outputs of networks of infinite width, for :meth:`condition`.

        Parameters
        ----------
        run
            A run that the theory covers.
        draws
            The number of networks.
        key
            A JAX key.

        Returns
        -------
        tuple
            Outputs ``(seed, sample[, output])`` on training and on test samples.
        """
        raise NotImplementedError(f"outputs are deterministic in the limit {self.name!r}.")
