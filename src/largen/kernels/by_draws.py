"""Mean and deviation over initialisations for losses that are not squared, by Monte Carlo."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from largen.kernels import observables
from largen.kernels.dynamics import Answer, Problem, follow
from largen.kernels.prior import draw, square_root


def solve_by_draws(problem: Problem, draws: int, key: Any) -> Answer:
    """Follow networks from random initial outputs, or the one from 0 where these vanish.

    Parameters
    ----------
    problem
        What is solved.
    draws
        Even number of draws; they come in pairs of opposite sign, which cancels the odd part of
        the mean's error.
    key
        Of the draws.
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
    start = draw(key, root, draws // 2, problem.channels)
    both, solved = follow(problem, *start, observables.statistics)
    extra = {}
    for name, seen in zip(names, both, strict=True):
        extra[f"f_{name}_std"], extra[f"f_{name}_error"] = seen.std, seen.error
    note = f"mean over {draws} draws of the initial outputs, with its standard error in f_*_error"
    return Answer(both[0].mean, both[1].mean, extra, (note,), solved)
