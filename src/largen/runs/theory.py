"""What a theory of infinite networks offers to ``lg.solve``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from largen.errors import NoRule, NoTheory
from largen.runs.run import Run
from largen.runs.trajectory import Trajectory


@dataclass(frozen=True)
class Theory:
    """A limit that can be solved.

    Attributes
    ----------
    name
        What it is called: ``theory=name`` asks ``lg.solve`` for it.
    covers
        Returns why it is the limit of a run; raises :class:`largen.errors.NoTheory` with what
        is missing if it is not, or :class:`largen.errors.NoRule` for a layer it does not know.
    solve
        Solves the run: ``solve(run, **options)``, with options of the theory's own.
    given
        ``given(limit, f0_train, f0_test)`` returns the limit's predictions for networks that
        start from known outputs, shape ``(seed, step, sample[, output])``, train and test. None
        if outputs are deterministic in the limit.
    """

    name: str
    covers: Callable[[Run], str]
    solve: Callable[..., Trajectory] = field(repr=False)
    given: Callable[[Trajectory, Any, Any], tuple[Any, Any]] | None = field(
        default=None, repr=False
    )

    def verdict(self, run: Run) -> tuple[bool, str]:
        """Return whether the theory covers a run, and why or why not."""
        try:
            return True, self.covers(run)
        except (NoTheory, NoRule) as missing:
            return False, str(missing)
