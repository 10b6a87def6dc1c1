"""Mean and standard deviation over initialisations by Monte Carlo, for non-quadratic losses."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from largen.progress import Report
from largen.theories.kernel_limit import observables
from largen.theories.kernel_limit.dynamics import Answer, KernelProblem, follow
from largen.theories.kernel_limit.prior import draw, square_root

MOST_DRAWS = 2**14
SPARE = 1.2  # safety factor on the number of draws, which is computed from an estimated error


def solve_by_draws(
    problem: KernelProblem,
    draws: int,
    key: Any,
    rtol: float | None = None,
    report: Report = lambda done, total: None,
) -> Answer:
    """Train networks from random initial outputs, or one network from 0 where these vanish.

    Draws come in pairs of opposite sign, which cancels the odd part of the mean's error; more are
    made until ``rtol`` is reached.
    """
    names = ("train", "test")
    if problem.starts_at_zero:
        (train, test), solved = follow(problem, *problem.zero_start)
        f = {"train": train[:, 0], "test": test[:, 0]}
        extra = {
            f"f_{name}_{what}": jnp.zeros_like(f[name])
            for name in names
            for what in ("std", "error")
        }
        return Answer(f["train"], f["test"], extra, solved=solved)
    root = square_root(problem.nngp, len(problem.ntk))
    answer = _mean(problem, root, draws, key)
    while rtol is not None and draws < MOST_DRAWS:
        error = _relative_error(answer)
        if error <= rtol or not np.isfinite(error):
            break
        wanted = draws * max(2.0, SPARE * (error / rtol) ** 2)
        made, draws = draws, min(2 * int(wanted / 2), MOST_DRAWS)
        report(made, made + draws)
        answer = _mean(problem, root, draws, key)
    return answer


def _mean(problem: KernelProblem, root: Any, draws: int, key: Any) -> Answer:
    """Return the mean over the given number of new draws, with its standard error."""
    start = draw(key, root, draws // 2, problem.channels)
    both, solved = follow(problem, *start, observables.statistics)
    extra = {}
    for name, seen in zip(("train", "test"), both, strict=True):
        extra[f"f_{name}_std"], extra[f"f_{name}_error"] = seen.std, seen.error
    note = f"mean over {draws} draws of the initial outputs, with its standard error in f_*_error"
    return Answer(both[0].mean, both[1].mean, extra, (note,), solved)


def _relative_error(answer: Answer) -> float:
    """Return |error|/|f| over all times and samples, training and test."""
    errors = [np.asarray(answer.extra[f"f_{name}_error"]) for name in ("train", "test")]
    outputs = [np.asarray(f) for f in (answer.f_train, answer.f_test)]
    above, below = (np.sqrt(sum(np.sum(x**2) for x in parts)) for parts in (errors, outputs))
    return float(above / below) if above else 0.0
